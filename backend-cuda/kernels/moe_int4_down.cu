// Experts with INT4 weights: the weighted sum of down(middle) over the experts of each row.
//
// HIDDEN, INTER, TILES, SPLIT, STAGES, TOGETHER. A block owns TILES tiles of 16 columns of the output for all rows and walks the
// segments in ascending order of their experts, so the sums of a row are made in that order by one warp, whatever else is in the
// pass, and nothing has to be combined afterwards. SPLIT warps share a tile, each with a part of the inner columns. A warp works
// on TOGETHER segments at a time: one alone is a chain of dependent steps in which the tensor cores mostly wait. One more warp has
// the copy engine bring weights and inputs into a ring of stages.
#include "moe_int4.cuh"

#define WARPS (TILES * SPLIT)
#define CHUNKS (INTER / 64 / SPLIT) // of one warp
#define TILE_BYTES (INTER / 64 * CHUNK)
#define MATRIX_BYTES ((u64)HIDDEN * INTER / 16 * 9)

struct DownArgs {
    const u8 *experts; // as moe_pack.cu lays them out
    const Segment *segments;
    const u32 *counts;
    const Middle<INTER> *middle; // [segments]
    bf16 *out;                   // [rows][HIDDEN]
    u32 rows;
    u32 rows_block; // rows that a block sums, of the grid's second dimension
    u32 capacity;   // segments that there is memory for
    u32 pad;
};

