// The emulator's scheduler: every thread of a block is a fiber on one host thread, blocks run one after the other.
//
// Included outside all namespaces, before a kernel file. A fiber runs until it must wait; then the next one that can run goes
// on. Nothing runs at the same time, so each wait is a fact: when no fiber can go on, the kernel would hang, and the error says
// who waits where. Odd launches take lanes and warps in descending order, so that a result which leans on the order differs.
#pragma once
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
};
static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;

namespace tl {

// Where in a kernel's source something happens.
struct Site {
    const char *file;
    int line;
};
// A default argument `Site at = here()` is the caller's place.
constexpr Site here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) { return Site{file, line}; }
inline bool same(Site a, Site b) { return a.line == b.line && (a.file == b.file || !strcmp(a.file, b.file)); }

struct Range {
    unsigned long begin, end;
};

// One launch, as the host gives it (`device/emulated/library.rs` has the same struct).
struct Launch {
    const void *args;
    char *stacks;
    const Range *ranges; // device and pinned memory, ascending
    unsigned long range_count;
    char *error;
    unsigned long error_bytes;
    unsigned long stack_bytes;
    unsigned grid[3];
    unsigned block;
    unsigned shared;
    unsigned backward;
};

enum Wait { READY, AT_COLLECTIVE, AT_BARRIER, AT_NAMED, AT_MBARRIER, ENDED };

// A copy that was issued and has not been waited for.
struct Copy {
    void *to;
    const void *from;
    unsigned bytes, from_bytes, group;
};

struct Fiber {
    void *sp;
    unsigned thread, warp, lane;
    Wait wait;
    Site site;
    unsigned id;               // named barrier
    unsigned long long *mbar;  // mbarrier and the phase that must end
    unsigned parity;
    Copy *copies;              // [first, last) in order of issue
    unsigned first, last, room, groups;
};

// Lanes of a warp that meet at a collective.
struct Group {
    unsigned mask, arrived;
    Site site;
    void *slot[32];
};

struct Named {
    unsigned arrived, expected;
};

// A copy of the copy engine, which counts towards an mbarrier.
struct Bulk {
    void *to;
    const void *from;
    unsigned bytes;
    unsigned long long *mbar;
};

constexpr unsigned MOST_THREADS = 1024, MOST_SHARED = 232448, GUARD = 1024, MOST_BULK = 4096;
constexpr unsigned long long CANARY = 0x7ee11e5ca1ab1e5eull;

static Fiber fibers[MOST_THREADS];
static Group groups[32][32]; // by warp and the lowest lane of the mask
static Named named[16];
static Bulk bulk[MOST_BULK];
static unsigned ready[32], warps_ready, running, bulks;
static unsigned barrier_arrived, barrier_count, barrier_result;
static unsigned long polls, blocks_begun;
static Site barrier_site;
static Fiber *cur;
static void *main_sp;
static const Launch *launch;
static void (*kernel_body)(const void *);
static unsigned char *dynamic_shared;
static Range last_range;
static thread_local bool inside;

} // namespace tl

// Static shared memory lies in a section of its own, so that all of it can be poisoned when a block begins.
#define __shared__ static __attribute__((section("tl_shared")))
__attribute__((section("tl_shared"), used)) static unsigned tl_shared_anchor;
extern "C" __attribute__((visibility("hidden"))) unsigned char __start_tl_shared[], __stop_tl_shared[];

#include "emulate_fiber.cuh"

