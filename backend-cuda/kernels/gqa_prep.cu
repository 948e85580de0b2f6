// From the product of queries, keys and values to rotated queries and the cache: bias, per-head RMSNorm, rotation, scale.
//
// HEADS (0 = keys and values alone), KV_HEADS, DIM, PAIRS (pairs of one access), INTERLEAVED.
#include "rotate.cuh"

struct GqaPrepArgs {
    const act *qkv;       // [rows], stride apart: queries, keys, values, each [heads][DIM]
    const float *bias;    // [HEADS + 2 · KV_HEADS][DIM] or none
    const float *q_norm;  // [DIM] or none
    const float *k_norm;  // [DIM] or none
    const float *cos;     // [positions][DIM / 2]
    const float *sin;
    const u32 *position;  // [rows]
    const u32 *kv_row;    // [rows]
    const i32 *seq;       // [rows] or none
    act *q;               // [rows][HEADS][DIM]
    act *k_cache;         // [cache rows][KV_HEADS][DIM]
    act *v_cache;
    u64 stride;
    u32 rows;
    float eps;
    float scale;
    u32 unused;
};

#define HALF (DIM / 2)
#define GROUPS (HALF / PAIRS)
#define ITEMS ((GROUPS + 31) / 32)
#define EACH_GROUP                                                                                                     \
    _Pragma("unroll") for (int i = 0; i < ITEMS; i++) if (u32 pair = (i * 32 + threadIdx.x % 32) * PAIRS; pair < HALF)

// One warp a head.
TL_KERNEL(gqa_prep, GqaPrepArgs, 128) {
    griddep_launch();
    u32 item = blockIdx.x * 4 + threadIdx.x / 32;
    u32 row = item / (HEADS + 2 * KV_HEADS);
    u32 head = item % (HEADS + 2 * KV_HEADS);
    if (row >= p.rows) {
        griddep_wait();
        return;
    }
    bool query = head < HEADS, key = !query && head < HEADS + KV_HEADS;
    const float *weight = query ? p.q_norm : key ? p.k_norm : nullptr;
    float a[ITEMS][PAIRS], b[ITEMS][PAIRS], c[ITEMS][PAIRS], d[ITEMS][PAIRS];
    EACH_GROUP {
        clear(a[i]), clear(b[i]), clear(c[i]), clear(d[i]);
        if (p.bias) load_pairs<HALF, INTERLEAVED>(p.bias + (u64)head * DIM, pair, a[i], b[i]);
        if (weight) load_pairs<HALF, INTERLEAVED>(weight, pair, c[i], d[i]);
    }
    griddep_wait();
    bool real = !p.seq || p.seq[row] >= 0;
    u32 kv_row = p.kv_row[row], position = p.position[row];
    const act *from = p.qkv + row * p.stride + (u64)head * DIM;
    float squares = 0.0f;
    EACH_GROUP {
        float x[PAIRS], y[PAIRS];
        load_pairs<HALF, INTERLEAVED>(from, pair, x, y);
#pragma unroll
        for (int j = 0; j < PAIRS; j++) {
            a[i][j] += x[j], b[i][j] += y[j];
            squares += a[i][j] * a[i][j] + b[i][j] * b[i][j];
        }
    }
    if (weight) {
        float scale = 1.0f / sqrtf(warp_sum(squares) / DIM + p.eps);
        EACH_GROUP {
#pragma unroll
            for (int j = 0; j < PAIRS; j++) a[i][j] = a[i][j] * scale * c[i][j], b[i][j] = b[i][j] * scale * d[i][j];
        }
    }
    act *to;
    if (query) {
        to = p.q + ((u64)row * HEADS + head) * DIM;
    } else {
        u32 kv_head = head - HEADS - (key ? 0 : KV_HEADS);
        to = (key ? p.k_cache : p.v_cache) + ((u64)kv_row * KV_HEADS + kv_head) * DIM;
    }
    u64 angles = (u64)position * HALF;
    EACH_GROUP {
        if (query || key) rotate(a[i], b[i], p.cos + angles + pair, p.sin + angles + pair, query ? p.scale : 1.0f);
        if (!real) clear(a[i]), clear(b[i]);
        store_pairs<HALF, INTERLEAVED>(to, pair, a[i], b[i]);
    }
}
