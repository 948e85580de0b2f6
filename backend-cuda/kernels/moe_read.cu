// Reads memory as fast as plain loads can: what the bandwidth of the expert kernels is measured against.
#include "ptx.cuh"

#define THREADS 512
#define UNROLL 8

struct ReadArgs {
    const u8 *from;
    u32 *out; // written only so that the reads are not removed
    u64 bytes; // a multiple of THREADS * UNROLL * 16
};

TL_KERNEL(moe_read, ReadArgs, THREADS) {
    const u64 piece = THREADS * UNROLL * 16;
    u32 sum = 0;
    for (u64 at = blockIdx.x * piece; at < p.bytes; at += gridDim.x * piece) {
        uint4 v[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; i++) v[i] = ldg128_stream(p.from + at + (i * THREADS + threadIdx.x) * 16);
#pragma unroll
        for (int i = 0; i < UNROLL; i++) sum ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
    }
    if (sum == 0x12345678u) *p.out = sum;
}
