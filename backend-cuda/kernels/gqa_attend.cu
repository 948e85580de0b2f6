// Grouped-query attention of tree rows over the cache, for any head width and both types of activations.
//
// HEADS, KV_HEADS, DIM, VEC. The reference form: one warp a row and head, softmax on the fly.
#include "rows.cuh"
#include "vector.cuh"

struct GqaAttendArgs {
    Rows rows;
    const act *q; // [rows][HEADS][DIM], scaled
    const act *k; // [cache rows][KV_HEADS][DIM]
    const act *v;
    act *out;     // [rows][HEADS][DIM]
    u32 window;   // the query at position p sees positions > p - window; 0 = all
    u32 window_tail;
    u32 count;    // rows
    u32 unused;
};

#define WARPS 4
#define ITEMS ((DIM + 31) / 32)

TL_KERNEL(gqa_attend, GqaAttendArgs, 32 * WARPS) {
    __shared__ float queries[WARPS][DIM];
    __shared__ float weights[WARPS][32];
    griddep_launch();
    griddep_wait();
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 item = blockIdx.x * WARPS + warp;
    u32 row = item / HEADS, head = item % HEADS;
    if (row >= p.count) return;
    act *out = p.out + (u64)item * DIM;
    i32 s = p.rows.seq[row];
    if (s < 0) {
        for (u32 d = lane; d < DIM; d += 32) out[d] = to_act(0.0f);
        return;
    }
    float *query = queries[warp], *weight = weights[warp];
    for (u32 d = lane; d < DIM; d += 32) query[d] = to_float(p.q[(u64)item * DIM + d]);
    __syncwarp();

    u32 start = p.rows.seq_start[s], end = start + p.rows.seq_rows[s], begin = p.rows.seq_begin[s];
    u32 position = p.rows.position[row];
    const u32 *mask = p.rows.mask + (u64)row * MASK_WORDS;
    // A window ends below start + rows, so a window that reaches into the past begins below it too.
    u32 low = p.window && position >= p.window ? min(position - p.window + 1, start) : 0;
    u64 first = ((u64)p.rows.seq_kv[s] * KV_HEADS + head / (HEADS / KV_HEADS)) * DIM;
    const act *keys = p.k + first, *values = p.v + first;
    const u64 stride = (u64)KV_HEADS * DIM;

    float acc[ITEMS];
    clear(acc);
    float top = MINUS_INFINITY, sum = 0.0f;
    for (u32 at = low; at < end; at += 32) {
        u32 key = at + lane;
        bool visible = key < start;
        if (key >= start && key < end) {
            u32 j = key - start;
            visible = mask[j / 32] >> (j % 32) & 1;
            if (visible && p.window && p.window_tail) visible = p.rows.position[begin + j] + p.window > position;
        }
        float score = MINUS_INFINITY;
        if (visible) {
            score = 0.0f;
            for (u32 d = 0; d < DIM; d += VEC) {
                float k[VEC];
                load(keys + key * stride + d, k);
#pragma unroll
                for (int i = 0; i < VEC; i++) score += query[d + i] * k[i];
            }
        }
        float most = score;
#pragma unroll
        for (int far = 16; far > 0; far /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, far));
        most = fmaxf(top, most);
        // The maximum passes over NaN, its exponential does not.
        float scale = most == top ? 1.0f : expf(top - most);
        float mine = visible ? expf(score - most) : 0.0f;
        sum = sum * scale + warp_sum(mine);
        top = most;
        weight[lane] = mine;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < ITEMS; i++) acc[i] *= scale;
        for (u32 j = 0; j < 32; j++) {
            // What a row does not see must not reach it as 0 · NaN either.
            if (weight[j] == 0.0f) continue;
            const act *value = values + (at + j) * stride;
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                u32 d = i * 32 + lane;
                if (d < DIM) acc[i] += weight[j] * to_float(value[d]);
            }
        }
        __syncwarp();
    }
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        u32 d = i * 32 + lane;
        if (d < DIM) out[d] = to_act(sum == 0.0f ? 0.0f : acc[i] / sum);
    }
}
