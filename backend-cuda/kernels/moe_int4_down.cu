// Experts with INT4 weights: the weighted sum of down(middle) over the experts of each row.
//
// HIDDEN, INTER, TILES, SPLIT, STAGES. A block owns TILES tiles of 16 columns of the output for all rows and walks the segments
// in ascending order of their experts, so the sums of a row are made in that order by one warp, whatever else is in the pass, and
// nothing has to be combined afterwards. SPLIT warps share a tile, each with a part of the inner columns. One more warp has the
// copy engine bring the weights, the rows and the segment itself into a ring of stages.
#include "moe_int4.cuh"

#define WARPS (TILES * SPLIT)
#define CHUNKS (INTER / 64 / SPLIT) // of one warp
#define TILE_BYTES (INTER / 64 * CHUNK)
#define MATRIX_BYTES ((u64)HIDDEN * INTER / 16 * 9)

struct DownArgs {
    const u8 *experts; // as moe_pack.cu lays them out
    const Segment *segments;
    const u32 *counts;
    const bf16 *middle; // [picks][INTER], numbered by expert
    bf16 *out;          // [rows][HIDDEN]
    u32 rows;
    u32 rows_block; // rows that a block sums, of the grid's second dimension
    u32 capacity;   // segments that there is memory for
    u32 pad;
};

struct DownStage {
    u8 weights[TILES][TILE_BYTES];
    bf16 rows[SEGMENT][INTER];
    Segment segment;
};

struct DownShared {
    DownStage stages[STAGES];
    u64 full[STAGES], empty[STAGES];
};

// The warp that feeds the others. Each lane looks up one segment, so that the look-up is waited for once in 32; `mine` is that
// of the first 32.
TL_DEVICE void feed(const DownArgs &p, DownShared &s, u32 segments, uint4 mine, u32 lane) {
    u64 once = l2_evict_first();
    const u8 *base = p.experts + 2 * MATRIX_BYTES + (u64)blockIdx.x * (TILES * TILE_BYTES);
    auto weights = [&](u32 at, u32 stage, u32 expert, u32 count) {
        DownStage &to = s.stages[stage];
        mbar_arrive_expect(&s.full[stage], sizeof(to.weights) + count * (INTER * 2) + sizeof(Segment));
        bulk_copy_hint(to.weights, base + (u64)expert * (3 * MATRIX_BYTES), sizeof(to.weights), &s.full[stage], once);
        bulk_copy(&to.segment, &p.segments[at], sizeof(Segment), &s.full[stage]);
    };
    auto rows = [&](u32 stage, u32 first, u32 count) {
        bulk_copy(s.stages[stage].rows, p.middle + (u64)first * INTER, count * (INTER * 2), &s.full[stage]);
    };
    // Weights do not depend on the kernel before this one: they are on their way while it ends. Lane i begins with stage i.
    bool early = lane < STAGES && lane < segments;
    if (early) weights(lane, lane, mine.x, mine.z);
    griddep_wait();
    if (early) rows(lane, mine.y, mine.z);
    u32 stage = 0, phase = 0;
    for (u32 i = STAGES; i < segments; i++) {
        if (i % 32 == 0 && i + lane < segments) mine = *(const uint4 *)&p.segments[i + lane];
        u32 expert = __shfl_sync(0xffffffffu, mine.x, i % 32), first = __shfl_sync(0xffffffffu, mine.y, i % 32);
        u32 count = __shfl_sync(0xffffffffu, mine.z, i % 32);
        if (lane == 0) {
            mbar_wait(&s.empty[stage], phase);
            weights(i, stage, expert, count);
            rows(stage, first, count);
        }
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
}

TL_KERNEL(moe_int4_down, DownArgs, (WARPS + 1) * 32) {
    TL_SHARED(bytes);
    DownShared &s = *(DownShared *)bytes;
    float *totals = (float *)(bytes + sizeof(DownShared)); // [WARPS][rows_block][16]
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    u32 row0 = blockIdx.y * p.rows_block;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbar_init(&s.full[i], 1);
            mbar_init(&s.empty[i], WARPS);
        }
        mbar_fence_init();
    }
    // The kernel before this one was started behind the routing's end, so the lists are complete.
    uint4 mine = make_uint4(0, 0, 0, 0);
    if (warp == WARPS && lane < p.capacity) mine = *(const uint4 *)&p.segments[lane];
    u32 segments = p.counts[0];
    for (u32 i = threadIdx.x; i < WARPS * p.rows_block * 16; i += (WARPS + 1) * 32) totals[i] = 0.0f;
    __syncthreads();

    if (warp == WARPS) {
        feed(p, s, segments, mine, lane);
    } else {
        u32 tile = warp / SPLIT, part = warp % SPLIT;
        float *total = totals + warp * p.rows_block * 16;
        u32 stage = 0, phase = 0;
        for (u32 i = 0; i < segments; i++) {
            mbar_wait(&s.full[stage], phase);
            const DownStage &from = s.stages[stage];
            u32 count = from.segment.count;
            const u8 *weights = from.weights[tile] + part * (CHUNKS * CHUNK);
            const bf16 *x = &from.rows[g][part * (CHUNKS * 64) + t * 8];
            float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                Weights w = read_chunk(weights + c * CHUNK, lane);
                Inputs x0 = make_uint4(0, 0, 0, 0), x1 = x0;
                if (g < count) {
                    x0 = *(const uint4 *)(x + c * 64);
                    x1 = *(const uint4 *)(x + c * 64 + 32);
                }
                float a[4], b[4];
                offset_of(a, x0);
                offset_of(b, x1);
                multiply_group(a, w.words.x, w.words.y, x0);
                multiply_group(b, w.words.z, w.words.w, x1);
                add_scaled(sum, a, bf16_lo(w.scales.x), bf16_lo(w.scales.y));
                add_scaled(sum, b, bf16_hi(w.scales.x), bf16_hi(w.scales.y));
            }
            u32 row[2];
            float weight[2];
#pragma unroll
            for (int k = 0; k < 2; k++) {
                row[k] = 2 * t + k < count ? (u32)from.segment.row[2 * t + k] - row0 : 0xffffffffu;
                weight[k] = from.segment.weight[2 * t + k];
            }
            // Behind this barrier the stage is free, and the totals of the segment before are visible.
            __syncwarp();
            if (lane == 0) mbar_arrive(&s.empty[stage]);
#pragma unroll
            for (int k = 0; k < 2; k++) {
                if (row[k] < p.rows_block) {
                    float *to = total + row[k] * 16 + g;
                    to[0] += weight[k] * sum[k];
                    to[8] += weight[k] * sum[k + 2];
                }
            }
            if (++stage == STAGES) {
                stage = 0;
                phase ^= 1;
            }
        }
    }
    __syncthreads();
    u32 rows = p.rows - row0 < p.rows_block ? p.rows - row0 : p.rows_block;
    for (u32 i = threadIdx.x; i < rows * TILES * 8; i += (WARPS + 1) * 32) {
        u32 row = i / (TILES * 8), tile = i / 8 % TILES, pair = i % 8 * 2;
        float a = 0.0f, b = 0.0f;
#pragma unroll
        for (int k = 0; k < SPLIT; k++) {
            const float *total = totals + ((tile * SPLIT + k) * p.rows_block + row) * 16 + pair;
            a += total[0];
            b += total[1];
        }
        u64 column = (u64)blockIdx.x * (TILES * 16) + tile * 16 + pair;
        *(u32 *)(p.out + (u64)(row0 + row) * HIDDEN + column) = pack_bf16x2(a, b);
    }
}
