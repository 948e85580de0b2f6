// Latent attention in bf16 by mma.sync: the form that runs on every architecture.
//
// A block holds TILE (row, head) pairs: their queries in shared memory, their output (TILE x KV_LORA, f32) in registers, spread
// over 8 warps by columns. Keys come in chunks of 64 rows, two of them on the way; a chunk is read from memory once and used as
// keys (by rows) and as values (transposed by ldmatrix). Weights go to the rotary part of the same chunk, which is not needed after
// the scores. Defines: HEADS, KV_LORA, ROPE, TILE (16, 32 or 64), ACT_BF16.
#include "mla_split.cuh"

#define THREADS 256
#define WARPS 8
#define ROW_WARPS (TILE / 16)        // warps beside each other along the rows of the scores
#define KEY_WARPS (WARPS / ROW_WARPS) // and along the keys
#define KEY_TILES (KEYS / KEY_WARPS / 8)
#define PANELS ((DIM + 63) / 64) // a panel is 64 columns of all rows: rows of 128 bytes, swizzled
#define PIECES ((DIM + 31) / 32 * 4) // pieces of 8 numbers that products read; those behind DIM are zero
#define COLUMNS (KV_LORA / WARPS)
#define QUERY_BYTES (PANELS * TILE * 128)
#define CHUNK_BYTES (PANELS * KEYS * 128)
#define VALUE_STEPS (TILE == 64 ? 2 : 4) // products in flight: as many as registers allow
#define WEIGHT_PANEL (KV_LORA / 64)
static_assert(KV_LORA % 128 == 0 && DIM % 8 == 0 && PANELS > WEIGHT_PANEL, "shape");
static_assert(COLUMNS % 16 == 0, "shape");

// Offset of a piece. Eight rows at the same piece lie in different banks.
TL_DEVICE u32 piece_at(u32 rows, u32 row, u32 piece) { return (piece / 8 * rows + row) * 128 + ((piece ^ row) & 7) * 16; }

// Queues the copy of the queries; rows from `valid` on become zero, and so do pieces behind DIM.
TL_DEVICE void copy_queries(u8 *to, const act *from, u32 valid) {
    u32 column = threadIdx.x % 8, row = threadIdx.x / 8;
#pragma unroll
    for (int panel = 0; panel < PANELS; panel++) {
        u32 piece = panel * 8 + column;
#pragma unroll
        for (int r = 0; r < TILE; r += THREADS / 8) {
            if (piece < PIECES && r + row < TILE) {
                bool real = r + row < valid && piece * 8 < DIM;
                cp_async16_zfill(to + piece_at(TILE, r + row, piece), from + (u64)(r + row) * DIM + piece * 8, real);
            }
        }
    }
}

// Queues the copy of the value columns of a chunk, each warp its own.
TL_DEVICE void copy_values(u8 *to, const act *from, u32 valid) {
    const u32 pieces = COLUMNS / 8;
    u32 lane = threadIdx.x % 32, piece = threadIdx.x / 32 * pieces + lane % pieces, row = lane / pieces;
#pragma unroll
    for (u32 r = 0; r < KEYS; r += 32 / pieces) {
        if (row < 32 / pieces && r + row < KEYS) {
            cp_async16_zfill(to + piece_at(KEYS, r + row, piece), from + (r + row) * DIM + piece * 8, r + row < valid);
        }
    }
}

// Queues the copy of the columns behind the values.
TL_DEVICE void copy_rotary(u8 *to, const act *from, u32 valid) {
    u32 piece = KV_LORA / 8 + threadIdx.x % 8, row = threadIdx.x / 8;
    static_assert(PIECES - KV_LORA / 8 <= 8, "shape");
#pragma unroll
    for (u32 r = 0; r < KEYS; r += THREADS / 8) {
        if (piece < PIECES) {
            bool real = r + row < valid && piece * 8 < DIM;
            cp_async16_zfill(to + piece_at(KEYS, r + row, piece), from + (r + row) * DIM + piece * 8, real);
        }
    }
}

// The other of the two stages.
TL_DEVICE u8 *other(u8 *here, u8 *stage) { return here == stage ? stage + CHUNK_BYTES : stage; }

#if TILE == 64
// Scores of 16 rows and 32 keys. A warp multiplies 32 rows and 32 keys over every second product, and gives half of that to the
// warp with the other products: for the same work it reads 32 + 32 rows where 16 rows and all products would read 16 + 32.
TL_DEVICE void multiply_keys(float (&s)[KEY_TILES][4], const u8 *query, u8 *chunk, float4 *spare) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, half = warp / 4;
    u32 row0 = warp % 2 * 32, key0 = warp / 2 % 2 * 32;
    float part[2][4][4];
