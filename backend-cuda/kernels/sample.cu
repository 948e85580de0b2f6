// The target's token of each row, as `treeline_core::sampling` chooses it: the first largest logit, or one Gumbel-max sample of
// the tempered and filtered distribution.
//
// `sample_max`: largest logit of each chunk. `sample_filter` (only where a request filters): the score that the last kept token
// has. `sample_draw` (only where a request samples): best noisy score of each chunk. `sample_pick`: the token.
//
// VOCAB, CHUNKS (of CHUNK logits a row), ALIGNED (whether rows begin at 16 bytes), DRAW and FILTER (what ran before).
#include "filter.cuh"
#include "philox.cuh"
#include "select.cuh"

#define THREADS 256
#define QUADS 8
#define LOG2E 1.4426950408889634f
#define CHUNK (THREADS * QUADS * 4)

struct SeqSampling {
    u64 seed;
    u64 request;
    float temperature;
    u32 top_k;
    float top_p;
    u32 unused;
};

struct SampleArgs {
    const float *logits;         // row stride `stride`
    const u32 *source;           // [rows] row of the pass of each row of logits, NONE = none; or null for the same
    const i32 *seq;              // [rows of the pass]
    const u32 *position;         // [rows of the pass]
    const SeqSampling *sampling; // [seqs]
    u64 *top;                    // [rows][CHUNKS] largest logit's key above ~token
    double *value;               // [rows][CHUNKS] best noisy score
    u32 *drawn;                  // [rows][CHUNKS] its token
    u64 *last_key;               // [rows] scores with a larger key are kept,
    u32 *last_token;             // [rows] those with this key up to this token
    u32 *out;                    // [rows] token, NONE = unusable row or padding
    u64 stride;
    u32 rows;
    u32 unused;
};

// A key no number has: the row is unusable.
#define UNUSABLE 0xffffffffffffffffull

struct Row {
    const float *logits;
    u32 seq, position; // seq NONE = padding
};

TL_DEVICE Row row_of(const SampleArgs &p, u32 row) {
    u32 from = p.source ? p.source[row] : row;
    if (from == NONE || p.seq[from] < 0) return Row{nullptr, NONE, 0};
    return Row{p.logits + (u64)row * p.stride, (u32)p.seq[from], p.position[from]};
}

TL_DEVICE void quad(const float *logits, u32 token, float (&x)[4]) {
    if (ALIGNED && token + 4 <= VOCAB) {
        uint4 w = ldg128(logits + token);
        x[0] = __uint_as_float(w.x), x[1] = __uint_as_float(w.y);
        x[2] = __uint_as_float(w.z), x[3] = __uint_as_float(w.w);
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) x[j] = token + j < VOCAB ? logits[token + j] : MINUS_INF;
    }
}

TL_KERNEL(sample_max, SampleArgs, THREADS) {
    __shared__ u64 parts[32];
    Row row = row_of(p, blockIdx.y);
    if (row.seq == NONE) return;
    float x[QUADS][4];
    u32 first = blockIdx.x * CHUNK;
#pragma unroll
    for (int i = 0; i < QUADS; i++) quad(row.logits, first + (i * THREADS + threadIdx.x) * 4, x[i]);
    float most = MINUS_INF;
    u32 token = 0;
    bool bad = false;
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            // NaN and +inf.
            bad |= !(x[i][j] < -MINUS_INF);
            if (x[i][j] > most) {
                most = x[i][j];
                token = first + (i * THREADS + threadIdx.x) * 4 + j;
            }
        }
    }
    // Adding 0 makes -0 a +0: equal numbers, of which the first counts.
    u64 key = most > MINUS_INF ? (u64)order_of(most + 0.0f) << 32 | (u32)~token : 0;
    key = block_max(bad ? UNUSABLE : key, parts);
    if (threadIdx.x == 0) p.top[(u64)blockIdx.y * CHUNKS + blockIdx.x] = key;
}

// Key of the row's argmax; 0 or UNUSABLE where there is none. For one whole warp.
TL_DEVICE u64 row_top(const SampleArgs &p, u32 row) {
    u64 key = 0;
    for (u32 c = threadIdx.x % 32; c < CHUNKS; c += 32) {
        u64 other = p.top[(u64)row * CHUNKS + c];
        key = other > key ? other : key;
    }
    return warp_max(key);
}

TL_DEVICE bool usable(u64 key) { return key != 0 && key != UNUSABLE; }
TL_DEVICE u32 token_of(u64 key) { return ~(u32)key; }

// (logit - max) / temperature, as the host's f64 has it.
struct Score {
    double max, scale;
    TL_DEVICE double operator()(float x) const { return ((double)x - max) * scale; }
};

// A block a row.
TL_KERNEL(sample_filter, SampleArgs, FILTER_THREADS) {
    __shared__ FilterShared shared;
    u32 r = blockIdx.x;
    Row row = row_of(p, r);
    if (row.seq == NONE) return;
    SeqSampling s = p.sampling[row.seq];
    u64 top = row_top(p, r);
    if (!(s.temperature > 0.0f) || !usable(top)) return;
    Score score{(double)row.logits[token_of(top)], 1.0 / (double)s.temperature};
    End end{0, NONE};
    // top-k first, then top-p over what is left.
    if (s.top_k > 0 && s.top_k < VOCAB) end = find_end<false>(row.logits, VOCAB, score, end, s.top_k, 0.0, shared);
    if (s.top_p < 1.0f) end = find_end<true>(row.logits, VOCAB, score, end, 0, (double)s.top_p, shared);
    if (threadIdx.x == 0) {
        p.last_key[r] = end.key;
        p.last_token[r] = end.token;
    }
}

