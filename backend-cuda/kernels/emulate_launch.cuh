// What the host calls: kernels by name, and a launch. Part of `emulate_host.cuh`.
#pragma once

namespace tl {

// A kernel of this library; `TL_KERNEL` makes one.
struct Entry {
    const char *name;
    unsigned long args_bytes;
    unsigned threads;
    void (*body)(const void *);
    Entry *next;
    static Entry *first;
    Entry(const char *n, unsigned long a, unsigned t, void (*b)(const void *))
        : name(n), args_bytes(a), threads(t), body(b), next(first) {
        first = this;
    }
};
Entry *Entry::first = nullptr;

// Whether `bytes` at `p` are shared memory of this block.
static inline bool is_shared(const void *p, unsigned bytes) {
    const unsigned char *c = (const unsigned char *)p;
    return (c >= __start_tl_shared && c + bytes <= __stop_tl_shared) ||
           (c >= dynamic_shared && c + bytes <= dynamic_shared + launch->shared);
}

static inline void check_shared(const void *p, unsigned bytes, unsigned align, Site at) {
    if ((unsigned long)p % align) fail(at, "shared address %p is not aligned to %u bytes", p, align);
    if (!is_shared(p, bytes)) fail(at, "%u bytes at %p are not in the block's shared memory", bytes, p);
}

static void find_range(unsigned long a, unsigned bytes, Site at) {
    unsigned long low = 0, high = launch->range_count;
    while (low < high) {
        unsigned long mid = (low + high) / 2;
        if (launch->ranges[mid].end <= a) low = mid + 1;
        else high = mid;
    }
    if (low < launch->range_count && launch->ranges[low].begin <= a && a + bytes <= launch->ranges[low].end) {
        last_range = launch->ranges[low];
        return;
    }
    const Range *r = low < launch->range_count ? &launch->ranges[low] : nullptr;
    if (r && a >= r->begin) {
        fail(at, "%u bytes at %#lx leave their buffer, which ends at %#lx", bytes, a, r->end);
    }
    const Range *before = low ? &launch->ranges[low - 1] : nullptr;
    if (before) fail(at, "%u bytes at %#lx are in no buffer (%lu bytes behind the end of one)", bytes, a, a - before->end);
    fail(at, "%u bytes at %#lx are in no buffer", bytes, a);
}

// Global memory that an instruction reads or writes: alignment, and whether it lies in one buffer.
static inline void check_global(const void *p, unsigned bytes, unsigned align, Site at) {
    unsigned long a = (unsigned long)p;
    if (a % align) fail(at, "global address %p is not aligned to %u bytes", p, align);
    if (a < last_range.begin || a + bytes > last_range.end) find_range(a, bytes, at);
}

static struct sigaction earlier[32];

// A wild address or a trap inside a kernel becomes the launch's error; elsewhere the earlier handler goes on.
static void on_signal(int signal, siginfo_t *info, void *context) {
    if (inside) {
        char text[200];
        const char *what = signal == SIGFPE   ? "integer division by zero"
                           : signal == SIGILL ? "trap"
                                              : "wild address";
        snprintf(text, sizeof text, "%s (%p)", what, info->si_addr);
        stop(text);
    }
    const struct sigaction *old = &earlier[signal];
    if (old->sa_flags & SA_SIGINFO) {
        old->sa_sigaction(signal, info, context);
    } else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN) {
        old->sa_handler(signal);
    } else {
        sigaction(signal, old, nullptr);
    }
}

