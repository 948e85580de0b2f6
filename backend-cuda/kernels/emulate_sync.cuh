// Arithmetic of packed bf16, and the order between threads and copies, for the host. Part of `emulate_ptx.cuh`.
#pragma once

// ---- Arithmetic ---------------------------------------------------------------------------------------------------------

// Nearest bf16, even on ties, of a sum or product that a double holds exactly or nearly so: the double is first rounded to odd
// in f32, which keeps what the second rounding needs.
inline u32 tl_round_bf16(double x) {
    float f = (float)x;
    if (x == x && (double)f != x && (__float_as_uint(f) & 0x7fffffffu) < 0x7f800000u) {
        u32 bits = __float_as_uint(f);
        bool away = fabs((double)f) > fabs(x);
        f = __uint_as_float((away ? bits - 1 : bits) | 1u);
    }
    return to_bf16(f).bits;
}
inline u32 pack_bf16x2(float lo, float hi) { return to_bf16(lo).bits | (u32)to_bf16(hi).bits << 16; }
inline double tl_half(u32 x, int i) { return __uint_as_float(i ? x & 0xffff0000u : x << 16); }
inline u32 bf16x2_fma(u32 a, u32 b, u32 c) {
    u32 r = 0;
    for (int i = 0; i < 2; i++) r |= tl_round_bf16(fma(tl_half(a, i), tl_half(b, i), tl_half(c, i))) << (16 * i);
    return r;
}
inline u32 bf16x2_mul(u32 a, u32 b) {
    u32 r = 0;
    for (int i = 0; i < 2; i++) r |= tl_round_bf16(tl_half(a, i) * tl_half(b, i)) << (16 * i);
    return r;
}
inline u32 bf16x2_add(u32 a, u32 b) {
    u32 r = 0;
    for (int i = 0; i < 2; i++) r |= tl_round_bf16(tl_half(a, i) + tl_half(b, i)) << (16 * i);
    return r;
}
inline u32 bf16x2_sub(u32 a, u32 b) {
    u32 r = 0;
    for (int i = 0; i < 2; i++) r |= tl_round_bf16(tl_half(a, i) - tl_half(b, i)) << (16 * i);
    return r;
}
template <int tl_lut> inline u32 lop3(u32 a, u32 b, u32 c) {
    u32 r = 0;
    for (int i = 0; i < 8; i++) {
        if (tl_lut >> i & 1) r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    }
    return r;
}
inline u32 prmt(u32 a, u32 b, u32 selector) { return __byte_perm(a, b, selector); }
inline float exp2_approx(float x) { return exp2f(x); }
inline float log2_approx(float x) { return log2f(x); }
inline float rcp_approx(float x) { return 1.0f / x; }
inline float rsqrt_approx(float x) { return rsqrtf(x); }

// ---- Between blocks and kernels -----------------------------------------------------------------------------------------

inline void fence_block() {}
inline void fence_gpu() {}
inline u32 ld_acquire(const u32 *p, tl::Site at = tl::here()) {
    tl::check_global(p, 4, 4, at);
    tl::poll(at);
    return *(const volatile u32 *)p;
}
inline void st_release(u32 *p, u32 v, tl::Site at = tl::here()) {
    tl::check_global(p, 4, 4, at);
    *p = v;
}
inline u32 atom_acq_rel_add(u32 *p, u32 v, tl::Site at = tl::here()) {
    tl::check_global(p, 4, 4, at);
    u32 before = *p;
    *p = before + v;
    return before;
}
inline void red_release_add(u32 *p, u32 v, tl::Site at = tl::here()) { atom_acq_rel_add(p, v, at); }
inline void griddep_wait() {}
inline void griddep_launch() {}
inline u32 smid() { return blockIdx.x; }
inline u64 globaltimer() {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u64)now.tv_sec * 1000000000ull + (u64)now.tv_nsec;
}

// ---- Between some warps of a block --------------------------------------------------------------------------------------

