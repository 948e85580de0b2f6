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

// Scores of a chunk, waited for. The halves of the columns begin as they arrive.
TL_DEVICE void score(float (&s)[32], const u8 *query, const u8 *stage, u64 *full, u32 parity) {
    u64 a = operand(query), b = operand(stage);
    mbar_wait(full, parity);
    fence_async();
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < DIM / 16; k++) {
        if (k == HALF_PANELS * 4) {
            wgmma_commit();
            mbar_wait(full + 1, parity);
            fence_async();
            wgmma_fence();
        }
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

// Makes scores of unseen keys -inf; whether some key is not finite.
TL_DEVICE bool mask(const MlaArgs &p, const MlaSpan &span, float (&s)[32], u32 begin, u32 tile, u32 key) {
    bool bad = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        u32 pair = tile * TILE + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + h * 8;
        u32 row = begin + min(pair / HEADS, span.rows - 1);
        u64 seen = mla_seen(p, span, begin, row, key) >> (threadIdx.x % 4 * 2);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            bad |= not_finite(s[j * 4 + h * 2]) | not_finite(s[j * 4 + h * 2 + 1]);
            if (!(seen >> (j * 8) & 1)) s[j * 4 + h * 2] = NEVER;
            if (!(seen >> (j * 8 + 1) & 1)) s[j * 4 + h * 2 + 1] = NEVER;
        }
    }
    return __any_sync(0xffffffffu, bad);
}
// What the warpgroups tell each other of a chunk: largest score and factor of each row.
TL_DEVICE void tell(float *to, const Softmax &state, const float (&factor)[2]) {
    u32 row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    if (threadIdx.x % 4 != 0) return;
#pragma unroll
    for (int h = 0; h < 2; h++) to[row + h * 8] = state.most[h], to[64 + row + h * 8] = factor[h];
}
TL_DEVICE void hear(const float *from, Softmax &state, float (&factor)[2]) {
    u32 row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        state.most[h] = from[row + h * 8], factor[h] = from[64 + row + h * 8];
        state.sum[h] *= factor[h];
    }
}

// Shared memory of a block, by its first byte (one register): queries, the two stages, and
#define STAGES STAGE_BYTES
#define FULL (3 * STAGE_BYTES) // barriers [stage][half of the columns]: has arrived
#define TOLD (FULL + 32)       // [warpgroup][2][64] floats
TL_DEVICE u64 *full(u8 *room, u32 odd) { return (u64 *)(room + FULL) + odd * 2; }
TL_DEVICE float *told(u8 *room, u32 odd) { return (float *)(room + TOLD) + odd * 128; }

// The part of a chunk that warpgroup `group` copies, and its arrival.
TL_DEVICE void copy_chunk(u8 *room, const act *keys, u32 valid, u32 group, u32 odd) {
    u8 *stage = room + STAGES + odd * STAGE_BYTES;
    copy_panels(stage, keys, group * HALF_PANELS, HALF_PANELS, valid);
    if (group != odd) copy_panels(stage, keys, 8, 1, valid);
    mbar_arrive_copies(full(room, odd) + group);
}

// Asks the second-level cache for the two chunks that are `ahead` further than the one at `key`, of which `left` remain: then the
// copies into a stage that has just become free, which are waited for, take less long. Of the tiles of a sequence, which read the
// same keys at the same time, each asks for its share.
TL_DEVICE void fetch_ahead(const MlaSpan &span, u32 tile, const act *keys, u32 key, u32 left, u32 ahead) {
    if (threadIdx.x != 0 || left <= ahead || key / (2 * KEYS) % span.tiles != tile) return;
    u32 rows = min(min(left * KEYS, span.keys - key) - ahead * KEYS, 2u * KEYS);
    prefetch_l2_bulk(keys + (u64)ahead * KEYS * DIM, rows * DIM * sizeof(act));
}

