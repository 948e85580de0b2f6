// The functions of `ptx.cuh` for the host: what they compute, and what they demand of addresses.
//
// An asynchronous copy is taken at its two extremes: its destination is poisoned at once (whoever still reads the old content
// sees it) and filled only by the wait that covers it (whoever does not wait sees it too).
#pragma once
#include "treeline.cuh"

// Shared memory as instructions address it: what is static first, then what is dynamic, aligned to 128 bytes and no more.
namespace emu {
inline u32 dynamic_addr() { return ((u32)(__stop_tl_shared - __start_tl_shared) + 1023u) / 1024u * 1024u + 128u; }
inline u8 *shared_at(u32 addr) {
    return addr < dynamic_addr() ? __start_tl_shared + addr : tl::dynamic_shared + (addr - dynamic_addr());
}
} // namespace emu
inline u32 shared_addr(const void *p) {
    const u8 *c = (const u8 *)p;
    bool fixed = c >= __start_tl_shared && c < __stop_tl_shared;
    return fixed ? (u32)(c - __start_tl_shared) : emu::dynamic_addr() + (u32)(c - tl::dynamic_shared);
}

// ---- Loads and stores of global memory ----------------------------------------------------------------------------------

template <class T> inline T tl_load(const void *p, tl::Site at) {
    tl::check_global(p, sizeof(T), sizeof(T), at);
    return *(const T *)p;
}
inline uint4 ldg128(const void *p, tl::Site at = tl::here()) { return tl_load<uint4>(p, at); }
inline uint2 ldg64(const void *p, tl::Site at = tl::here()) { return tl_load<uint2>(p, at); }
inline u32 ldg32(const void *p, tl::Site at = tl::here()) { return tl_load<u32>(p, at); }
inline uint4 ldg128_stream(const void *p, tl::Site at = tl::here()) { return tl_load<uint4>(p, at); }
inline uint2 ldg64_stream(const void *p, tl::Site at = tl::here()) { return tl_load<uint2>(p, at); }
inline u32 ldg32_stream(const void *p, tl::Site at = tl::here()) { return tl_load<u32>(p, at); }
inline u64 l2_evict_first() { return 1; }
inline u64 l2_evict_last() { return 2; }
inline uint4 ldg128_hint(const void *p, u64, tl::Site at = tl::here()) { return tl_load<uint4>(p, at); }
inline void stg128(void *p, uint4 v, tl::Site at = tl::here()) {
    tl::check_global(p, 16, 16, at);
    *(uint4 *)p = v;
}
inline void stg64(void *p, uint2 v, tl::Site at = tl::here()) {
    tl::check_global(p, 8, 8, at);
    *(uint2 *)p = v;
}
inline void prefetch_l2(const void *) {}
inline void prefetch_l2_bulk(const void *p, u32 bytes, tl::Site at = tl::here()) {
    if (bytes % 16) tl::fail(at, "a bulk prefetch of %u bytes", bytes);
    tl::check_global(p, bytes, 16, at);
}

// ---- Asynchronous copies, global to shared ------------------------------------------------------------------------------

namespace emu {
using namespace tl;

inline void issue(void *to, const void *from, unsigned bytes, unsigned from_bytes, Site at) {
    check_shared(to, bytes, bytes, at);
    if (from_bytes) check_global(from, from_bytes, bytes, at);
    Fiber *f = cur;
    if (f->last == f->room) {
        f->room = f->room ? f->room * 2 : 64;
        f->copies = (Copy *)realloc(f->copies, f->room * sizeof(Copy));
    }
    f->copies[f->last++] = Copy{to, from, bytes, from_bytes, f->groups};
    memset(to, 0xFF, bytes);
}
// Completes the groups of this thread but for the newest `left`.
inline void complete(unsigned left) {
    Fiber *f = cur;
    while (f->first < f->last) {
        const Copy &c = f->copies[f->first];
        if (c.group + left >= f->groups) return;
        memcpy(c.to, c.from, c.from_bytes);
        memset((char *)c.to + c.from_bytes, 0, c.bytes - c.from_bytes);
        f->first++;
    }
    f->first = f->last = 0;
}
} // namespace emu

inline void cp_async16(void *shared, const void *global, tl::Site at = tl::here()) { emu::issue(shared, global, 16, 16, at); }
inline void cp_async16_hint(void *shared, const void *global, u64, tl::Site at = tl::here()) {
    emu::issue(shared, global, 16, 16, at);
}
inline void cp_async16_zfill(void *shared, const void *global, bool valid, tl::Site at = tl::here()) {
    emu::issue(shared, global, 16, valid ? 16 : 0, at);
}
inline void cp_async8(void *shared, const void *global, tl::Site at = tl::here()) { emu::issue(shared, global, 8, 8, at); }
inline void cp_async4(void *shared, const void *global, tl::Site at = tl::here()) { emu::issue(shared, global, 4, 4, at); }
inline void cp_async_commit() { tl::cur->groups++; }
template <int tl_n> inline void cp_async_wait() { emu::complete(tl_n); }