struct DownStage {
    u8 weights[TILES][TILE_BYTES];
    Middle<INTER> middle;
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
    auto weights = [&](u32 stage, u32 expert, u32 count) {
        DownStage &to = s.stages[stage];
        mbar_arrive_expect(&s.full[stage], sizeof(to.weights) + middle_bytes<INTER>(count));
        bulk_copy_hint(to.weights, base + (u64)expert * (3 * MATRIX_BYTES), sizeof(to.weights), &s.full[stage], once);
    };
    auto inputs = [&](u32 at, u32 stage, u32 count) {
        bulk_copy(&s.stages[stage].middle, &p.middle[at], middle_bytes<INTER>(count), &s.full[stage]);
    };
    // Weights do not depend on the kernel before this one: they are on their way while it ends. Lane i begins with stage i.
    bool early = lane < STAGES && lane < segments;
    if (early) weights(lane, mine.x, mine.z);
    griddep_wait();
    if (early) inputs(lane, lane, mine.z);
    u32 stage = 0, phase = 0;
    for (u32 i = STAGES; i < segments; i++) {
        if (i % 32 == 0 && i + lane < segments) mine = *(const uint4 *)&p.segments[i + lane];
        u32 expert = __shfl_sync(0xffffffffu, mine.x, i % 32), count = __shfl_sync(0xffffffffu, mine.z, i % 32);
        if (lane == 0) {
            mbar_wait(&s.empty[stage], phase);
            weights(stage, expert, count);
            inputs(i, stage, count);
        }
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
}

// One warp's share of all segments.
TL_DEVICE void consume(const DownArgs &p, DownShared &s, u32 segments, float *total, u32 row0, u32 warp, u32 lane) {
    u32 g = lane / 4, t = lane % 4, tile = warp / SPLIT, part = warp % SPLIT;
    u32 stage = 0, phase = 0;
    for (u32 i = 0; i < segments; i += TOGETHER) {
        u32 row[TOGETHER][2];
        float weight[TOGETHER][2], sum[TOGETHER][4];
#pragma unroll
        for (int q = 0; q < TOGETHER; q++) {
            if (i + q < segments) mbar_wait(&s.full[stage + q], phase);
            sum[q][0] = sum[q][1] = sum[q][2] = sum[q][3] = 0.0f;
        }
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            Weights w[TOGETHER];
            Inputs x[TOGETHER][2];
            float d[TOGETHER][2][4];
#pragma unroll
            for (int q = 0; q < TOGETHER; q++) {
                const DownStage &from = s.stages[stage + q];
                w[q] = read_chunk(from.weights[tile] + (part * CHUNKS + c) * CHUNK, lane);
                // Columns beyond the segment's picks hold anything; they meet no other column, and nobody reads their sums.
#pragma unroll
                for (int k = 0; k < 2; k++)
                    x[q][k] = *(const uint4 *)&from.middle.rows[g][((part * CHUNKS + c) * 2 + k) * 32 + t * 8];
            }
            // Step by step for all, so that no step waits for the one before.
            const u32 offset[4] = {OFFSET, OFFSET, OFFSET, OFFSET};
#pragma unroll
            for (int i = 0; i < 2 * TOGETHER; i++) {
                float(&of)[4] = d[i / 2][i % 2];
                of[0] = of[1] = of[2] = of[3] = 0.0f;
                mma_bf16_16816(of, offset, x[i / 2][i % 2].x, x[i / 2][i % 2].y);
            }
#pragma unroll
            for (int i = 0; i < 2 * TOGETHER; i++)
                mma_bf16_16816(d[i / 2][i % 2], offset, x[i / 2][i % 2].z, x[i / 2][i % 2].w);
#pragma unroll
            for (int half = 0; half < 2; half++) {
#pragma unroll
                for (int i = 0; i < 2 * TOGETHER; i++) multiply_half(d[i / 2][i % 2], w[i / 2], i % 2, half, x[i / 2][i % 2]);
            }
#pragma unroll
            for (int q = 0; q < TOGETHER; q++) {
                add_scaled(sum[q], d[q][0], bf16_lo(w[q].scales.x), bf16_lo(w[q].scales.y));
                add_scaled(sum[q], d[q][1], bf16_hi(w[q].scales.x), bf16_hi(w[q].scales.y));
            }
        }
#pragma unroll
        for (int q = 0; q < TOGETHER; q++) {
            const Middle<INTER> &from = s.stages[stage + q].middle;
#pragma unroll
            for (int k = 0; k < 2; k++) {
                row[q][k] = i + q < segments ? (u32)from.row[2 * t + k] - row0 : 0xffffffffu;
                weight[q][k] = from.weight[2 * t + k];
            }
        }
        __syncwarp();
#pragma unroll
        for (int q = 0; q < TOGETHER; q++) {
            if (i + q < segments && lane == 0) mbar_arrive(&s.empty[stage + q]);
        }
#pragma unroll
        for (int q = 0; q < TOGETHER; q++) {
            __syncwarp(); // the row's sum may have been another lane's before
#pragma unroll
            for (int k = 0; k < 2; k++) {
                if (row[q][k] < p.rows_block) {
                    float *to = total + row[q][k] * 16 + g;
                    to[0] += weight[q][k] * sum[q][k];
                    to[8] += weight[q][k] * sum[q][k + 2];
                }
            }
        }
        stage += TOGETHER;
        if (stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
}

TL_KERNEL(moe_int4_down, DownArgs, (WARPS + 1) * 32) {
    TL_SHARED(bytes);
    DownShared &s = *(DownShared *)bytes;
    float *totals = (float *)(bytes + sizeof(DownShared)); // [WARPS][rows_block][16]
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, row0 = blockIdx.y * p.rows_block;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbar_init(&s.full[i], 1);
            mbar_init(&s.empty[i], WARPS);
        }
        mbar_fence_init();
    }
    griddep_launch();
    // The kernel before this one was started behind the routing's end, so the lists are complete.
    uint4 mine = make_uint4(0, 0, 0, 0);
    if (warp == WARPS && lane < p.capacity) mine = *(const uint4 *)&p.segments[lane];
    u32 segments = p.counts[0];
    for (u32 i = threadIdx.x; i < WARPS * p.rows_block * 16; i += (WARPS + 1) * 32) totals[i] = 0.0f;
    __syncthreads();

    if (warp == WARPS) {
        feed(p, s, segments, mine, lane);
    } else {
        consume(p, s, segments, totals + warp * p.rows_block * 16, row0, warp, lane);
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