static void watch_signals() {
    static bool done;
    if (done) return;
    done = true;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    const int watched[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (int s : watched) sigaction(s, &action, &earlier[s]);
}

static bool guard_broken(const unsigned char *p) {
    for (unsigned i = 0; i < GUARD; i++) {
        if (p[i] != 0xA5) return true;
    }
    return false;
}

static void begin_block() {
    unsigned n = launch->block;
    memset(__start_tl_shared, 0xFF, (size_t)(__stop_tl_shared - __start_tl_shared));
    memset(dynamic_shared, 0xFF, launch->shared);
    memset(named, 0, sizeof named);
    barrier_arrived = barrier_count = barrier_result = bulks = warps_ready = 0;
    polls = 0;
    blocks_begun++;
    for (unsigned w = 0; w * 32 < n; w++) {
        for (Group &g : groups[w]) g.arrived = 0;
        unsigned lanes = n - w * 32;
        ready[w] = lanes >= 32 ? ~0u : (1u << lanes) - 1u;
        warps_ready |= 1u << w;
    }
    for (unsigned t = 0; t < n; t++) {
        Fiber &f = fibers[t];
        char *bottom = launch->stacks + t * launch->stack_bytes;
        *(unsigned long long *)bottom = CANARY;
        f.sp = new_stack(bottom, bottom + launch->stack_bytes, thread_main, t);
        f.thread = t;
        f.warp = t / 32;
        f.lane = t % 32;
        f.wait = READY;
        f.first = f.last = f.groups = 0;
    }
    running = n;
}

// Runs the threads of a block to their end. False: the launch failed.
static bool run_block() {
    unsigned n = launch->block;
    begin_block();
    cur = &fibers[launch->backward ? n - 1 : 0];
    threadIdx = uint3{cur->thread, 0, 0};
    inside = true;
    tl_switch(&main_sp, cur->sp);
    inside = false;
    if (*launch->error) return false;
    const char *problem = nullptr;
    for (unsigned t = 0; t < n && !problem; t++) {
        if (*(unsigned long long *)(launch->stacks + t * launch->stack_bytes) != CANARY) problem = "local memory overflows";
    }
    if (guard_broken(dynamic_shared - GUARD)) problem = "a write before dynamic shared memory";
    if (guard_broken(dynamic_shared + launch->shared)) problem = "a write behind dynamic shared memory";
    if (bulks) problem = "a bulk copy was not waited for";
    if (!problem) return true;
    snprintf(launch->error, launch->error_bytes, "block (%u, %u, %u): %s", blockIdx.x, blockIdx.y, blockIdx.z, problem);
    return false;
}

} // namespace tl

#define TL_EXPORT extern "C" __attribute__((visibility("default")))

// Finds a kernel; false when there is none of this name.
TL_EXPORT bool tl_find(const char *name, const void **entry, unsigned long *args_bytes, unsigned *threads) {
    for (const tl::Entry *e = tl::Entry::first; e; e = e->next) {
        if (strcmp(e->name, name)) continue;
        *entry = e;
        *args_bytes = e->args_bytes;
        *threads = e->threads;
        return true;
    }
    return false;
}

// Runs a launch to its end; what goes wrong is in `error`. One at a time for each library.
TL_EXPORT void tl_launch(const void *entry, const tl::Launch *l) {
    using namespace tl;
    static unsigned char *shared;
    // Aligned to 128 bytes and no more, as on the device.
    if (!shared) shared = (unsigned char *)aligned_alloc(1024, MOST_SHARED + 4 * GUARD) + GUARD + 128;
    watch_signals();
    launch = l;
    dynamic_shared = shared;
    last_range = Range{0, 0};
    kernel_body = ((const Entry *)entry)->body;
    memset(shared - GUARD, 0xA5, GUARD);
    memset(shared + l->shared, 0xA5, GUARD);
    gridDim = dim3{l->grid[0], l->grid[1], l->grid[2]};
    blockDim = dim3{l->block, 1, 1};
    for (unsigned z = 0; z < gridDim.z; z++) {
        for (unsigned y = 0; y < gridDim.y; y++) {
            for (unsigned x = 0; x < gridDim.x; x++) {
                blockIdx = uint3{x, y, z};
                if (!run_block()) return;
            }
        }
    }
}
