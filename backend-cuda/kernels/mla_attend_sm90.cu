// Latent attention in bf16 by wgmma: the Hopper form of the 64-row tile, for 512 + 64 numbers.
//
// Two warpgroups take chunks of 64 keys in turn: the one makes scores and weights of the even chunks (stage 0), the other of the
// odd ones (stage 1), and each multiplies the weights of both with its own half of the value columns. So the softmax of the one
// runs beside products of the other, and the output of a tile (64 x 512, f32) fits the registers of two warpgroups.
// Weights stay in registers for the warpgroup that made them, and go to the rotary part of their chunk for the other.
// No barrier says that a chunk is free: whoever has read a part last copies the next chunk into it. Those are, of the even stage,
// panels 0..3 the first warpgroup, 4..7 and the rotary part the second; of the odd stage the rotary part goes to the first.
// Defines: HEADS, KV_LORA = 512, ROPE = 64, TILE = 64, ACT_BF16.
#include "mla_split.cuh"
#include "wgmma.cuh"

#define THREADS 256
#define PANEL_BYTES 8192 // 64 rows x 64 columns, swizzled by 128 bytes
#define PANELS 9
#define HALF_PANELS 4
#define STAGE_BYTES (PANELS * PANEL_BYTES)
#define ROTARY (8 * PANEL_BYTES)
// Named barriers, two of each, for even and odd chunks:
#define WEIGHED 1 // the weights and what goes with them are there
#define SCORED 3  // the warpgroup has read the keys
static_assert(KV_LORA == 512 && ROPE == 64 && TILE == 64, "shape");

#if defined(TL_SM90A) || defined(TL_EMULATED)

// Queues the copy of some panels of 64 rows by one warpgroup; rows from `valid` on become zero.
TL_DEVICE void copy_panels(u8 *to, const act *from, u32 first, u32 count, u32 valid) {
    u32 thread = threadIdx.x % 128, column = thread % 8, row = thread / 8;
    to += first * PANEL_BYTES + row * 128 + ((column ^ row) & 7) * 16;
    from += (u64)row * DIM + first * 64 + column * 8;
    for (u32 panel = 0; panel < count; panel++) {
#pragma unroll
        for (u32 r = 0; r < 64; r += 16) {
            cp_async16_zfill(to + panel * PANEL_BYTES + r * 128, from + r * DIM + panel * 64, row + r < valid);
        }
    }
}

// The part of a chunk that warpgroup `group` copies, and its arrival.
TL_DEVICE void copy_chunk(u8 *stage, const act *keys, u32 valid, u32 group, u32 parity, u64 *full) {
    copy_panels(stage, keys, group * HALF_PANELS, HALF_PANELS, valid);
    if (group != parity) copy_panels(stage, keys, 8, 1, valid);
    mbar_arrive_copies(full);
}

// A panel as operand: its rows are those of the product, or (`values`) the columns of four panels are.
TL_DEVICE u64 operand(const u8 *panel) { return wgmma_operand(panel, PANEL_BYTES, 1024, WGMMA_SWIZZLE_128); }

// What a warpgroup knows of the two rows that a thread has: largest score (not scaled), sum of its weights.
struct Softmax {
    float most[2];
    float sum[2];
};

// Turns scores into weights: in registers as operand, and in shared memory for the other warpgroup.
TL_DEVICE void weigh(float (&s)[32], u32 (&w)[4][4], Softmax &state, float (&factor)[2], u8 *weights) {
    u32 lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float high = NEVER;
#pragma unroll
        for (int j = 0; j < 8; j++) high = fmaxf(high, fmaxf(s[j * 4 + h * 2], s[j * 4 + h * 2 + 1]));
        high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 1));
        high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 2));
        high = fmaxf(high, state.most[h]);
        // A row that has seen no key yet: its scores are all -inf, and -inf - 0 stays so.
        float base = high == NEVER ? 0.0f : high * LOG2E;
        factor[h] = exp2_approx(state.most[h] * LOG2E - base);
        state.most[h] = high;
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            u32 word = pack_bf16x2(exp2_approx(s[j * 4 + h * 2] * LOG2E - base),
                                   exp2_approx(s[j * 4 + h * 2 + 1] * LOG2E - base));
            // The sum of what is multiplied, so that rounding cancels.
            sum += bf16_lo(word) + bf16_hi(word);
            w[j / 2][j % 2 * 2 + h] = word;
            u32 r = row + h * 8;
            *(u32 *)(weights + r * 128 + ((j ^ r) & 7) * 16 + lane % 4 * 4) = word;
        }
        state.sum[h] = state.sum[h] * factor[h] + sum;
    }
}

