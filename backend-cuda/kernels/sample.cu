// The target's token of each row, as `treeline_core::sampling` chooses it: the first largest logit, or one Gumbel-max sample of
// the tempered and filtered distribution.
//
// `sample_max`: largest logit of each chunk. `sample_draw` (only where a request samples): best noisy score of each chunk, behind
// `sample_filter.cu` where one filters. `sample_pick`: the token.
//
// Beside those of `sample.cuh`: DRAW and FILTER (what else runs).
#include "philox.cuh"
#include "sample.cuh"

TL_KERNEL(sample_max, SampleArgs, THREADS) {
    __shared__ u64 parts[32];
    Row row = row_of(p, blockIdx.y);
    if (row.seq == NONE) return;
    if (FILTER) {
        // Room for the histogram of the next kernel.
        u32 each = (BINS + CHUNKS - 1) / CHUNKS, begin = blockIdx.x * each;
        u32 end = begin + each < BINS ? begin + each : BINS;
        u64 bins = (u64)blockIdx.y * BINS;
        for (u32 i = begin + threadIdx.x; i < end; i += THREADS) p.bin_mass[bins + i] = 0, p.bin_count[bins + i] = 0;
    }
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

TL_KERNEL_RESIDENT(sample_draw, SampleArgs, THREADS, 4) {
    __shared__ double values[THREADS / 32];
    __shared__ u32 tokens[THREADS / 32];
    u32 r = blockIdx.y;
    Row row = row_of(p, r);
    if (row.seq == NONE) return;
    SeqSampling s = p.sampling[row.seq];
    u64 top = row_top(p, r);
    if (!(s.temperature > 0.0f) || !usable(top)) return;
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
    u32 first = blockIdx.x * CHUNK + threadIdx.x * 4;
    for (int half = 0; half < 2; half++, first += CHUNK / 2) {
        float x[QUADS / 2][4];
#pragma unroll
        for (int i = 0; i < QUADS / 2; i++) quad(row.logits, first + i * THREADS * 4, x[i]);
#pragma unroll
        for (int i = 0; i < QUADS / 2; i++) {
            u32 at = first + i * THREADS * 4;
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
                // Read again: few come here, and the registers stay free.
                double exact = at + j < VOCAB ? score(row.logits[at + j]) : (double)MINUS_INF;
                if (!(exact > (double)MINUS_INF) || (FILTER && !end.keeps(order_of(exact), at + j))) continue;
                exact += gumbel(noise.at(j));
                if (exact > best) best = exact, token = at + j;
            }
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
