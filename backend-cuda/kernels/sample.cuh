// What the sampling kernels share.
//
// VOCAB, CHUNKS (of CHUNK logits a row), ALIGNED (whether rows begin at 16 bytes).
#pragma once
#include "select.cuh"


#define THREADS 256
#define QUADS 8
#define LOG2E 1.4426950408889634f
#define CHUNK (THREADS * QUADS * 4)

struct SeqSampling {
    u64 seed;
    u64 request;
    float temperature;
    u32 top_k;
    float top_p;
    u32 unused;
};

struct SampleArgs {
    const float *logits;         // row stride `stride`
    const u32 *source;           // [rows] row of the pass of each row of logits, NONE = none; or null for the same
    const i32 *seq;              // [rows of the pass]
    const u32 *position;         // [rows of the pass]
    const SeqSampling *sampling; // [seqs]
    u64 *top;                    // [rows][CHUNKS] largest logit's key above ~token
    double *value;               // [rows][CHUNKS] best noisy score
    u32 *drawn;                  // [rows][CHUNKS] its token
    u64 *last_key;               // [rows] scores with a larger key are kept,
    u32 *last_token;             // [rows] those with this key up to this token
    u64 *bin_mass;               // [rows][BINS] mass of the scores of each bin
    u32 *bin_count;              // [rows][BINS] their number
    u32 *out;                    // [rows] token, NONE = unusable row or padding
    u64 stride;
    u32 rows;
    u32 unused;
};

// A key no number has: the row is unusable.
#define UNUSABLE 0xffffffffffffffffull

struct Row {
    const float *logits;
    u32 seq, position; // seq NONE = padding
};

TL_DEVICE Row row_of(const SampleArgs &p, u32 row) {
    u32 from = p.source ? p.source[row] : row;
    if (from == NONE || p.seq[from] < 0) return Row{nullptr, NONE, 0};
    return Row{p.logits + (u64)row * p.stride, (u32)p.seq[from], p.position[from]};
}

TL_DEVICE void quad(const float *logits, u32 token, float (&x)[4]) {
    if (ALIGNED && token + 4 <= VOCAB) {
        uint4 w = ldg128(logits + token);
        x[0] = __uint_as_float(w.x), x[1] = __uint_as_float(w.y);
        x[2] = __uint_as_float(w.z), x[3] = __uint_as_float(w.w);
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) x[j] = token + j < VOCAB ? logits[token + j] : MINUS_INF;
    }
}

// Key of the row's argmax; 0 or UNUSABLE where there is none. For one whole warp.
TL_DEVICE u64 row_top(const SampleArgs &p, u32 row) {
    u64 key = 0;
    for (u32 c = threadIdx.x % 32; c < CHUNKS; c += 32) {
        u64 other = p.top[(u64)row * CHUNKS + c];
        key = other > key ? other : key;
    }
    return warp_max(key);
}

TL_DEVICE bool usable(u64 key) { return key != 0 && key != UNUSABLE; }
TL_DEVICE u32 token_of(u64 key) { return ~(u32)key; }

// (logit - max) / temperature, as the host's f64 has it.
struct Score {
    double max, scale;
    TL_DEVICE double operator()(float x) const { return ((double)x - max) * scale; }
};

// What is kept of a row's order (score down, then token up): larger keys, and `key` itself up to `token`.
struct End {
    u64 key;
    u32 token;
    TL_DEVICE bool keeps(u64 k, u32 t) const { return k > key || (k == key && t <= token); }
};

#define BINS 2048