TL_DEVICE void rescale(float (&out)[128], const float (&factor)[2]) {
    bool same = factor[0] == 1.0f && factor[1] == 1.0f;
    if (__all_sync(0xffffffffu, same)) return;
#pragma unroll
    for (int i = 0; i < 128; i++) out[i] *= factor[i / 2 % 2];
}

// Scores of a chunk, waited for.
TL_DEVICE void score(float (&s)[32], const u8 *query, const u8 *stage) {
    u64 a = operand(query), b = operand(stage);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < DIM / 16; k++) {
        u32 at = k / 4 * PANEL_BYTES + k % 4 * 32;
        wgmma_ss<0, 0>(s, wgmma_advance(a, at), wgmma_advance(b, at), k > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_keep(s);
}

// Queues out += weights x values over half of the columns; weights in registers, or in the rotary part of the stage.
TL_DEVICE void values_mine(float (&out)[128], const u32 (&w)[4][4], const u8 *stage, u32 group) {
    u64 v = operand(stage + group * HALF_PANELS * PANEL_BYTES);
    wgmma_keep(out);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++) wgmma_rs<1>(out, w[k], wgmma_advance(v, k * 2048), true);
    wgmma_commit();
}
TL_DEVICE void values_other(float (&out)[128], const u8 *stage, u32 group) {
    u64 v = operand(stage + group * HALF_PANELS * PANEL_BYTES), w = operand(stage + ROTARY);
    wgmma_keep(out);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++) wgmma_ss<0, 1>(out, wgmma_advance(w, k * 32), wgmma_advance(v, k * 2048), true);
    wgmma_commit();
}

// Makes scores of unseen keys -inf and unseen values finite.
TL_DEVICE void mask(const MlaArgs &p, const MlaSpan &span, float (&s)[32], u32 begin, const u32 (&row)[2], u32 key, u8 *stage) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        u64 seen = mla_seen(p, span, begin, row[h], key) >> (threadIdx.x % 4 * 2);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            if (!(seen >> (j * 8) & 1)) s[j * 4 + h * 2] = NEVER;
            if (!(seen >> (j * 8 + 1) & 1)) s[j * 4 + h * 2 + 1] = NEVER;
        }
    }
    mla_clean(stage, span, key, p.window, threadIdx.x % 128, 128);
}
#endif

