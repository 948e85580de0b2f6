// Several neighbouring numbers in one access, and sums over a warp or a block.
#pragma once
#include "ptx.cuh"

// What a softmax starts from.
#define MINUS_INFINITY __uint_as_float(0xff800000u)

// Memory of one access of a thread. Words of 32 bits, because the compiler joins only those into one wide access.
template <int BYTES> struct alignas(BYTES < 16 ? BYTES : 16) Raw {
    u32 w[BYTES / 4];
};
template <> struct alignas(2) Raw<2> {
    u16 w[1];
};

template <int N> TL_DEVICE void load(const float *at, float (&x)[N]) {
    Raw<4 * N> raw = *(const Raw<4 * N> *)at;
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = __uint_as_float(raw.w[i]);
}

template <int N> TL_DEVICE void load(const bf16 *at, float (&x)[N]) {
    Raw<2 * N> raw = *(const Raw<2 * N> *)at;
#pragma unroll
    for (int i = 0; i < N; i++) {
        u32 w = raw.w[i / 2];
        x[i] = __uint_as_float(i % 2 ? w & 0xffff0000u : w << 16);
    }
}

template <int N> TL_DEVICE void store(float *at, const float (&x)[N]) {
    Raw<4 * N> raw;
#pragma unroll
    for (int i = 0; i < N; i++) raw.w[i] = __float_as_uint(x[i]);
    *(Raw<4 * N> *)at = raw;
}

template <int N> TL_DEVICE void store(bf16 *at, const float (&x)[N]) {
    Raw<2 * N> raw;
#pragma unroll
    for (int i = 0; i < N / 2; i++) raw.w[i] = pack_bf16x2(x[2 * i], x[2 * i + 1]);
    *(Raw<2 * N> *)at = raw;
}
TL_DEVICE void store(bf16 *at, const float (&x)[1]) { *at = to_bf16(x[0]); }

template <int N> TL_DEVICE void clear(float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = 0.0f;
}

// Sum over the 32 lanes, the same bits in each.
TL_DEVICE float warp_sum(float x) {
#pragma unroll
    for (int far = 16; far > 0; far /= 2) x += __shfl_xor_sync(0xffffffffu, x, far);
    return x;
}

// Sum over a block of WHOLE threads (whole warps), in every thread. `parts` holds 32 numbers and is free again after the next
// barrier.
template <int WHOLE> TL_DEVICE float block_sum(float x, float *parts) {
    x = warp_sum(x);
    if (WHOLE == 32) return x;
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    // Four chains of additions, not one, for its length is what everybody waits for.
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < WHOLE / 32; i++) sums[i % 4] += parts[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}