TL_KERNEL(sample_draw, SampleArgs, THREADS) {
    __shared__ double values[THREADS / 32];
    __shared__ u32 tokens[THREADS / 32];
    u32 r = blockIdx.y;
    Row row = row_of(p, r);
    if (row.seq == NONE) return;
    SeqSampling s = p.sampling[row.seq];
    u64 top = row_top(p, r);
    if (!(s.temperature > 0.0f) || !usable(top)) return;
    u32 first = blockIdx.x * CHUNK;
    float x[QUADS][4];
#pragma unroll
    for (int i = 0; i < QUADS; i++) quad(row.logits, first + (i * THREADS + threadIdx.x) * 4, x[i]);
    Score score{(double)row.logits[token_of(top)], 1.0 / (double)s.temperature};
    TargetStream stream = target_stream(s.seed, s.request, row.position + 1);
    End end = FILTER ? End{p.last_key[r], p.last_token[r]} : End{0, NONE};

    // A score that some token surely reaches with its noise: the best of the chunks' largest logits (the argmax alone, where a
    // filter may have removed the others).
    float bar = GUMBEL_LEAST;
    for (u32 c = threadIdx.x % 32; c < CHUNKS; c += 32) {
        u64 key = p.top[(u64)r * CHUNKS + c];
        if (key == 0 || (FILTER && key != top)) continue;
        u32 token = token_of(key);
        float near = (float)score(number_of((u32)(key >> 32))) + gumbel_near(noise_of(stream, token / 4).at(token % 4));
        bar = fmaxf(bar, near - GUMBEL_NEAR);
    }
    bar = number_of(warp_max(order_of(bar)));

    // score + noise >= bar needs -ln u <= exp(score - bar), so 1 - u <= exp(score - bar). Both sides in f32 with room for
    // rounding: the few that pass are compared exactly.
    const float max = (float)score.max, most = GUMBEL_MOST + GUMBEL_NEAR;
    const float scale = (float)(score.scale < 1e38 ? score.scale : 1e38);
    double best = (double)MINUS_INF;
    u32 token = NONE;
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        u32 at = first + (i * THREADS + threadIdx.x) * 4;
        float up = fmaxf(fmaxf(x[i][0], x[i][1]), fmaxf(x[i][2], x[i][3]));
        // No noise lifts these to the bar.
        if (!((up - max) * scale + most >= bar)) continue;
        Words4 noise = noise_of(stream, at / 4);
        u32 pass = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float least = exp2_approx(((x[i][j] - max) * scale - bar) * LOG2E) * 1.001f;
            // 1 + (1 - u), cut to 23 bits.
            float v = __uint_as_float((~noise.w[j] >> 9) | 0x3f800000u);
            pass |= v <= 1.0f + least ? 1u << j : 0u;
        }
        for (; pass; pass &= pass - 1) {
            u32 j = (u32)__ffs((i32)pass) - 1;
            float logit = j < 2 ? (j < 1 ? x[i][0] : x[i][1]) : (j < 3 ? x[i][2] : x[i][3]);
            double exact = score(logit);
            if (!(exact > (double)MINUS_INF) || (FILTER && !end.keeps(order_of(exact), at + j))) continue;
            exact += gumbel(noise.at(j));
            if (exact > best) best = exact, token = at + j;
        }
    }
#pragma unroll
    for (int far = 16; far > 0; far /= 2) {
        double other = __shfl_xor_sync(LANES, best, far);
        u32 its = __shfl_xor_sync(LANES, token, far);
        if (other > best || (other == best && its < token)) best = other, token = its;
    }
    if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = best, tokens[threadIdx.x / 32] = token;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < THREADS / 32; w++)
            if (values[w] > best || (values[w] == best && tokens[w] < token)) best = values[w], token = tokens[w];
        p.value[(u64)r * CHUNKS + blockIdx.x] = best;
        p.drawn[(u64)r * CHUNKS + blockIdx.x] = token;
    }
}

// A warp a row.
TL_KERNEL(sample_pick, SampleArgs, THREADS) {
    u32 r = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (r >= p.rows) return;
    Row row = row_of(p, r);
    u32 token = NONE;
    if (row.seq != NONE) {
        u64 top = row_top(p, r);
        token = usable(top) ? token_of(top) : NONE;
        if (DRAW && token != NONE && p.sampling[row.seq].temperature > 0.0f) {
            double best = (double)MINUS_INF;
            u32 drawn = NONE;
            for (u32 c = lane; c < CHUNKS; c += 32) {
                double other = p.value[(u64)r * CHUNKS + c];
                u32 its = p.drawn[(u64)r * CHUNKS + c];
                if (other > best || (other == best && its < drawn)) best = other, drawn = its;
            }
#pragma unroll
            for (int far = 16; far > 0; far /= 2) {
                double other = __shfl_xor_sync(LANES, best, far);
                u32 its = __shfl_xor_sync(LANES, drawn, far);
                if (other > best || (other == best && its < drawn)) best = other, drawn = its;
            }
            // The argmax survives every filter; only a score that is no number leaves it to be taken here.
            if (drawn != NONE) token = drawn;
        }
    }
    if (lane == 0) p.out[r] = token;
}
