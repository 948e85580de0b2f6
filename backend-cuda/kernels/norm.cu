// Residual addition and RMSNorm in one pass: a row lives in the registers of one block.
//
// WIDTH, VEC, THREADS, ITEMS (vectors of a thread).
#include "vector.cuh"

struct NormArgs {
    float *x;            // [..][WIDTH] residual stream, or none
    const act *add;      // [..][WIDTH] or none
    const act *add2;     // [..][WIDTH] or none
    const float *bias;   // [WIDTH] or none
    const float *weight; // [WIDTH]
    act *out;            // [rows], out_stride apart, or none
    act *tap;            // [..], tap_stride apart, or none
    const u32 *index;    // [rows] or none
    const i32 *seq;      // [..] or none
    u64 out_stride;
    u64 tap_stride;
    float eps;
    u32 unused;
};

#define EACH_VECTOR                                                                                                    \
    _Pragma("unroll") for (int i = 0; i < ITEMS; i++) if (u32 at = (i * THREADS + threadIdx.x) * VEC; at < WIDTH)

TL_DEVICE void add_to(float (&x)[VEC], const float (&more)[VEC]) {
#pragma unroll
    for (int j = 0; j < VEC; j++) x[j] += more[j];
}

// A row is one block's, and with few rows all that counts is the way from memory: what does not depend on the kernel before is
// asked for while that still runs, everything else at once, padding or not.
TL_KERNEL(rms_norm, NormArgs, THREADS) {
    __shared__ float parts[32];
    float v[ITEMS][VEC], w[ITEMS][VEC], more[VEC];
    griddep_launch();
    EACH_VECTOR {
        clear(v[i]);
        clear(w[i]);
        if (p.out) load(p.weight + at, w[i]);
        if (p.bias) load(p.bias + at, v[i]);
    }
    griddep_wait();
    u32 from = p.index ? p.index[blockIdx.x] : blockIdx.x;
    bool real = from != 0xffffffffu;
    if (!real) from = 0;
    if (p.seq && p.seq[from] < 0) real = false;
    u64 row = (u64)from * WIDTH;
    act *out = p.out ? p.out + blockIdx.x * p.out_stride : nullptr;
    act *tap = p.tap ? p.tap + (p.index ? blockIdx.x : from) * p.tap_stride : nullptr;
    float squares = 0.0f;
    EACH_VECTOR {
        if (p.x) {
            load(p.x + row + at, more);
            add_to(v[i], more);
        }
        if (p.add) {
            load(p.add + row + at, more);
            add_to(v[i], more);
        }
        if (p.add2) {
            load(p.add2 + row + at, more);
            add_to(v[i], more);
        }
        if (!real) clear(v[i]);
#pragma unroll
        for (int j = 0; j < VEC; j++) squares += v[i][j] * v[i][j];
    }
    bool added = p.add || p.add2 || p.bias;
    EACH_VECTOR {
        // Rows that are picked by an index may be picked twice: then the stream is only read.
        if (p.x && added && real && !p.index) store(p.x + row + at, v[i]);
        if (tap) store(tap + at, v[i]);
    }
    if (!out) return;
    float scale = 1.0f / sqrtf(block_sum<THREADS>(squares, parts) / WIDTH + p.eps);
    EACH_VECTOR {
#pragma unroll
        for (int j = 0; j < VEC; j++) v[i][j] = real ? v[i][j] * scale * w[i][j] : 0.0f;
        store(out + at, v[i]);
    }
}
