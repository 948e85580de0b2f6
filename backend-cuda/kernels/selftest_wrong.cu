// Kernels with a fault each, which a GPU would pass over in silence or hang on. Never launched on a GPU.
#include "ptx.cuh"

struct Numbers {
    const u32 *in;
    u32 *out;
    u32 n;
    u32 mode;
};

TL_KERNEL(wrong_barrier, Numbers, 64) {
    if (p.mode == 0) {
        // Half of the threads leave before the barrier.
        if (threadIdx.x >= 32) return;
        __syncthreads();
    } else if (p.mode == 1) {
        // Two barriers meet.
        if (threadIdx.x < 32) __syncthreads();
        else __syncthreads_count(1);
    } else if (p.mode == 2) {
        // Some lanes skip a collective.
        if (threadIdx.x % 4 != 0) __syncwarp();
    } else if (p.mode == 3) {
        // Lanes meet at two collectives.
        if (threadIdx.x % 2) __syncwarp();
        else p.out[0] = __ballot_sync(0xffffffffu, 1);
    } else if (p.mode == 4) {
        // A barrier of 96 in a block of 64.
        bar_sync(2, 96);
    } else if (p.mode == 5) {
        // Waits for a block that comes later.
        while (ld_acquire(&p.out[0]) != 77) {
        }
    } else if (p.mode == 6) {
        // A lane that is not in the mask is asked.
        if (threadIdx.x < 16) p.out[0] = __shfl_sync(0xffffu, 1u, 20);
    }
}

TL_KERNEL(wrong_address, Numbers, 32) {
    TL_SHARED(bytes);
    if (threadIdx.x != 5) return;
    if (p.mode == 0) p.out[p.n] = 0;
    if (p.mode == 1) p.out[-1] = 0xffffffffu;
    if (p.mode == 2) p.out[0] = ldg32(p.in + p.n);
    if (p.mode == 3) stg128(p.out + p.n - 1, make_uint4(0, 0, 0, 0));
    if (p.mode == 4) p.out[0] = ldg128(p.in + 1).x;
    if (p.mode == 5) *(u32 *)(u64)(8 + p.n) = 1;
    if (p.mode == 6) *(u32 *)(bytes + 64) = 1;
    if (p.mode == 7) cp_async16(bytes + 56, p.in);
    if (p.mode == 8) p.out[0] = 100 / (p.n - 21);
    if (p.mode == 9) __trap();
    if (p.mode == 10) {
        u64 *bar = (u64 *)bytes;
        mbar_wait(bar, 0);
    }
    if (p.mode == 11) {
        u64 *bar = (u64 *)bytes;
        mbar_init(bar, 1);
        bulk_copy(bytes + 16, p.in, 32, bar);
    }
}

// A sum over neighbours without the barrier that it needs: its result depends on the order of the threads.
TL_KERNEL(wrong_race, Numbers, 64) {
    __shared__ u32 x[64];
    x[threadIdx.x] = threadIdx.x < p.n ? p.in[threadIdx.x] : 0;
    if (p.mode == 1) __syncthreads();
    if (threadIdx.x < p.n) p.out[threadIdx.x] = x[threadIdx.x] + x[(threadIdx.x + 1) % 64];
}
