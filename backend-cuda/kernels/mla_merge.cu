// Joins the partial results of tiles that several blocks of latent attention shared, and clears padded rows.
//
// Grid: ((row, head) pairs, groups of columns). Defines: HEADS, KV_LORA, ROPE, TILE, ACT_BF16,
// PARTS (most blocks of the attention), EVEN (see mla_blocks).
#include "mla_split.cuh"

#define THREADS 256
#define AHEAD 10 // parts that a thread reads before it waits for the first

// The four columns of a place.
TL_DEVICE void write4(act *out, float4 v) {
    *(u32 *)out = pack_bf16x2(v.x, v.y);
    *(u32 *)(out + 8) = pack_bf16x2(v.z, v.w);
}

// The larger; NaN before all, so that it reaches the output.
TL_DEVICE float higher(float a, float b) { return b > a || b != b ? b : a; }

TL_KERNEL(mla_merge, MlaArgs, THREADS) {
    __shared__ float weight[PARTS], share[PARTS], warps[THREADS / 32];
    __shared__ float4 sums[THREADS];
    u32 row = blockIdx.x / HEADS, head = blockIdx.x % HEADS, t = threadIdx.x, lane = t % 32;
    u32 group = t / p.lanes, groups = THREADS / p.lanes, column = (blockIdx.y * p.lanes + t % p.lanes) * 4;
    act *out = p.out + (u64)blockIdx.x * KV_LORA + mla_column(column);
    // The rows were there before the attention began; only its results must be waited for.
    i32 seq = p.rows.seq[row];
    if (seq < 0) {
        if (group == 0) write4(out, float4{0.0f, 0.0f, 0.0f, 0.0f});
        griddep_wait();
        return;
    }
    u32 before, total = mla_total(p.rows, p.seqs, p.window, (u32)seq, before);
    u32 blocks = mla_blocks(p, total);
    MlaSpan span = mla_span(p.rows, (u32)seq, p.window);
    u32 pair = p.rows.offset[row] * HEADS + head, tile = pair / TILE, at = pair % TILE;
    u32 unit = before + tile * span.chunks;
    u32 first = mla_owner(total, unit, blocks), last = mla_owner(total, unit + span.chunks - 1, blocks);
    griddep_wait();
    griddep_launch();
    if (first == last) return; // that block wrote the output
    u32 parts = last - first + 1;
    const float *part = p.part + (u64)at * KV_LORA + column;

    float4 values[AHEAD];
#pragma unroll
    for (u32 i = 0; i < AHEAD; i++) {
        u32 index = group + i * groups;
        if (index < parts) {
            values[i] = *(const float4 *)(part + (u64)mla_slot(first + index, index == 0) * TILE * KV_LORA);
        }
    }
    // The largest score, then the weights relative to it and their sum.
    float most = NEVER, sum = 0.0f;
#pragma unroll 1
    for (u32 i = t; i < parts; i += THREADS) {
        float2 norm = p.part_norm[(u64)mla_slot(first + i, i == 0) * TILE + at];
        weight[i] = norm.x, share[i] = norm.y;
        most = higher(most, norm.x);
    }
#pragma unroll
    for (int with = 16; with > 0; with /= 2) most = higher(most, __shfl_xor_sync(0xffffffffu, most, with));
    if (lane == 0) warps[t / 32] = most;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < THREADS / 32; w++) most = higher(most, warps[w]);
#pragma unroll 1
    for (u32 i = t; i < parts; i += THREADS) {
        float w = weight[i] == NEVER ? 0.0f : exp2f(weight[i] - most);
        weight[i] = w;
        sum += w * share[i];
    }
#pragma unroll
    for (int with = 16; with > 0; with /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, with);
    __syncthreads();
    if (lane == 0) warps[t / 32] = sum;
    __syncthreads();
    sum = 0.0f;
#pragma unroll
    for (int w = 0; w < THREADS / 32; w++) sum += warps[w];
    float4 acc = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
    for (u32 base = group; base < parts; base += AHEAD * groups) {
        if (base != group) {
#pragma unroll
            for (u32 i = 0; i < AHEAD; i++) {
                u32 index = base + i * groups;
                if (index < parts) {
                    values[i] = *(const float4 *)(part + (u64)mla_slot(first + index, false) * TILE * KV_LORA);
                }
            }
        }
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) {
            u32 index = base + i * groups;
            float w = index < parts ? weight[index] : 0.0f;
            if (w != 0.0f) {
                acc.x += w * values[i].x, acc.y += w * values[i].y;
                acc.z += w * values[i].z, acc.w += w * values[i].w;
            }
        }
    }
    sums[t] = acc;
    __syncthreads();
    if (group != 0) return;
#pragma unroll 4
    for (u32 g = 1; g < groups; g++) {
        float4 other = sums[g * p.lanes + t];
        acc.x += other.x, acc.y += other.y, acc.z += other.z, acc.w += other.w;
    }
    float scale = sum == 0.0f ? 0.0f : 1.0f / sum;
    write4(out, float4{acc.x * scale, acc.y * scale, acc.z * scale, acc.w * scale});
}