namespace tl {

// Ends the launch with a message; the fibers are abandoned.
[[noreturn]] static void stop(const char *message, bool of_thread = true) {
    char thread[32] = "";
    if (of_thread) snprintf(thread, sizeof thread, " thread %u", cur->thread);
    snprintf(launch->error, launch->error_bytes, "block (%u, %u, %u)%s: %s", blockIdx.x, blockIdx.y, blockIdx.z, thread,
             message);
    void *gone;
    tl_switch(&gone, main_sp);
    abort();
}

[[noreturn]] static void fail(Site at, const char *format, ...) {
    char text[600], message[800];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    snprintf(message, sizeof message, "%s:%d: %s", at.file, at.line, text);
    stop(message);
}

static const char *words(Wait w) {
    switch (w) {
    case AT_COLLECTIVE: return "a warp collective";
    case AT_BARRIER: return "__syncthreads";
    case AT_NAMED: return "a named barrier";
    case AT_MBARRIER: return "an mbarrier";
    case ENDED: return "ended";
    default: return "ready";
    }
}

// Nobody can go on: says where the first of each kind waits.
[[noreturn]] static void deadlock() {
    char text[900];
    int used = snprintf(text, sizeof text, "the block hangs:");
    for (int w = AT_COLLECTIVE; w <= ENDED; w++) {
        unsigned count = 0;
        const Fiber *first = nullptr;
        for (unsigned t = 0; t < blockDim.x; t++) {
            if (fibers[t].wait == w) {
                first = first ? first : &fibers[t];
                count++;
            }
        }
        if (!count || used >= (int)sizeof text) continue;
        char *to = text + used;
        size_t room = sizeof text - used;
        if (w == ENDED) {
            used += snprintf(to, room, " %u threads have ended (thread %u, …);", count, first->thread);
        } else {
            used += snprintf(to, room, " %u threads wait at %s (thread %u at %s:%d, …);", count, words((Wait)w),
                             first->thread, first->site.file, first->site.line);
        }
    }
    stop(text, false);
}

static inline unsigned from_mask(unsigned mask, unsigned after) {
    if (launch->backward) {
        unsigned below = mask & ((1u << after) - 1u);
        return 31u - __builtin_clz(below ? below : mask);
    }
    unsigned above = after == 31 ? 0 : mask & (~0u << (after + 1));
    return __builtin_ctz(above ? above : mask);
}

// The next fiber that can run: of this warp, then of the others.
static inline Fiber *next_ready() {
    unsigned w = cur->warp;
    if (!ready[w]) {
        if (!warps_ready) return nullptr;
        w = from_mask(warps_ready, w);
        return &fibers[w * 32 + from_mask(ready[w], launch->backward ? 0 : 31)];
    }
    return &fibers[w * 32 + from_mask(ready[w], cur->lane)];
}

// Lets bulk copies arrive (`emulate_sync.cuh`): as late as can be, when nobody can go on without them.
static void (*bulk_arrive_all)();

// The next fiber; there must be one.
static Fiber *next_or_hang() {
    Fiber *to = next_ready();
    if (!to && bulks) {
        bulk_arrive_all();
        to = next_ready();
    }
    if (!to) deadlock();
    return to;
}

static inline void set_ready(unsigned warp, unsigned lanes) {
    ready[warp] |= lanes;
    warps_ready |= 1u << warp;
}
static inline void wake(Fiber *f) {
    f->wait = READY;
    set_ready(f->warp, 1u << f->lane);
}
static inline void not_ready(const Fiber *f) {
    if (!(ready[f->warp] &= ~(1u << f->lane))) warps_ready &= ~(1u << f->warp);
}

static inline void go(Fiber *to) {
    Fiber *from = cur;
    if (to == from) return;
    cur = to;
    threadIdx.x = to->thread;
    tl_switch(&from->sp, to->sp);
}

// The running fiber waits until something wakes it.
static void block(Wait why, Site at) {
    cur->wait = why;
    cur->site = at;
    not_ready(cur);
    go(next_or_hang());
}

// The others may go first.
static inline void yield() { go(next_ready()); }

// A thread looks whether another has done something: the others go first, and a wait without end is found.
static void poll(Site at) {
    constexpr unsigned long MOST = 20000000;
    if (++polls > MOST) fail(at, "polled %lu times in one block: what it waits for never comes", MOST);
    yield();
}

static void thread_main() {
    kernel_body(launch->args);
    cur->wait = ENDED;
    not_ready(cur);
    void *gone;
    if (!--running) tl_switch(&gone, main_sp);
    go(next_or_hang());
    abort();
}

// A barrier of the whole block; returns how many gave a true `vote`.
static unsigned barrier(unsigned vote, Site at) {
    if (!barrier_arrived) {
        barrier_site = at;
        barrier_count = 0;
    } else if (!same(barrier_site, at)) {
        fail(at, "this __syncthreads meets another one, at %s:%d, in the same block", barrier_site.file, barrier_site.line);
    }
    barrier_count += vote != 0;
    if (++barrier_arrived < blockDim.x) {
        block(AT_BARRIER, at);
        return barrier_result;
    }
    barrier_arrived = 0;
    barrier_result = barrier_count;
    for (unsigned t = 0; t < blockDim.x; t++) wake(&fibers[t]);
    return barrier_result;
}

} // namespace tl

#include "emulate_launch.cuh"
