// Grouped-query attention of tree rows on tensor cores, in bfloat16, for heads of 64 or 128 dimensions: the portable form.
//
// Besides those of `gqa_tile.cuh`: WARPS_M × WARPS_N warps (over pairs, over keys), ROWS_M (tiles of 16 pairs of a warp), STEP
// (keys between two looks at the maximum), STAGES, RESIDENT (blocks of a multiprocessor).
#define KEYS 64
#define TILE_M (16 * ROWS_M * WARPS_M)
#define THREADS (32 * WARPS_M * WARPS_N)
#include "gqa_tile.cuh"

#define TILE_BYTES (KEYS * DIM * 2)
#define WARP_KEYS (KEYS / WARPS_N)
#define COLUMNS (DIM / 8)

// 16 bytes of a row in shared memory, where eight neighbouring rows use all banks.
TL_DEVICE u8 *chunk_at(u8 *tile, u32 row, u32 chunk) { return tile + row * (DIM * 2) + ((chunk ^ (row & 7)) * 16); }

TL_KERNEL_RESIDENT(gqa_attend_smxx, GqaTileArgs, THREADS, RESIDENT) {
    TL_SHARED(memory);
    __shared__ Job job;
    __shared__ u32 has_job;
    __shared__ u32 broken[2];
    griddep_launch();
    griddep_wait();
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 g = lane / 4, t = lane % 4;
    if (warp == 0) {
        bool found = find_job(p.rows, p.seqs, p.window, p.slots, p.cuts, &job);
        if (lane == 0) has_job = found;
    }
    __syncthreads();
    if (!has_job) return;

    u32 start = job.start, pairs = job.pairs;
    const u64 stride = (u64)KV_HEADS * DIM;
    const u64 base = ((u64)job.kv * KV_HEADS + job.kv_head) * DIM;
    u8 *queries = memory, *stages = memory + TILE_M * DIM * 2;

    auto fetch = [&](u32 stage, u32 key) {
        u8 *k = stages + stage * 2 * TILE_BYTES, *v = k + TILE_BYTES;
#pragma unroll
        for (int i = 0; i < (KEYS * CHUNKS + THREADS - 1) / THREADS; i++) {
            u32 item = i * THREADS + threadIdx.x, row = item / CHUNKS, chunk = item % CHUNKS;
            if (KEYS * CHUNKS % THREADS && item >= KEYS * CHUNKS) break;
            bool valid = key + row < job.end;
            u64 from = base + (valid ? key + row : job.begin) * stride + chunk * 8;
            cp_async16_zfill(chunk_at(k, row, chunk), p.k + from, valid);
            cp_async16_zfill(chunk_at(v, row, chunk), p.v + from, valid);
        }
    };
    for (u32 item = threadIdx.x; item < TILE_M * CHUNKS; item += THREADS) {
        u32 m = item / CHUNKS, chunk = item % CHUNKS, pair = job.first_pair + (m < pairs ? m : 0);
        u64 row = job.row + pair / GROUP, head = job.kv_head * GROUP + pair % GROUP;
        cp_async16_zfill(chunk_at(queries, m, chunk), p.q + (row * HEADS + head) * DIM + chunk * 8, m < pairs);
    }
    u32 blocks = (job.end - job.begin + KEYS - 1) / KEYS;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < blocks) fetch(s, job.begin + s * KEYS);
        cp_async_commit();
    }

    u32 warp_m = warp / WARPS_N * (16 * ROWS_M), warp_n = warp % WARPS_N * WARP_KEYS;
    bool busy = warp_m < pairs;
    // Rows g and g + 8 of each of the warp's tiles.
    float acc[ROWS_M][COLUMNS][4], top[ROWS_M][2], sum[ROWS_M][2];
#pragma unroll
    for (int r = 0; r < ROWS_M; r++) {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) clear(acc[r][c]);
#pragma unroll
        for (int h = 0; h < 2; h++) top[r][h] = MINUS_INFINITY, sum[r][h] = 0.0f;
    }
#if ROWS_M == 1
    u32 held[DIM / 16][4];
