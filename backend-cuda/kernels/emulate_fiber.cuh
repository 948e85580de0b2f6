// A switch from one stack to another, and the start of a new one.
#pragma once

#if defined(__x86_64__)

// Saves the registers that a call keeps, stores the stack's top in `*save`, and goes on where `load` was saved.
extern "C" __attribute__((visibility("hidden"))) void tl_switch(void **save, void *load);
asm(R"(
    .text
    .p2align 4
    .hidden tl_switch
    .globl tl_switch
    .type tl_switch, @function
tl_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size tl_switch, .-tl_switch
)");

namespace tl {
// A stack that ends at `top` and begins with a call of `entry`.
static void *new_stack(char *, char *top, void (*entry)(), unsigned) {
    void **sp = (void **)((unsigned long)top & ~15ul);
    *--sp = nullptr; // where `entry` would return to
    *--sp = (void *)entry;
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    return sp;
}
} // namespace tl

#else // Other machines: slower, since each switch saves the signal mask too.

#include <ucontext.h>
namespace tl {
static ucontext_t contexts[1025];
static unsigned contexts_used;
static void *new_stack(char *bottom, char *top, void (*entry)(), unsigned index) {
    ucontext_t *c = &contexts[index];
    getcontext(c);
    c->uc_stack.ss_sp = bottom;
    c->uc_stack.ss_size = (size_t)(top - bottom);
    c->uc_link = nullptr;
    makecontext(c, entry, 0);
    return c;
}
static ucontext_t *running_context = &contexts[1024];
} // namespace tl
static void tl_switch(void **save, void *load) {
    ucontext_t *from = tl::running_context, *to = (ucontext_t *)load;
    *save = from;
    tl::running_context = to;
    swapcontext(from, to);
}

#endif