TL_KERNEL(mla_attend_sm90, MlaArgs, THREADS) {
#if defined(TL_SM90A) || defined(TL_EMULATED)
    TL_SHARED(shared);
    u8 *query = shared + (1024 - shared_addr(shared) % 1024) % 1024, *stages = query + STAGE_BYTES;
    u64 *full = (u64 *)(stages + 2 * STAGE_BYTES);   // [2] chunks have arrived
    float *told = (float *)(full + 2);               // [2][2][64] largest score and factor that a warpgroup tells the other
    u32 group = threadIdx.x / 128, lane = threadIdx.x % 32;
    u32 row0 = threadIdx.x % 128 / 32 * 16 + lane / 4;
    u8 *stage = stages + group * STAGE_BYTES, *other = stages + (1 - group) * STAGE_BYTES;
    float *tell = told + group * 128, *hear = told + (1 - group) * 128;

    griddep_wait();
    griddep_launch();
    u32 before, total = mla_total(p.rows, p.seqs, p.window, 0, before);
    u32 blocks = min(p.blocks, total);
    if (blockIdx.x >= blocks) return;
    if (threadIdx.x == 0) {
        mbar_init(full, THREADS);
        mbar_init(full + 1, THREADS);
        mbar_fence_init();
    }
    __syncthreads();
    u32 unit = mla_begin(total, blockIdx.x, blocks), end = mla_begin(total, blockIdx.x + 1, blocks), parity = 0;
    while (unit < end) {
        MlaPlace at = mla_place(p, unit, end);
        u32 count = at.count, begin = at.begin;
        MlaSpan span = at.span;
        u32 first_key = span.from + at.chunk * KEYS;
        const act *keys = p.cache + ((u64)p.rows.seq_kv[at.seq] + first_key) * DIM;
        const act *q = p.q + mla_pair(at) * DIM;
        copy_panels(query, q, group * HALF_PANELS, HALF_PANELS + group, mla_valid(at));
        copy_chunk(stages, keys, span.keys - first_key, group, 0, full);
        if (count > 1) {
            copy_chunk(stages + STAGE_BYTES, keys + KEYS * DIM, span.keys - first_key - KEYS, group, 1, full + 1);
        }
        u32 row[2];
#pragma unroll
        for (int h = 0; h < 2; h++) row[h] = begin + min((at.tile * TILE + row0 + h * 8) / HEADS, span.rows - 1);
        Softmax state = {{NEVER, NEVER}, {0.0f, 0.0f}};
        float out[128];
#pragma unroll
        for (int i = 0; i < 128; i++) out[i] = 0.0f;

        for (u32 pair = 0; pair < count; pair += 2) {
            bool odd = pair + 1 < count; // whether the pair has both chunks
            u32 mine = pair + group, key = first_key + mine * KEYS;
            float s[32], factor[2];
            u32 w[4][4];
            if (group == 0 || odd) {
                mbar_wait(full + group, parity);
                parity ^= 1;
                fence_async();
                score(s, query, stage);
                // Each warp waits for its own rows alone, and all read the rotary part that now gets the weights.
                bar_sync(SCORED + group, 128);
                if (mla_edge(span, key, p.window)) mask(p, span, s, begin, row, key, stage);
            }
            if (group == 0) {
                weigh(s, w, state, factor, stage + ROTARY);
                if (lane % 4 == 0) {
#pragma unroll
                    for (int h = 0; h < 2; h++) tell[row0 + h * 8] = state.most[h], tell[64 + row0 + h * 8] = factor[h];
                }
                fence_async();
                bar_arrive(WEIGHED, THREADS);
                rescale(out, factor);
                values_mine(out, w, stage, 0);
                if (odd) bar_sync(WEIGHED + 1, THREADS);
                wgmma_wait<0>();
                wgmma_keep(out);
            } else {
                bar_sync(WEIGHED, THREADS);
                fence_async();
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    state.most[h] = hear[row0 + h * 8], factor[h] = hear[64 + row0 + h * 8];
                    state.sum[h] *= factor[h];
                }
                rescale(out, factor);
                values_other(out, other, 1);
                if (odd) {
                    weigh(s, w, state, factor, stage + ROTARY);
                    if (lane % 4 == 0) {
#pragma unroll
                        for (int h = 0; h < 2; h++) {
                            tell[row0 + h * 8] = state.most[h], tell[64 + row0 + h * 8] = factor[h];
                        }
                    }
                    fence_async();
                    bar_arrive(WEIGHED + 1, THREADS);
                }
                wgmma_wait<0>();
                wgmma_keep(out);
            }
            // The even chunk is done with.
            u32 next = pair + 2;
            if (next < count) {
                copy_chunk(stages, keys + (u64)next * KEYS * DIM, span.keys - first_key - next * KEYS, group, 0, full);
            }
            if (odd) {
                if (group == 0) {
                    fence_async();
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        state.most[h] = hear[row0 + h * 8], factor[h] = hear[64 + row0 + h * 8];
                        state.sum[h] *= factor[h];
                    }
                    rescale(out, factor);
                    values_other(out, other, 0);
                } else {
                    rescale(out, factor);
                    values_mine(out, w, stage, 1);
                }
                wgmma_wait<0>();
                wgmma_keep(out);
                next++;
                if (next < count) {
                    copy_chunk(stages + STAGE_BYTES, keys + (u64)next * KEYS * DIM, span.keys - first_key - next * KEYS,
                               group, 1, full + 1);
                }
            }
        }

        // The sums of both warpgroups refer to the same largest score.
#pragma unroll
        for (int h = 0; h < 2; h++) {
            state.sum[h] += __shfl_xor_sync(0xffffffffu, state.sum[h], 1);
            state.sum[h] += __shfl_xor_sync(0xffffffffu, state.sum[h], 2);
        }
        __syncthreads();
        if (lane % 4 == 0) tell[row0] = state.sum[0], tell[row0 + 8] = state.sum[1];
        __syncthreads();
        // Found again: to keep all of it through the loop would take registers that the loop needs.
        at = mla_place(p, unit, end);
        bool whole = at.count == at.span.chunks;
        u32 slot = mla_slot(blockIdx.x, at.chunk == 0), valid = mla_valid(at);
        u64 pair0 = mla_pair(at);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            u32 r = row0 + h * 8;
            if (r >= valid) continue;
            float sum = told[r] + told[128 + r];
            u32 c = group * 256 + lane % 4 * 2;
            if (whole) {
                float scale = sum == 0.0f ? 0.0f : 1.0f / sum;
                act *to = p.out + (pair0 + r) * KV_LORA + c;
#pragma unroll
                for (int n = 0; n < 32; n++) {
                    *(u32 *)(to + n * 8) = pack_bf16x2(out[n * 4 + h * 2] * scale, out[n * 4 + h * 2 + 1] * scale);
                }
            } else {
                if (group == 0 && lane % 4 == 0) {
                    p.part_norm[(u64)slot * TILE + r] = float2{state.most[h] * LOG2E, sum};
                }
                float *to = p.part + ((u64)slot * TILE + r) * KV_LORA + c;
#pragma unroll
                for (int n = 0; n < 32; n++) {
                    *(float2 *)(to + n * 8) = float2{out[n * 4 + h * 2], out[n * 4 + h * 2 + 1]};
                }
            }
        }
        unit += at.count;
        __syncthreads(); // shared memory is free for the next tile
    }
#endif
}