// ---- Tensor cores -------------------------------------------------------------------------------------------------------

namespace emu {
using namespace tl;

template <int tl_n> struct Matrices {
    const u8 *row;
    u32 out[tl_n];
    Site at;
};
template <int tl_n, bool tl_trans> inline void load_matrices(u32 (&r)[tl_n], const void *row, Site at) {
    Matrices<tl_n> mine{(const u8 *)row, {}, at};
    collect(~0u, at, &mine, [](Matrices<tl_n> **all, unsigned lanes) {
        if (lanes != ~0u) fail(all[__builtin_ctz(lanes)]->at, "ldmatrix in a warp that is not whole");
        for (unsigned m = 0; m < tl_n; m++) {
            const u16 *rows[8];
            for (unsigned i = 0; i < 8; i++) {
                check_shared(all[m * 8 + i]->row, 16, 16, all[m * 8 + i]->at);
                rows[i] = (const u16 *)all[m * 8 + i]->row;
            }
            for (unsigned lane = 0; lane < 32; lane++) {
                unsigned g = lane / 4, t = lane % 4 * 2;
                u32 low = tl_trans ? rows[t][g] : rows[g][t], high = tl_trans ? rows[t + 1][g] : rows[g][t + 1];
                all[lane]->out[m] = low | high << 16;
            }
        }
    });
    for (int m = 0; m < tl_n; m++) r[m] = mine.out[m];
}

struct Mma {
    u32 a[4], b[2];
    float d[4];
};
inline float half_of(u32 word, unsigned odd) { return __uint_as_float(odd ? word & 0xffff0000u : word << 16); }
inline void mma_16816(Mma **all, unsigned lanes) {
    if (lanes != ~0u) stop("mma in a warp that is not whole");
    float a[16][16], b[16][8], d[16][8];
    for (unsigned lane = 0; lane < 32; lane++) {
        const Mma &m = *all[lane];
        unsigned g = lane / 4, t = lane % 4 * 2;
        for (unsigned odd = 0; odd < 2; odd++) {
            a[g][t + odd] = half_of(m.a[0], odd);
            a[g + 8][t + odd] = half_of(m.a[1], odd);
            a[g][t + 8 + odd] = half_of(m.a[2], odd);
            a[g + 8][t + 8 + odd] = half_of(m.a[3], odd);
            b[t + odd][g] = half_of(m.b[0], odd);
            b[t + 8 + odd][g] = half_of(m.b[1], odd);
            d[g][t + odd] = m.d[odd];
            d[g + 8][t + odd] = m.d[2 + odd];
        }
    }
    for (unsigned i = 0; i < 16; i++) {
        float sum[8] = {};
        for (unsigned k = 0; k < 16; k++) {
            for (unsigned j = 0; j < 8; j++) sum[j] += a[i][k] * b[k][j];
        }
        for (unsigned j = 0; j < 8; j++) d[i][j] += sum[j];
    }
    for (unsigned lane = 0; lane < 32; lane++) {
        Mma &m = *all[lane];
        unsigned g = lane / 4, t = lane % 4 * 2;
        for (unsigned odd = 0; odd < 2; odd++) {
            m.d[odd] = d[g][t + odd];
            m.d[2 + odd] = d[g + 8][t + odd];
        }
    }
}
} // namespace emu

inline void ldmatrix_x4(u32 (&r)[4], const void *row, tl::Site at = tl::here()) { emu::load_matrices<4, false>(r, row, at); }
inline void ldmatrix_x4_trans(u32 (&r)[4], const void *row, tl::Site at = tl::here()) {
    emu::load_matrices<4, true>(r, row, at);
}
inline void ldmatrix_x2(u32 (&r)[2], const void *row, tl::Site at = tl::here()) { emu::load_matrices<2, false>(r, row, at); }
inline void ldmatrix_x2_trans(u32 (&r)[2], const void *row, tl::Site at = tl::here()) {
    emu::load_matrices<2, true>(r, row, at);
}
inline void mma_bf16_16816(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, tl::Site at = tl::here()) {
    emu::Mma mine{{a[0], a[1], a[2], a[3]}, {b0, b1}, {d[0], d[1], d[2], d[3]}};
    emu::collect(~0u, at, &mine, emu::mma_16816);
    for (int i = 0; i < 4; i++) d[i] = mine.d[i];
}
inline void mma_bf16_16816(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], tl::Site at = tl::here()) {
    mma_bf16_16816(d, a, b[0], b[1], at);
}

#include "emulate_sync.cuh"