// All chunks of a tile that this block has, as warpgroup GROUP. `parity` is that of the next chunk of the own stage.
template <u32 GROUP>
TL_DEVICE void attend(const MlaArgs &p, const MlaPlace &at, u8 *room, u32 &parity, float (&out)[128], Softmax &state) {
    MlaSpan span = at.span;
    u32 begin = at.begin, key = span.from + at.chunk * KEYS;
    const act *keys = p.cache + ((u64)p.rows.seq_kv[at.seq] + key) * DIM;
    u8 *even = room + STAGES, *odd = even + STAGE_BYTES, *mine = GROUP ? odd : even;
    copy_panels(room, p.q + mla_pair(at) * DIM, GROUP * HALF_PANELS, HALF_PANELS + GROUP, mla_valid(at));
    copy_chunk(room, keys, span.keys - key, GROUP, 0);
    if (at.count > 1) copy_chunk(room, keys + KEYS * DIM, span.keys - key - KEYS, GROUP, 1);
    u32 tile = at.tile;
    if (GROUP == 0) fetch_ahead(span, tile, keys, key, at.count, 2);
    // `left` chunks are left; the one that begins at `key` is in the even stage.
    for (u32 left = at.count;; left -= 2) {
        if (GROUP == 0) fetch_ahead(span, tile, keys, key, left, 4);
        float s[32], factor[2];
        u32 w[4][4];
        bool bad = false;
        if (GROUP == 0 || left > 1) {
            score(s, room, mine, full(room, GROUP), parity);
            parity ^= 1;
            // Each warp waits for its own rows alone, and all read the rotary part that now gets the weights.
            bar_sync(SCORED + GROUP, 128);
            u32 first = key + GROUP * KEYS;
            bad = mla_edge(span, first, p.window) && mask(p, span, s, begin, tile, first);
        }
        if (GROUP == 0) {
            weigh(s, w, state, factor, even + ROTARY);
            tell(told(room, 0), state, factor);
            if (bad) mla_clean(mine, 0, KEYS, threadIdx.x % 32, 32); // each warp for itself: no barrier follows
            fence_async();
            bar_arrive(WEIGHED, THREADS);
            rescale(out, factor);
            values_mine(out, w, even, 0);
        } else {
            bar_sync(WEIGHED, THREADS);
            fence_async();
            hear(told(room, 0), state, factor);
            rescale(out, factor);
            values_other(out, even, 1);
            if (left > 1) {
                weigh(s, w, state, factor, odd + ROTARY);
                tell(told(room, 1), state, factor);
                if (bad) mla_clean(mine, 0, KEYS, threadIdx.x % 32, 32); // each warp for itself: no barrier follows
                fence_async();
                bar_arrive(WEIGHED + 1, THREADS);
            }
        }
        wgmma_wait<0>();
        wgmma_keep(out);
        if (left > 2) copy_chunk(room, keys + 2 * KEYS * DIM, span.keys - key - 2 * KEYS, GROUP, 0);
        if (left == 1) return;
        if (GROUP == 0) {
            bar_sync(WEIGHED + 1, THREADS);
            fence_async();
            hear(told(room, 1), state, factor);
            rescale(out, factor);
            values_other(out, odd, 0);
        } else {
            rescale(out, factor);
            values_mine(out, w, odd, 1);
        }
        wgmma_wait<0>();
        wgmma_keep(out);
        if (left > 3) copy_chunk(room, keys + 3 * KEYS * DIM, span.keys - key - 3 * KEYS, GROUP, 1);
        if (left == 2) return;
        key += 2 * KEYS, keys += 2 * KEYS * DIM;
    }
}
#endif

TL_KERNEL_RESIDENT(mla_attend_sm90, MlaArgs, THREADS, 1) {
#if defined(TL_SM90A) || defined(TL_EMULATED)
    TL_SHARED(shared);
    u8 *room = shared + (1024 - shared_addr(shared) % 1024) % 1024;
    u32 group = threadIdx.x / 128, lane = threadIdx.x % 32, row0 = threadIdx.x % 128 / 32 * 16 + lane / 4;

    griddep_wait();
    griddep_launch();
    u32 before, total = mla_total(p.rows, p.seqs, p.window, 0, before);
    u32 blocks = mla_blocks(p, total);
    if (blockIdx.x >= blocks) return;
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < 4; i++) mbar_init(full(room, 0) + i, THREADS / 2);
        mbar_fence_init();
    }
    __syncthreads();
    u32 unit = mla_begin(total, blockIdx.x, blocks), end = mla_begin(total, blockIdx.x + 1, blocks), parity = 0;
    while (unit < end) {
        MlaPlace at = mla_place(p, unit, end);
        Softmax state = {{NEVER, NEVER}, {0.0f, 0.0f}};
        float out[128];
#pragma unroll
        for (int i = 0; i < 128; i++) out[i] = 0.0f;
        if (group == 0) {
            attend<0>(p, at, room, parity, out, state);
        } else {
            attend<1>(p, at, room, parity, out, state);
        }

        // The sums of both warpgroups refer to the same largest score.
#pragma unroll
        for (int h = 0; h < 2; h++) {
            state.sum[h] += __shfl_xor_sync(0xffffffffu, state.sum[h], 1);
            state.sum[h] += __shfl_xor_sync(0xffffffffu, state.sum[h], 2);
        }
        __syncthreads();
        if (lane % 4 == 0) {
#pragma unroll
            for (int h = 0; h < 2; h++) told(room, 0)[group * 64 + row0 + h * 8] = state.sum[h];
        }
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
            float sum = told(room, 0)[r] + told(room, 0)[64 + r];
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
                float *to = p.part + ((u64)slot * TILE + r) * KV_LORA + group * 256 + lane % 4 * 4;
#pragma unroll
                for (int n = 0; n < 128; n += 8) {
                    *(float4 *)(to + n * 2) = float4{out[n + h * 2], out[n + h * 2 + 1], out[n + 4 + h * 2], out[n + 5 + h * 2]};
                }
            }
        }
        unit += at.count;
        __syncthreads(); // shared memory is free for the next tile
    }
#endif
}