#endif

    for (u32 block = 0; block < blocks; block++) {
        u32 key = job.begin + block * KEYS;
        u32 stage = block % STAGES;
        u8 *keys = stages + stage * 2 * TILE_BYTES, *values = keys + TILE_BYTES;
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        if (block + STAGES - 1 < blocks) fetch((block + STAGES - 1) % STAGES, key + (STAGES - 1) * KEYS);
        cp_async_commit();

        // Whether some row does not see some key of this step.
        bool partial = key + KEYS > start || (p.window && key + p.window < start + job.rows);
        u64 bad = 0;
        if (key + KEYS > start)
            bad = take_out_broken(broken, [&](u32 row, u32 chunk) { return chunk_at(values, row, chunk); });
        if (!busy) continue;
#if ROWS_M == 1
        if (block == 0) {
#pragma unroll
            for (int d = 0; d < DIM / 16; d++)
                ldmatrix_x4(held[d], chunk_at(queries, warp_m + lane % 16, 2 * d + lane / 16));
        }
#endif
#pragma unroll
        for (int step = 0; step < WARP_KEYS / STEP; step++) {
            u32 column = warp_n + step * STEP;
            float score[ROWS_M][STEP / 8][4];
#pragma unroll
            for (int r = 0; r < ROWS_M; r++)
#pragma unroll
                for (int c = 0; c < STEP / 8; c++) clear(score[r][c]);
#pragma unroll
            for (int d = 0; d < DIM / 16; d++) {
#if ROWS_M > 1
                u32 query[ROWS_M][4];
#pragma unroll
                for (int r = 0; r < ROWS_M; r++)
                    ldmatrix_x4(query[r], chunk_at(queries, warp_m + r * 16 + lane % 16, 2 * d + lane / 16));
#endif
#pragma unroll
                for (int c = 0; c < STEP / 16; c++) {
                    u32 b[4];
                    ldmatrix_x4(b, chunk_at(keys, column + c * 16 + lane / 16 * 8 + lane % 8, 2 * d + lane / 8 % 2));
#pragma unroll
                    for (int r = 0; r < ROWS_M; r++) {
#if ROWS_M == 1
                        mma_bf16_16816(score[r][2 * c], held[d], b[0], b[1]);
                        mma_bf16_16816(score[r][2 * c + 1], held[d], b[2], b[3]);
#else
                        mma_bf16_16816(score[r][2 * c], query[r], b[0], b[1]);
                        mma_bf16_16816(score[r][2 * c + 1], query[r], b[2], b[3]);
#endif
                    }
                }
            }
            if (partial) {
#pragma unroll
                for (int r = 0; r < ROWS_M; r++) {
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        u32 pair = job.first_pair + min(warp_m + r * 16 + h * 8 + g, pairs - 1);
                        u64 bits = sees(p.rows, job, job.row + pair / GROUP, key, p.window, p.window_tail);
                        if (bits & bad) sum[r][h] = __uint_as_float(0x7fc00000u);
                        bits >>= column + 2 * t;
#pragma unroll
                        for (int c = 0; c < STEP / 8; c++) {
                            if (!(bits >> (8 * c) & 1)) score[r][c][2 * h] = MINUS_INFINITY;
                            if (!(bits >> (8 * c) & 2)) score[r][c][2 * h + 1] = MINUS_INFINITY;
                        }
                    }
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS_M; r++) {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    float most = top[r][h];
#pragma unroll
                    for (int c = 0; c < STEP / 8; c++)
                        most = fmaxf(most, fmaxf(score[r][c][2 * h], score[r][c][2 * h + 1]) * LOG2_E);
                    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
                    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
                    float scale = most == top[r][h] ? 1.0f : exp2_approx(top[r][h] - most);
                    float less = most == MINUS_INFINITY ? 0.0f : most;
                    top[r][h] = most;
                    sum[r][h] *= scale;
#pragma unroll
                    for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
                        for (int i = 2 * h; i < 2 * h + 2; i++) {
                            score[r][c][i] = exp2_approx(score[r][c][i] * LOG2_E - less);
                            sum[r][h] += score[r][c][i];
                        }
                    }
#pragma unroll
                    for (int c = 0; c < COLUMNS; c++) acc[r][c][2 * h] *= scale, acc[r][c][2 * h + 1] *= scale;
                }
            }