#pragma unroll
    for (int i = 0; i < 32; i++) part[i / 16][i / 4 % 4][i % 4] = 0.0f;
#pragma unroll 9
    for (int k = 0; k < PIECES / 2; k += 2) {
        u32 at = (k + half) * 2;
        u32 a[2][4];
#pragma unroll
        for (int m = 0; m < 2; m++) {
            ldmatrix_x4(a[m], query + piece_at(TILE, row0 + m * 16 + lane % 16, at + lane / 16));
        }
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            u32 b[4];
            u32 key = key0 + j * 8 + lane / 16 * 8 + lane % 8;
            ldmatrix_x4(b, chunk + piece_at(KEYS, key, at + lane / 8 % 2));
#pragma unroll
            for (int m = 0; m < 2; m++) {
                mma_bf16_16816(part[m][j], a[m], b[0], b[1]);
                mma_bf16_16816(part[m][j + 1], a[m], b[2], b[3]);
            }
        }
    }
    __syncthreads(); // everyone has read the rotary part
    float4 *from = (float4 *)(chunk + WEIGHT_PANEL * KEYS * 128) + warp % 4 * 128, *to = spare + warp % 4 * 128;
    float4 *give = half ? from : to, *take = half ? to : from;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        // Indices must be known to the compiler, or the array goes to memory.
        float(&mine)[4] = s[j];
#pragma unroll
        for (int e = 0; e < 4; e++) mine[e] = half ? part[1][j][e] : part[0][j][e];
        float4 other;
        other.x = half ? part[0][j][0] : part[1][j][0], other.y = half ? part[0][j][1] : part[1][j][1];
        other.z = half ? part[0][j][2] : part[1][j][2], other.w = half ? part[0][j][3] : part[1][j][3];
        give[j * 32 + lane] = other;
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float4 other = take[j * 32 + lane];
        s[j][0] += other.x, s[j][1] += other.y, s[j][2] += other.z, s[j][3] += other.w;
    }
}
#else
// Scores of this warp's 16 rows and KEY_TILES x 8 keys.
TL_DEVICE void multiply_keys(float (&s)[KEY_TILES][4], const u8 *query, const u8 *chunk, u32 row0, u32 key0) {
    u32 lane = threadIdx.x % 32;
    // Even and odd products have sums of their own: chains of half the length.
    float odd[KEY_TILES][4];
#pragma unroll
    for (int j = 0; j < KEY_TILES; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++) s[j][e] = odd[j][e] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < PIECES / 4; k++) {
        u32 a[4], c[4];
        ldmatrix_x4(a, query + piece_at(TILE, row0 + lane % 16, k * 4 + lane / 16));
        ldmatrix_x4(c, query + piece_at(TILE, row0 + lane % 16, k * 4 + 2 + lane / 16));
#pragma unroll
        for (int j = 0; j < KEY_TILES; j++) {
            u32 b[4];
            ldmatrix_x4(b, chunk + piece_at(KEYS, key0 + j * 8 + lane % 8, k * 4 + lane / 8));
            mma_bf16_16816(s[j], a, b[0], b[1]);
            mma_bf16_16816(odd[j], c, b[2], b[3]);
        }
    }
#pragma unroll
    for (int j = 0; j < KEY_TILES; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++) s[j][e] += odd[j][e];
    }
}
#endif

