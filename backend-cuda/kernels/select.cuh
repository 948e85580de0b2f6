// Numbers as keys whose unsigned order is the numbers' order, and counts over a block.
#pragma once
#include "ptx.cuh"

#define NONE 0xffffffffu
#define LANES 0xffffffffu

// Order of all bit patterns but NaN: -inf < .. < -0 < +0 < .. < +inf.
TL_DEVICE u32 order_of(float x) {
    u32 u = __float_as_uint(x);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}
TL_DEVICE float number_of(u32 key) { return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

TL_DEVICE u64 order_of(double x) {
    u64 u = (u64)__double_as_longlong(x);
    return u >> 63 ? ~u : u | 0x8000000000000000ull;
}
TL_DEVICE double number_of(u64 key) {
    return __longlong_as_double((i64)(key >> 63 ? key & 0x7fffffffffffffffull : ~key));
}

#define MINUS_INF __uint_as_float(0xff800000u)
#define NOT_A_NUMBER __uint_as_float(0x7fc00000u)

// Largest over the warp, in every lane.
TL_DEVICE u32 warp_max(u32 x) {
#ifdef TL_EMULATED
    for (int far = 16; far > 0; far /= 2) {
        u32 y = __shfl_xor_sync(LANES, x, far);
        x = y > x ? y : x;
    }
    return x;
#else
    return __reduce_max_sync(LANES, x);
#endif
}
TL_DEVICE u32 warp_add(u32 x) {
#ifdef TL_EMULATED
    for (int far = 16; far > 0; far /= 2) x += __shfl_xor_sync(LANES, x, far);
    return x;
#else
    return __reduce_add_sync(LANES, x);
#endif
}
TL_DEVICE u64 warp_max(u64 x) {
    u32 high = (u32)(x >> 32);
    u32 top = warp_max(high);
    u32 low = warp_max(high == top ? (u32)x : 0u);
    return (u64)top << 32 | low;
}

// Sum over the block, in every thread. `parts` holds 2 x 32 words; `turn` goes up by one from call to call, so that one barrier
// is enough.
TL_DEVICE u32 block_add(u32 x, u32 *parts, u32 &turn) {
    u32 *mine = parts + (turn++ & 1) * 32;
    x = warp_add(x);
    if (threadIdx.x % 32 == 0) mine[threadIdx.x / 32] = x;
    __syncthreads();
    u32 lane = threadIdx.x % 32;
    return warp_add(lane < blockDim.x / 32 ? mine[lane] : 0u);
}

TL_DEVICE u64 block_max(u64 x, u64 *parts) {
    x = warp_max(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    u32 lane = threadIdx.x % 32;
    return warp_max(lane < blockDim.x / 32 ? parts[lane] : 0ull);
}

// Sum of `x` over the threads before this one; `total` receives the sum over the block. `parts` holds 33 numbers.
TL_DEVICE u64 block_before(u64 x, u64 *parts, u64 &total) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 sum = x;
    for (u32 far = 1; far < 32; far *= 2) {
        u64 y = __shfl_up_sync(LANES, sum, far);
        if (lane >= far) sum += y;
    }
    __syncthreads();
    if (lane == 31) parts[warp] = sum;
    __syncthreads();
    u64 before = 0;
    total = 0;
    for (u32 w = 0; w < blockDim.x / 32; w++) {
        if (w < warp) before += parts[w];
        total += parts[w];
    }
    return before + sum - x;
}

// Largest `t` with `count(t)` >= want, where `count` falls as t rises and sums over the block; 0 where even 1 has fewer.
// Ends early at a `t` with at most `spare` more.
template <class Key, class Count> TL_DEVICE Key threshold(u32 want, const Count &count, u32 spare = 0) {
    Key t = 0;
    for (Key bit = (Key)1 << (sizeof(Key) * 8 - 1); bit; bit >>= 1) {
        u32 n = count((Key)(t | bit));
        if (n >= want) {
            t |= bit;
            if (n <= want + spare) break;
        }
    }
    return t;
}

// Sorts a power of two of keys in shared memory, largest first.
TL_DEVICE void sort_descending(u64 *keys, u32 n) {
    for (u32 size = 2; size <= n; size *= 2) {
        for (u32 far = size / 2; far > 0; far /= 2) {
            __syncthreads();
            for (u32 i = threadIdx.x; i < n / 2; i += blockDim.x) {
                u32 a = 2 * i - (i & (far - 1)), b = a + far;
                u64 x = keys[a], y = keys[b];
                bool down = (a & size) == 0;
                if (down ? x < y : x > y) {
                    keys[a] = y;
                    keys[b] = x;
                }
            }
        }
    }
    __syncthreads();
}
