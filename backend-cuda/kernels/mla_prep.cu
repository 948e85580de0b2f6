// What stands between the products of latent attention and its cache: norms of the two latents, rotation, scale.
//
// Q_RANK (0 = queries are not compressed), KV_LORA, ROPE, INTERLEAVED, and of one access: VEC numbers, PAIRS pairs;
// mla_latent: THREADS; mla_query: HEADS, NOPE.
#include "rotate.cuh"

#define HALF (ROPE / 2)

#ifdef THREADS
struct MlaLatentArgs {
    const act *down;       // [rows], stride apart: query latent, key/value latent, rotary key
    const float *q_norm;   // [Q_RANK]
    const float *kv_norm;  // [KV_LORA]
    const float *cos;      // [positions][ROPE / 2]
    const float *sin;
    const u32 *position;   // [rows]
    const u32 *kv_row;     // [rows]
    const i32 *seq;        // [rows] or none
    act *q_low;            // [rows][Q_RANK]
    act *cache;            // [cache rows][KV_LORA + ROPE]
    u64 stride;
    float eps;
    u32 unused;
};

// RMSNorm of WIDE numbers by the whole block, to row `*to_row` of the cache at `to`, or to `to` itself. Weights are asked for
// while the kernel before still runs.
template <int WIDE>
TL_DEVICE void norm_row(const act *from, const float *weight, float eps, const i32 *seq, const u32 *to_row, act *to,
                        float *parts) {
    const int items = (WIDE + THREADS * VEC - 1) / (THREADS * VEC);
    float v[items][VEC], w[items][VEC];
#pragma unroll
    for (int i = 0; i < items; i++) {
        u32 at = (i * THREADS + threadIdx.x) * VEC;
        clear(v[i]);
        clear(w[i]);
        if (at < WIDE) load(weight + at, w[i]);
    }
    griddep_wait();
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < items; i++) {
        u32 at = (i * THREADS + threadIdx.x) * VEC;
        if (at < WIDE) load(from + at, v[i]);
#pragma unroll
        for (int j = 0; j < VEC; j++) squares += v[i][j] * v[i][j];
    }
    bool real = !seq || *seq >= 0;
    if (to_row) to += (u64)*to_row * (KV_LORA + ROPE);
    float scale = 1.0f / sqrtf(block_sum<THREADS>(squares, parts) / WIDE + eps);
#pragma unroll
    for (int i = 0; i < items; i++) {
        u32 at = (i * THREADS + threadIdx.x) * VEC;
#pragma unroll
        for (int j = 0; j < VEC; j++) v[i][j] = real ? v[i][j] * scale * w[i][j] : 0.0f;
        if (at < WIDE) store(to + at, v[i]);
    }
}

// Block (row, 0) norms the latent, (row, 1) turns the key, (row, 2) norms the query's latent.
TL_KERNEL(mla_latent, MlaLatentArgs, THREADS) {
    __shared__ float parts[32];
    griddep_launch();
    u32 row = blockIdx.x;
    const i32 *seq = p.seq ? p.seq + row : nullptr;
    const act *down = p.down + row * p.stride;
    if (blockIdx.y == 0) {
        norm_row<KV_LORA>(down + Q_RANK, p.kv_norm, p.eps, seq, p.kv_row + row, p.cache, parts);
    } else if (blockIdx.y == 1) {
        griddep_wait();
        u64 angles = (u64)p.position[row] * HALF;
        act *key = p.cache + (u64)p.kv_row[row] * (KV_LORA + ROPE) + KV_LORA;
        for (u32 pair = threadIdx.x * PAIRS; pair < HALF; pair += THREADS * PAIRS) {
            float a[PAIRS], b[PAIRS];
            load_pairs<HALF, INTERLEAVED>(down + Q_RANK + KV_LORA, pair, a, b);
            rotate(a, b, p.cos + angles + pair, p.sin + angles + pair, 1.0f);
            if (seq && *seq < 0) clear(a), clear(b);
            store_pairs<HALF, INTERLEAVED>(key, pair, a, b);
        }
    }
#if Q_RANK > 0
    if (blockIdx.y == 2) {
        norm_row<Q_RANK>(down, p.q_norm, p.eps, seq, nullptr, p.q_low + (u64)row * Q_RANK, parts);
    }
#endif
}
#endif

#ifdef HEADS
struct MlaQueryArgs {
    act *q;               // [rows][HEADS][NOPE + ROPE]; the first NOPE of a head are scaled in place
    act *absorbed;        // [rows][HEADS][KV_LORA + ROPE]; the last ROPE of a head are written
    const float *cos;     // [positions][ROPE / 2]
    const float *sin;
    const u32 *position;  // [rows]
    const i32 *seq;       // [rows] or none
    u32 rows;
    float scale;
};

// One warp a head.
TL_KERNEL(mla_query, MlaQueryArgs, 128) {
    griddep_launch();
    griddep_wait();
    u32 item = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 row = item / HEADS;
    if (row >= p.rows) return;
    bool real = !p.seq || p.seq[row] >= 0;
    act *q = p.q + (u64)item * (NOPE + ROPE);
    act *tail = p.absorbed + (u64)item * (KV_LORA + ROPE) + KV_LORA;
    for (u32 at = lane * VEC; at < NOPE; at += 32 * VEC) {
        float x[VEC];
        clear(x);
        if (real) {
            load(q + at, x);
            for (int j = 0; j < VEC; j++) x[j] *= p.scale;
        }
        store(q + at, x);
    }
    u64 angles = (u64)p.position[row] * HALF;
    for (u32 pair = lane * PAIRS; pair < HALF; pair += 32 * PAIRS) {
        float a[PAIRS], b[PAIRS];
        clear(a);
        clear(b);
        if (real) {
            load_pairs<HALF, INTERLEAVED>(q + NOPE, pair, a, b);
            rotate(a, b, p.cos + angles + pair, p.sin + angles + pair, p.scale);
        }
        store_pairs<HALF, INTERLEAVED>(tail, pair, a, b);
    }
}
#endif