// out += weights x values for this warp's columns.
TL_DEVICE void multiply_values(float (&out)[ROW_WARPS][COLUMNS / 8][4], const u8 *chunk, u32 column) {
    u32 lane = threadIdx.x % 32;
    const u8 *weights = chunk + WEIGHT_PANEL * KEYS * 128;
#pragma unroll VALUE_STEPS
    for (int k = 0; k < KEYS / 16; k++) {
        u32 a[ROW_WARPS][4];
#pragma unroll
        for (int m = 0; m < ROW_WARPS; m++) {
            ldmatrix_x4(a[m], weights + piece_at(KEYS, m * 16 + lane % 16, k * 2 + lane / 16));
        }
#pragma unroll
        for (int n = 0; n < COLUMNS / 16; n++) {
            u32 b[4];
            ldmatrix_x4_trans(b, chunk + piece_at(KEYS, k * 16 + lane % 16, column / 8 + n * 2 + lane / 16));
#pragma unroll
            for (int m = 0; m < ROW_WARPS; m++) {
                mma_bf16_16816(out[m][2 * n], a[m], b[0], b[1]);
                mma_bf16_16816(out[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

TL_KERNEL_RESIDENT(mla_attend_smxx, MlaArgs, THREADS, 1) {
    TL_SHARED(shared);
    u8 *query = shared, *stage = shared + QUERY_BYTES;
    float *top = (float *)(stage + 2 * CHUNK_BYTES); // [KEY_WARPS][TILE]
    float *rescale = top + KEY_WARPS * TILE;         // [TILE]
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#if TILE == 64
    float4 *spare = (float4 *)(rescale + TILE); // 8 KB
    u32 row0 = warp % 2 * 32 + warp / 4 * 16, key_warp = warp / 2 % 2, key0 = key_warp * 32;
#else
    u32 row0 = warp % ROW_WARPS * 16, key_warp = warp / ROW_WARPS, key0 = key_warp * KEY_TILES * 8;
#endif
    u32 column = warp * COLUMNS;

    griddep_wait();
    griddep_launch();
    u32 before, total = mla_total(p.rows, p.seqs, p.window, 0, before);
    u32 blocks = mla_blocks(p, total);
    if (blockIdx.x >= blocks) return;
    u32 unit = mla_begin(total, blockIdx.x, blocks), end = mla_begin(total, blockIdx.x + 1, blocks);
    while (unit < end) {
        MlaPlace at = mla_place(p, unit, end);
        u32 count = at.count, begin = at.begin;
        MlaSpan span = at.span;
        u32 key = span.from + at.chunk * KEYS;
        const act *keys = p.cache + ((u64)p.rows.seq_kv[at.seq] + key) * DIM;
        copy_queries(query, p.q + mla_pair(at) * DIM, mla_valid(at));
        copy_values(stage, keys, span.keys - key);
        copy_rotary(stage, keys, span.keys - key);
        cp_async_commit();
        if (count > 1) copy_values(stage + CHUNK_BYTES, keys + KEYS * DIM, span.keys - key - KEYS);
        cp_async_commit();

        // The two rows that this lane has of the scores.
        u32 pass_row[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            pass_row[h] = begin + min((at.tile * TILE + row0 + lane / 4 + h * 8) / HEADS, span.rows - 1);
        }
        float most[2] = {NEVER, NEVER}, sum[2] = {0.0f, 0.0f};
        float out[ROW_WARPS][COLUMNS / 8][4];
#pragma unroll
        for (int m = 0; m < ROW_WARPS; m++) {
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) out[m][n][e] = 0.0f;
            }
        }

        // `i` chunks are left; the one that begins at `key` lies in `here`.
        u8 *here = stage;
        for (u32 i = count; i > 0; i--, key += KEYS, keys += KEYS * DIM) {
            cp_async_wait<1>();
            __syncthreads(); // the chunk is there, and everyone has done with the weights of the one before
            if (i > 1) copy_rotary(other(here, stage), keys + KEYS * DIM, span.keys - key - KEYS);
            cp_async_commit();
            float s[KEY_TILES][4];
#if TILE == 64
            multiply_keys(s, query, here, spare);
#else
            multiply_keys(s, query, here, row0, key0);
#endif
            bool edge = mla_edge(span, key, p.window);
            bool bad = false;
            if (edge) {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    u64 seen = mla_seen(p, span, begin, pass_row[h], key) >> (key0 + lane % 4 * 2);
#pragma unroll
                    for (int j = 0; j < KEY_TILES; j++) {
                        bad |= not_finite(s[j][2 * h]) | not_finite(s[j][2 * h + 1]);
                        if (!(seen >> (j * 8) & 1)) s[j][2 * h] = NEVER;
                        if (!(seen >> (j * 8 + 1) & 1)) s[j][2 * h + 1] = NEVER;
                    }
                }
            }
            float high[2] = {NEVER, NEVER};
#pragma unroll
            for (int j = 0; j < KEY_TILES; j++) {
#pragma unroll
                for (int e = 0; e < 4; e++) high[e / 2] = fmaxf(high[e / 2], s[j][e]);
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                high[h] = fmaxf(high[h], __shfl_xor_sync(0xffffffffu, high[h], 1));
                high[h] = fmaxf(high[h], __shfl_xor_sync(0xffffffffu, high[h], 2));
                if (lane % 4 == 0) top[key_warp * TILE + row0 + lane / 4 + h * 8] = high[h];
            }
            __syncthreads(); // scores are done: the rotary part of the chunk is free
            // Warps with the same keys share the columns.
            if (edge && __any_sync(0xffffffffu, bad)) {
                mla_clean(here, key0, key0 + KEY_TILES * 8, row0 * 2 + lane, ROW_WARPS * 32);
            }
            float base[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float now = most[h];
#pragma unroll
                for (int w = 0; w < KEY_WARPS; w++) now = fmaxf(now, top[w * TILE + row0 + lane / 4 + h * 8]);
                // A row that has seen no key yet: its scores are all -inf, and -inf - 0 stays so.
                base[h] = now == NEVER ? 0.0f : now * LOG2E;
                float factor = exp2_approx(most[h] * LOG2E - base[h]);
                sum[h] *= factor;
                most[h] = now;
                if (key_warp == 0 && lane % 4 == 0) rescale[row0 + lane / 4 + h * 8] = factor;
            }
#pragma unroll
            for (int j = 0; j < KEY_TILES; j++) {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    u32 w = pack_bf16x2(exp2_approx(s[j][2 * h] * LOG2E - base[h]),
                                        exp2_approx(s[j][2 * h + 1] * LOG2E - base[h]));
                    // The sum of what is multiplied, so that rounding cancels.
                    sum[h] += bf16_lo(w) + bf16_hi(w);
                    u32 row = row0 + lane / 4 + h * 8;
                    u8 *weights = here + WEIGHT_PANEL * KEYS * 128;
                    *(u32 *)(weights + piece_at(KEYS, row, key0 / 8 + j) + lane % 4 * 4) = w;
                }
            }
            __syncthreads();
#pragma unroll
            for (int m = 0; m < ROW_WARPS; m++) {
                float up = rescale[m * 16 + lane / 4], down = rescale[m * 16 + lane / 4 + 8];
#pragma unroll
                for (int n = 0; n < COLUMNS / 8; n++) {
                    out[m][n][0] *= up, out[m][n][1] *= up;
                    out[m][n][2] *= down, out[m][n][3] *= down;
                }
            }
            multiply_values(out, here, column);
            // This warp alone has read these columns as values, and keys they were to all before: the chunk after next can come.
            __syncwarp();
            if (i > 2) copy_values(here, keys + 2 * KEYS * DIM, span.keys - key - 2 * KEYS);
            cp_async_commit();
            here = other(here, stage);
        }

        // Sums of a row: over the lanes of a quad, then over the warps along the keys.
        __syncthreads();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
            sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
            if (lane % 4 == 0) top[key_warp * TILE + row0 + lane / 4 + h * 8] = sum[h];
        }
        // Found again: to keep all of it through the loop would take registers that the loop needs.
        at = mla_place(p, unit, end);
        bool whole = at.count == at.span.chunks;
        u32 slot = mla_slot(blockIdx.x, at.chunk == 0), valid = mla_valid(at);
        u64 pair0 = mla_pair(at);
        __syncthreads();
        if (!whole && key_warp == 0 && lane % 4 == 0) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                u32 row = row0 + lane / 4 + h * 8;
                float norm = 0.0f;
                for (u32 w = 0; w < KEY_WARPS; w++) norm += top[w * TILE + row];
                if (row < valid) p.part_norm[(u64)slot * TILE + row] = float2{most[h] * LOG2E, norm};
            }
        }
#pragma unroll
        for (int m = 0; m < ROW_WARPS; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                u32 row = m * 16 + lane / 4 + h * 8;
                if (row >= valid) continue;
                u32 c = column + lane % 4 * 2;
                if (whole) {
                    float norm = 0.0f;
                    for (u32 w = 0; w < KEY_WARPS; w++) norm += top[w * TILE + row];
                    float scale = norm == 0.0f ? 0.0f : 1.0f / norm;
                    act *to = p.out + (pair0 + row) * KV_LORA + c;
#pragma unroll
                    for (int n = 0; n < COLUMNS / 8; n++) {
                        *(u32 *)(to + n * 8) = pack_bf16x2(out[m][n][2 * h] * scale, out[m][n][2 * h + 1] * scale);
                    }
                } else {
                    float *to = p.part + ((u64)slot * TILE + row) * KV_LORA + column + lane % 4 * 4;
#pragma unroll
                    for (int n = 0; n < COLUMNS / 8; n += 2) {
                        *(float4 *)(to + n * 8) = float4{out[m][n][2 * h], out[m][n][2 * h + 1], out[m][n + 1][2 * h],
                                                         out[m][n + 1][2 * h + 1]};
                    }
                }
            }
        }
        unit += at.count;
        __syncthreads(); // shared memory is free for the next tile
    }
}
