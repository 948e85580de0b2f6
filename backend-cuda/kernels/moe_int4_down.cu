// Experts with INT4 weights: down(middle) of every pick, and the weighted sum over the picks of each row.
//
// HIDDEN, INTER, TOP_K, WARPS, TILES, STAGES. A unit of work is TILES tiles of 16 outputs of one segment and belongs to one warp.
// The units of all segments are dealt out in equal runs, so a warp keeps the inputs in registers until the expert changes. Each
// warp has its own ring in shared memory, filled by the copy engine across the borders of units; warps never wait for each other.
#include "moe_int4.cuh"

#define UNITS (HIDDEN / 16 / TILES) // of a segment
#define CHUNKS (INTER / 64)
#define GROUPS (CHUNKS * 2)
#define UNIT_BYTES (TILES * CHUNKS * CHUNK)
#define MATRIX_BYTES ((u64)HIDDEN * INTER / 16 * 9)

struct DownArgs {
    const u8 *experts; // as moe_pack.cu lays them out
    const Segment *segments;
    const u32 *counts;
    const bf16 *middle; // [rows][TOP_K][INTER]
    float *parts;       // [rows][TOP_K][HIDDEN]
};

struct DownShared {
    u8 ring[WARPS][STAGES][UNIT_BYTES];
    float4 offsets[WARPS][GROUPS][4]; // as accumulators begin
    u64 full[WARPS][STAGES];
};

TL_KERNEL_RESIDENT(moe_int4_down, DownArgs, WARPS * 32, 1) {
    TL_SHARED(bytes);
    DownShared &s = *(DownShared *)bytes;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    if (lane == 0) {
        for (int i = 0; i < STAGES; i++) mbar_init(&s.full[warp][i], 1);
        mbar_fence_init();
    }
    __syncwarp();
    griddep_launch();
    // The kernel before this one was started behind the routing's end, so the lists are complete, and weights may be on their way
    // while it ends.
    u64 units = (u64)p.counts[0] * UNITS, mine = blockIdx.x * WARPS + warp, all = gridDim.x * WARPS;
    u32 unit = (u32)(units * mine / all), end = (u32)(units * (mine + 1) / all);
    u64 once = l2_evict_first();
    auto fetch = [&](u32 of, u32 stage) {
        if (lane != 0 || of >= end) return;
        u64 expert = (u32)p.segments[of / UNITS].expert;
        const u8 *from = p.experts + (expert * 3 + 2) * MATRIX_BYTES + (of % UNITS) * UNIT_BYTES;
        mbar_arrive_expect(&s.full[warp][stage], UNIT_BYTES);
        bulk_copy_hint(s.ring[warp][stage], from, UNIT_BYTES, &s.full[warp][stage], once);
    };
    for (u32 i = 0; i < STAGES; i++) fetch(unit + i, i);
    griddep_wait();

    Inputs x[GROUPS];
    u32 count = 0, stage = 0, phase = 0;
    float *to[2] = {p.parts, p.parts}; // of this thread's two columns
    for (u32 turn = 0; unit < end; unit++, turn++) {
        u32 part = unit % UNITS;
        if (turn == 0 || part == 0) {
            const Segment &segment = p.segments[unit / UNITS];
            count = segment.count;
            bool used = g < count;
            const bf16 *from = p.middle + (u64)(used ? segment.pick[g] : 0) * INTER + t * 8;
#pragma unroll
            for (int i = 0; i < GROUPS; i++) {
                x[i] = make_uint4(0, 0, 0, 0);
                if (used) x[i] = ldg128(from + i * 32);
            }
#pragma unroll
            for (int k = 0; k < 2; k++)
                to[k] = p.parts + (u64)(2 * t + k < count ? segment.pick[2 * t + k] : 0) * HIDDEN + g;
            __syncwarp();
#pragma unroll
            for (int i = 0; i < GROUPS; i++) {
                float a[4];
                offset_of(a, x[i]);
                if (g == 0) s.offsets[warp][i][t] = make_float4(a[0], a[1], a[2], a[3]);
            }
            __syncwarp();
        }
        mbar_wait(&s.full[warp][stage], phase);
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            const u8 *weights = s.ring[warp][stage] + tile * (CHUNKS * CHUNK);
#pragma unroll
            for (int i = 0; i < CHUNKS; i++) {
                Weights w = read_chunk(weights + i * CHUNK, lane);
                float4 from_a = s.offsets[warp][2 * i][t], from_b = s.offsets[warp][2 * i + 1][t];
                float a[4] = {from_a.x, from_a.y, from_a.z, from_a.w}, b[4] = {from_b.x, from_b.y, from_b.z, from_b.w};
                multiply_group(a, w.words.x, w.words.y, x[2 * i]);
                multiply_group(b, w.words.z, w.words.w, x[2 * i + 1]);
                add_scaled(sum, a, bf16_lo(w.scales.x), bf16_lo(w.scales.y));
                add_scaled(sum, b, bf16_hi(w.scales.x), bf16_hi(w.scales.y));
            }
            u32 at = (part * TILES + tile) * 16;
#pragma unroll
            for (int k = 0; k < 2; k++) {
                if (2 * t + k < count) {
                    to[k][at] = sum[k];
                    to[k][at + 8] = sum[k + 2];
                }
            }
        }
        __syncwarp();
        fetch(unit + STAGES, stage);
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
}

struct SumArgs {
    const float *parts;   // [rows][TOP_K][HIDDEN]
    const i32 *ids;       // [rows][TOP_K], -1 in padded rows
    const float *weights; // [rows][TOP_K]
    bf16 *out;            // [rows][HIDDEN]
};

// The experts of a row in ascending order of their ids, whatever else is in the pass. Two columns a thread: with four, the compiler
// waits for half of the loads before it issues the rest.
TL_KERNEL(moe_int4_sum, SumArgs, 128) {
    u32 row = blockIdx.x, column = (blockIdx.y * 128 + threadIdx.x) * 2;
    griddep_launch();
    if (column >= HIDDEN) return;
    bool real = p.ids[(u64)row * TOP_K] >= 0;
    float weight[TOP_K];
    uint2 part[TOP_K];
#pragma unroll
    for (int k = 0; k < TOP_K; k++) weight[k] = p.weights[(u64)row * TOP_K + k];
    griddep_wait();
    float sum[2] = {0.0f, 0.0f};
    if (real) {
#pragma unroll
        for (int k = 0; k < TOP_K; k++) part[k] = ldg64(p.parts + ((u64)row * TOP_K + k) * HIDDEN + column);
#pragma unroll
        for (int k = 0; k < TOP_K; k++) {
            sum[0] += weight[k] * __uint_as_float(part[k].x);
            sum[1] += weight[k] * __uint_as_float(part[k].y);
        }
    }
    *(u32 *)(p.out + (u64)row * HIDDEN + column) = pack_bf16x2(sum[0], sum[1]);
}