namespace emu {
using namespace tl;

inline void named_arrive(unsigned id, unsigned threads, bool waits, Site at) {
    if (id < 1 || id > 15 || threads % 32 || !threads) fail(at, "barrier %u of %u threads", id, threads);
    Named &b = named[id];
    if (b.arrived && b.expected != threads) {
        fail(at, "barrier %u of %u threads, but others meet there as %u", id, threads, b.expected);
    }
    b.expected = threads;
    if (++b.arrived < threads) {
        cur->id = id;
        if (waits) block(AT_NAMED, at);
        return;
    }
    b.arrived = 0;
    for (unsigned t = 0; t < blockDim.x; t++) {
        if (fibers[t].wait == AT_NAMED && fibers[t].id == id) wake(&fibers[t]);
    }
}

// An mbarrier's word: phase in bit 0, arrivals still missing, arrivals of a phase, bytes still missing.
struct Mbar {
    u64 word;
    static constexpr u64 BITS = (1u << 20) - 1;
    unsigned phase() const { return word & 1; }
    unsigned missing() const { return word >> 1 & BITS; }
    unsigned count() const { return word >> 21 & BITS; }
    int bytes() const { return (int)((i64)word >> 41); }
    static u64 pack(unsigned phase, unsigned missing, unsigned count, int bytes) {
        return phase | (u64)missing << 1 | (u64)count << 21 | (u64)(i64)bytes << 41;
    }
};
inline Mbar mbar_load(u64 *bar, Site at) {
    check_shared(bar, 8, 8, at);
    Mbar b{*bar};
    if (!b.count() || b.word == ~0ull) fail(at, "the mbarrier was not initialised");
    return b;
}
inline void mbar_step(u64 *bar, unsigned arrivals, int bytes, Site at) {
    Mbar b = mbar_load(bar, at);
    if (b.missing() < arrivals) fail(at, "more arrivals at an mbarrier than its %u", b.count());
    unsigned missing = b.missing() - arrivals, phase = b.phase();
    int left = b.bytes() + bytes;
    if (missing || left) {
        *bar = Mbar::pack(phase, missing, b.count(), left);
        return;
    }
    *bar = Mbar::pack(phase ^ 1u, b.count(), b.count(), 0);
    for (unsigned t = 0; t < blockDim.x; t++) {
        Fiber &f = fibers[t];
        if (f.wait == AT_MBARRIER && f.mbar == bar && f.parity == phase) wake(&f);
    }
}
inline void bulk_issue(void *to, const void *from, unsigned bytes, u64 *bar, Site at) {
    if (!bytes || bytes % 16) fail(at, "a bulk copy of %u bytes", bytes);
    check_shared(to, bytes, 16, at);
    check_global(from, bytes, 16, at);
    mbar_load(bar, at);
    if (bulks == MOST_BULK) fail(at, "more than %u bulk copies that nobody waits for", MOST_BULK);
    bulk[bulks++] = Bulk{to, from, bytes, bar};
    memset(to, 0xFF, bytes);
}
// The copies that count towards `bar` arrive; null: all.
inline void bulk_arrive(u64 *bar, Site at) {
    unsigned kept = 0, all = bulks;
    bulks = 0;
    for (unsigned i = 0; i < all; i++) {
        Bulk b = bulk[i];
        if (bar && b.mbar != bar) {
            bulk[kept++] = b;
            continue;
        }
        memcpy(b.to, b.from, b.bytes);
        mbar_step(b.mbar, 0, -(int)b.bytes, at);
    }
    bulks = kept;
}
static const bool bulk_ready = (bulk_arrive_all = [] { bulk_arrive(nullptr, cur->site); }, true);
} // namespace emu

inline void bar_sync(u32 id, u32 threads, tl::Site at = tl::here()) { emu::named_arrive(id, threads, true, at); }
inline void bar_arrive(u32 id, u32 threads, tl::Site at = tl::here()) { emu::named_arrive(id, threads, false, at); }
inline void mbar_init(u64 *bar, u32 count, tl::Site at = tl::here()) {
    tl::check_shared(bar, 8, 8, at);
    *bar = emu::Mbar::pack(0, count, count, 0);
}
inline void mbar_fence_init() {}
inline void mbar_arrive(u64 *bar, tl::Site at = tl::here()) { emu::mbar_step(bar, 1, 0, at); }
// The copies arrive at once: nobody may count on that, since the barrier's phase ends no earlier.
inline void mbar_arrive_copies(u64 *bar, tl::Site at = tl::here()) {
    cp_async_commit();
    cp_async_wait<0>();
    mbar_arrive(bar, at);
}
inline void mbar_arrive_expect(u64 *bar, u32 bytes, tl::Site at = tl::here()) { emu::mbar_step(bar, 1, (int)bytes, at); }
inline void mbar_wait(u64 *bar, u32 parity, tl::Site at = tl::here()) {
    while (emu::mbar_load(bar, at).phase() == (parity & 1u)) {
        emu::bulk_arrive(bar, at);
        if (emu::mbar_load(bar, at).phase() != (parity & 1u)) return;
        tl::cur->mbar = bar;
        tl::cur->parity = parity & 1u;
        tl::block(tl::AT_MBARRIER, at);
    }
}
// The device may wait a while in here too; the emulator waits until the phase has ended.
inline bool mbar_try(u64 *bar, u32 parity, tl::Site at = tl::here()) {
    mbar_wait(bar, parity, at);
    return true;
}
inline void bulk_copy(void *shared, const void *global, u32 bytes, u64 *bar, tl::Site at = tl::here()) {
    emu::bulk_issue(shared, global, bytes, bar, at);
}
inline void bulk_copy_hint(void *shared, const void *global, u32 bytes, u64 *bar, u64, tl::Site at = tl::here()) {
    emu::bulk_issue(shared, global, bytes, bar, at);
}
inline void fence_async() {}
