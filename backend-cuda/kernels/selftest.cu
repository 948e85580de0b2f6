// Small kernels that compare the emulator with a GPU, one language feature each.
#include "ptx.cuh"

struct Numbers {
    const u32 *in;
    u32 *out;
    u32 n;
    u32 mode;
};

// out[block] = sum of the block's 1024 numbers: a tree in shared memory, then a warp's shuffles.
TL_KERNEL(selftest_sum, Numbers, 256) {
    __shared__ u32 part[256];
    u32 sum = 0;
    for (u32 i = threadIdx.x; i < 1024; i += blockDim.x) {
        u32 at = blockIdx.x * 1024 + i;
        sum += at < p.n ? p.in[at] : 0;
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    for (u32 half = 128; half >= 32; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x < 32) {
        sum = part[threadIdx.x];
        for (int with = 16; with > 0; with /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, with);
        if (threadIdx.x == 0) p.out[blockIdx.x] = sum;
    }
}
