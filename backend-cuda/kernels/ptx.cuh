// Every PTX instruction that kernels use, one function each. `emulate_ptx.cuh` has the same functions for the host.
//
// Needs compute capability 9.0; nothing here is bound to one architecture. `wgmma.cuh` has what exists on Hopper alone.
// Addresses are generic: functions that take shared memory convert them.
#pragma once
#include "treeline.cuh"

#ifdef TL_EMULATED
#include "emulate_ptx.cuh"
#else

// Architecture-specific code is chosen by these, so that a file says which chip it means.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TL_SM90A 1
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define TL_SM100 1
#endif

// Address of shared memory as instructions take it.
TL_DEVICE u32 shared_addr(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// ---- Loads and stores of global memory ----------------------------------------------------------------------------------

// Loads of memory that no thread writes while the kernel runs. 16, 8 or 4 bytes, aligned to their size.
TL_DEVICE uint4 ldg128(const void *p) {
    uint4 v;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
TL_DEVICE uint2 ldg64(const void *p) {
    uint2 v;
    asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}
TL_DEVICE u32 ldg32(const void *p) {
    u32 v;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}

// The same for data that is read once (weights): it does not displace what L1 holds.
TL_DEVICE uint4 ldg128_stream(const void *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}
TL_DEVICE uint2 ldg64_stream(const void *p) {
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}
TL_DEVICE u32 ldg32_stream(const void *p) {
    u32 v;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}

// What L2 does with a line, for the functions that end in `_hint`.
TL_DEVICE u64 l2_evict_first() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
TL_DEVICE u64 l2_evict_last() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
TL_DEVICE uint4 ldg128_hint(const void *p, u64 policy) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p), "l"(policy));
    return v;
}

TL_DEVICE void stg128(void *p, uint4 v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
TL_DEVICE void stg64(void *p, uint2 v) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(v.x), "r"(v.y) : "memory");
}

// Brings the line of `p` (or `bytes`, a multiple of 16, from a 16-byte aligned `p`) into L2.
TL_DEVICE void prefetch_l2(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
TL_DEVICE void prefetch_l2_bulk(const void *p, u32 bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes));
}

// ---- Asynchronous copies, global to shared ------------------------------------------------------------------------------

TL_DEVICE void cp_async16(void *shared, const void *global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_addr(shared)), "l"(global) : "memory");
}
TL_DEVICE void cp_async16_hint(void *shared, const void *global, u64 policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared_addr(shared)), "l"(global),
                 "l"(policy)
                 : "memory");
}
// Writes zeros instead, and does not read `global`, where `valid` is false.
TL_DEVICE void cp_async16_zfill(void *shared, const void *global, bool valid) {
    u32 bytes = valid ? 16u : 0u;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_addr(shared)), "l"(global), "r"(bytes)
                 : "memory");
}
TL_DEVICE void cp_async8(void *shared, const void *global) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared_addr(shared)), "l"(global) : "memory");
}
TL_DEVICE void cp_async4(void *shared, const void *global) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_addr(shared)), "l"(global) : "memory");
}
// Copies form groups; `cp_async_wait<N>` waits for all but the newest N groups of this thread. Other threads see the data
// after a barrier.
TL_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int tl_n> TL_DEVICE void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(tl_n) : "memory"); }

// ---- Tensor cores -------------------------------------------------------------------------------------------------------

// Matrices of 8 rows x 16 bytes in shared memory; lane i of each group of 8 gives the (16-byte aligned) address of a row, group
// g that of matrix g (x2: lanes 0..15). Lane t receives of each matrix: row t / 4, 2-byte elements 2 (t % 4) and the next;
// with `_trans` of the transposed matrix.
TL_DEVICE void ldmatrix_x4(u32 (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_addr(row))
                 : "memory");
}
TL_DEVICE void ldmatrix_x4_trans(u32 (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_addr(row))
                 : "memory");
}
TL_DEVICE void ldmatrix_x2(u32 (&r)[2], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_addr(row))
                 : "memory");
}
TL_DEVICE void ldmatrix_x2_trans(u32 (&r)[2], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_addr(row))
                 : "memory");
}

// d += a b: a is 16 x 16 (row-major fragments), b is 16 x 8 (column-major fragments), bf16; d is 16 x 8, f32.
// With g = lane / 4, t = lane % 4, elements (row, column), low half first:
// a[0] = (g, 2t..), a[1] = (g + 8, 2t..), a[2] = (g, 2t + 8..), a[3] = (g + 8, 2t + 8..); b[0] = (2t.., g), b[1] = (2t + 8.., g);
// d[0], d[1] = (g, 2t), (g, 2t + 1); d[2], d[3] = (g + 8, 2t), (g + 8, 2t + 1).
TL_DEVICE void mma_bf16_16816(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
TL_DEVICE void mma_bf16_16816(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) { mma_bf16_16816(d, a, b[0], b[1]); }

// ---- Arithmetic ---------------------------------------------------------------------------------------------------------

// Two bf16 in a word, `lo` in the low half, rounded to nearest even.
TL_DEVICE u32 pack_bf16x2(float lo, float hi) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
// a b + c on both halves, rounded once.
TL_DEVICE u32 bf16x2_fma(u32 a, u32 b, u32 c) {
    u32 r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
TL_DEVICE u32 bf16x2_mul(u32 a, u32 b) {
    u32 r;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
TL_DEVICE u32 bf16x2_add(u32 a, u32 b) {
    u32 r;
    asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
TL_DEVICE u32 bf16x2_sub(u32 a, u32 b) {
    u32 r;
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

// Any function of three bits, on each bit: LUT is the function applied to (0xF0, 0xCC, 0xAA).
template <int tl_lut> TL_DEVICE u32 lop3(u32 a, u32 b, u32 c) {
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(c), "n"(tl_lut));
    return r;
}
// Byte i of the result is byte (selector >> 4 i) & 7 of the eight bytes a (0..3), b (4..7).
TL_DEVICE u32 prmt(u32 a, u32 b, u32 selector) {
    u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
    return r;
}

// 2^x, log2 x, 1 / x, 1 / sqrt(x), with a relative error near 2^-22; subnormals count as 0.
TL_DEVICE float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
TL_DEVICE float log2_approx(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
TL_DEVICE float rcp_approx(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
TL_DEVICE float rsqrt_approx(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#include "ptx_sync.cuh"
#endif

// Halves of a word of two bf16.
TL_DEVICE float bf16_lo(u32 x) { return __uint_as_float(x << 16); }
TL_DEVICE float bf16_hi(u32 x) { return __uint_as_float(x & 0xffff0000u); }
