// Synthetic weights: uniform numbers that are a function of their index alone.
#include "treeline.cuh"

struct Fill {
    act *out;
    u64 count;
    u64 seed;
    float scale;
    u32 pad;
};

TL_KERNEL(fill, Fill, 256) {
    u64 base = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    for (int i = 0; i < 8; i++) {
        u64 at = base + i;
        if (at >= p.count) return;
        // A 64-bit mix of the index (the finaliser of SplitMix64).
        u64 z = p.seed + at * 0x9E3779B97F4A7C15ull;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        z ^= z >> 31;
        float unit = (float)(i32)(u32)(z >> 32) * (1.0f / 2147483648.0f);
        p.out[at] = to_act(unit * p.scale);
    }
}
