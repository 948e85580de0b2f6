// What the tests of the device launch: arguments, dynamic shared memory, a barrier, and numbers that tell which went wrong.
#include "treeline.cuh"

struct Check {
    const float *x; // [count]
    float *y;       // [count]
    u32 count;
    u32 words; // floats of dynamic shared memory, at least a block's threads
    float scale;
    u32 repeats; // times that the sum is made anew, to take time
};

// y[i] = scale · x[j] + i % threads, where j mirrors i in its block; the last words of shared memory carry the numbers across.
TL_KERNEL(check, Check, 256) {
    TL_SHARED(bytes);
    float *shared = (float *)bytes + (p.words - blockDim.x);
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    shared[threadIdx.x] = i < p.count ? p.x[i] * p.scale : 0.0f;
    __syncthreads();
    float sum = 0.0f;
    for (u32 r = 0; r < p.repeats; r++) sum = shared[blockDim.x - 1 - threadIdx.x] + (float)threadIdx.x + sum * 0.0f;
    if (i < p.count) p.y[i] = sum;
}
