// Experts with INT4 weights: silu(gate h) * up h.
//
// HIDDEN, INTER, TOP_K, WARPS, STAGES. A unit of work is one tile of 8 gate and 8 up rows of one segment, over all columns: each warp
// takes a slice of the columns, and the block adds the slices. The units of all segments are dealt out in equal runs, so a block
// keeps the inputs of its slice in registers until the expert changes. Each warp has its own ring of slices in shared memory,
// filled by the copy engine across the borders of units: what is in flight depends neither on registers nor on barriers.
#include "moe_int4.cuh"

#define TILES (INTER / 8)
#define CHUNKS (HIDDEN / 64 / WARPS) // of one warp's slice
#define SLICE (CHUNKS * CHUNK)
#define TILE_BYTES (HIDDEN / 64 * CHUNK)
#define EXPERT_BYTES ((u64)HIDDEN * INTER / 16 * 27)
#define HEADS 512 // segments that a block looks up at once

struct UpArgs {
    const u8 *experts; // as moe_pack.cu lays them out
    const bf16 *h;     // [rows][HIDDEN]
    const Segment *segments;
    const u32 *counts;
    bf16 *middle; // [rows][TOP_K][INTER]
    u32 capacity; // segments that there is memory for
    u32 pad;
};

struct UpShared {
    u8 ring[WARPS][STAGES][SLICE];
    float4 sums[2][WARPS][32];
    float4 offsets[WARPS][CHUNKS * 2][4]; // as accumulators begin, by group
    uint2 heads[HEADS]; // expert, picks
    u64 full[WARPS][STAGES];
};

TL_KERNEL_RESIDENT(moe_int4_up, UpArgs, WARPS * 32, 1) {
    TL_SHARED(bytes);
    UpShared &s = *(UpShared *)bytes;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    if (lane == 0) {
        for (int i = 0; i < STAGES; i++) mbar_init(&s.full[warp][i], 1);
        mbar_fence_init();
    }
    griddep_wait();
    griddep_launch();
    // Not only those that are in use, so as not to wait for their number first.
    for (u32 i = threadIdx.x; i < HEADS && i < p.capacity; i += WARPS * 32) s.heads[i] = *(const uint2 *)&p.segments[i];
    u32 segments = p.counts[0];
    __syncthreads();

    auto head = [&](u32 i) { return i < HEADS ? s.heads[i] : *(const uint2 *)&p.segments[i]; };
    u64 units = (u64)segments * TILES;
    u32 unit = (u32)(units * blockIdx.x / gridDim.x), end = (u32)(units * (blockIdx.x + 1) / gridDim.x);
    u64 once = l2_evict_first();
    auto fetch = [&](u32 of, u32 stage) {
        if (lane != 0 || of >= end) return;
        const u8 *from = p.experts + (u64)head(of / TILES).x * EXPERT_BYTES + (of % TILES) * TILE_BYTES + warp * SLICE;
        mbar_arrive_expect(&s.full[warp][stage], SLICE);
        bulk_copy_hint(s.ring[warp][stage], from, SLICE, &s.full[warp][stage], once);
    };
    for (u32 i = 0; i < STAGES; i++) fetch(unit + i, i);

    Inputs x[CHUNKS * 2];
    u32 count = 0, stage = 0, phase = 0;
    for (u32 turn = 0; unit < end; unit++, turn++) {
        u32 tile = unit % TILES;
        if (turn == 0 || tile == 0) {
            count = head(unit / TILES).y;
            bool used = g < count;
            const bf16 *h = p.h + (u64)(used ? p.segments[unit / TILES].pick[g] / TOP_K : 0) * HIDDEN + warp * (CHUNKS * 64) + t * 8;
#pragma unroll
            for (int i = 0; i < CHUNKS * 2; i++) {
                x[i] = make_uint4(0, 0, 0, 0);
                if (used) x[i] = ldg128(h + i * 32);
            }
            __syncwarp();
#pragma unroll
            for (int i = 0; i < CHUNKS * 2; i++) {
                float a[4];
                offset_of(a, x[i]);
                if (g == 0) s.offsets[warp][i][t] = make_float4(a[0], a[1], a[2], a[3]);
            }
            __syncwarp();
        }
        mbar_wait(&s.full[warp][stage], phase);
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        const u8 *slice = s.ring[warp][stage];
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) {
            Weights w = read_chunk(slice + i * CHUNK, lane);
            float4 from_a = s.offsets[warp][2 * i][t], from_b = s.offsets[warp][2 * i + 1][t];
            float a[4] = {from_a.x, from_a.y, from_a.z, from_a.w}, b[4] = {from_b.x, from_b.y, from_b.z, from_b.w};
            multiply_group(a, w.words.x, w.words.y, x[2 * i]);
            multiply_group(b, w.words.z, w.words.w, x[2 * i + 1]);
            add_scaled(sum, a, bf16_lo(w.scales.x), bf16_lo(w.scales.y));
            add_scaled(sum, b, bf16_hi(w.scales.x), bf16_hi(w.scales.y));
        }
        __syncwarp();
        fetch(unit + STAGES, stage);
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
        // Two sets of sums: the block may be one unit ahead of the warp that adds.
        s.sums[turn % 2][warp][lane] = make_float4(sum[0], sum[1], sum[2], sum[3]);
        __syncthreads();
        if (warp == turn % WARPS) {
            float4 all = s.sums[turn % 2][0][lane];
#pragma unroll
            for (int w = 1; w < WARPS; w++) {
                float4 part = s.sums[turn % 2][w][lane];
                all.x += part.x;
                all.y += part.y;
                all.z += part.z;
                all.w += part.w;
            }
            const Segment &segment = p.segments[unit / TILES];
#pragma unroll
            for (int k = 0; k < 2; k++) {
                float gate = k ? all.y : all.x, up = k ? all.w : all.z;
                u32 column = 2 * t + k;
                if (column < count) p.middle[(u64)segment.pick[column] * INTER + tile * 8 + g] = to_bf16(silu(gate) * up);
            }
        }
    }
}
