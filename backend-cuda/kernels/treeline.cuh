// What every kernel file includes first. One source serves NVRTC (no headers of the toolkit are needed) and the emulator.
//
// A file is specialised by defines; `ACT_BF16` makes activations and weights bfloat16, else they are float.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

#ifdef TL_EMULATED
#include "emulate.cuh"
#else
#define TL_DEVICE __device__ __forceinline__
// A kernel with one argument, `const Args &p` (a struct, passed by value). `threads` is the most threads of a block.
#define TL_KERNEL(name, Args, threads)                                                                                 \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Args p)
// The same, with at least `blocks` resident blocks a multiprocessor.
#define TL_KERNEL_RESIDENT(name, Args, threads, blocks)                                                                \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ Args p)
// Dynamic shared memory, 128-byte aligned: `TL_SHARED(bytes)` declares `u8 *bytes`.
#define TL_SHARED(name) extern __shared__ __align__(128) u8 name[]
#endif

// bfloat16 by its bits; arithmetic happens in float.
struct bf16 {
    u16 bits;
};

TL_DEVICE float to_float(float x) { return x; }
TL_DEVICE float to_float(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

// Round to nearest even; NaN stays NaN.
TL_DEVICE bf16 to_bf16(float x) {
    u32 u = __float_as_uint(x);
    bf16 out;
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        out.bits = (u16)((u >> 16) | 0x40u);
    } else {
        out.bits = (u16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
    return out;
}

#ifdef ACT_BF16
typedef bf16 act;
TL_DEVICE act to_act(float x) { return to_bf16(x); }
#else
typedef float act;
TL_DEVICE act to_act(float x) { return x; }
#endif