#pragma unroll
            for (int c = 0; c < STEP / 16; c++) {
                u32 a[ROWS_M][4];
#pragma unroll
                for (int r = 0; r < ROWS_M; r++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const float *from = score[r][2 * c + i / 2];
                        a[r][i] = pack_bf16x2(from[i % 2 * 2], from[i % 2 * 2 + 1]);
                    }
                }
#pragma unroll
                for (int d = 0; d < DIM / 16; d++) {
                    u32 b[4];
                    ldmatrix_x4_trans(b, chunk_at(values, column + c * 16 + lane % 16, 2 * d + lane / 16));
#pragma unroll
                    for (int r = 0; r < ROWS_M; r++) {
                        mma_bf16_16816(acc[r][2 * d], a[r], b[0], b[1]);
                        mma_bf16_16816(acc[r][2 * d + 1], a[r], b[2], b[3]);
                    }
                }
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS_M; r++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            sum[r][h] += __shfl_xor_sync(0xffffffffu, sum[r][h], 1);
            sum[r][h] += __shfl_xor_sync(0xffffffffu, sum[r][h], 2);
        }
    }

#if WARPS_N > 1
    // The warps of one tile each saw a part of every step: put together here, in the order of the warps.
    cp_async_wait<0>();
    __syncthreads();
    float *shared_acc = (float *)stages;                    // [WARPS_M · WARPS_N][16 · ROWS_M][DIM]
    float *shared_top = shared_acc + WARPS_N * TILE_M * DIM; // [..][16 · ROWS_M][2]
#pragma unroll
    for (int r = 0; r < ROWS_M; r++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            u32 at = (warp * ROWS_M + r) * 16 + h * 8 + g;
            if (t == 0) shared_top[2 * at] = top[r][h], shared_top[2 * at + 1] = sum[r][h];
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                float two[2] = {acc[r][c][2 * h], acc[r][c][2 * h + 1]};
                store(shared_acc + at * DIM + c * 8 + 2 * t, two);
            }
        }
    }
    __syncthreads();
    for (u32 item = threadIdx.x; item < pairs * (DIM / 4); item += THREADS) {
        u32 m = item / (DIM / 4), d = item % (DIM / 4) * 4;
        u32 at = m / (16 * ROWS_M) * WARPS_N * (16 * ROWS_M) + m % (16 * ROWS_M);
        float most = MINUS_INFINITY, whole = 0.0f, mixed[4];
        clear(mixed);
#pragma unroll
        for (int w = 0; w < WARPS_N; w++) most = fmaxf(most, shared_top[2 * (at + w * 16 * ROWS_M)]);
#pragma unroll
        for (int w = 0; w < WARPS_N; w++) {
            u32 from = at + w * 16 * ROWS_M;
            float scale = shared_top[2 * from] == most ? 1.0f : exp2_approx(shared_top[2 * from] - most), more[4];
            load(shared_acc + from * DIM + d, more);
            whole += shared_top[2 * from + 1] * scale;
#pragma unroll
            for (int i = 0; i < 4; i++) mixed[i] += more[i] * scale;
        }
        Target to = target_of(p, job, m);
        if (to.out) {
            float over = whole == 0.0f ? 0.0f : 1.0f / whole;
#pragma unroll
            for (int i = 0; i < 4; i++) mixed[i] *= over;
            store(to.out + d, mixed);
        } else {
            store(to.part + d, mixed);
            if (d == 0) to.top[0] = most, to.top[1] = whole;
        }
    }
#else
#pragma unroll
    for (int r = 0; r < ROWS_M; r++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            u32 m = warp_m + r * 16 + h * 8 + g;
            if (m >= pairs) continue;
            Target to = target_of(p, job, m);
            float over = !to.out ? 1.0f : sum[r][h] == 0.0f ? 0.0f : 1.0f / sum[r][h];
            if (!to.out && t == 0) to.top[0] = top[r][h], to.top[1] = sum[r][h];
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                float two[2] = {acc[r][c][2 * h] * over, acc[r][c][2 * h + 1] * over};
                if (to.out) {
                    store(to.out + c * 8 + 2 * t, two);
                } else {
                    store(to.part + c * 8 + 2 * t, two);
                }
            }
        }
    }
#endif
}
