// Where top-k and top-p end in a row's order (score down, then token up), without sorting it.
//
// A histogram over the interval of keys that holds the end, then one over its bin, until one entry or one key is left. Masses
// are whole numbers of 2^-46: their sum does not depend on the order, so the same logits give the same end every time.
#pragma once
#include "select.cuh"

#define BINS 2048
#define FILTER_THREADS 1024
#define MASS_ONE 70368744177664.0

// What is kept: larger keys, and `key` itself up to `token`.
struct End {
    u64 key;
    u32 token;
    TL_DEVICE bool keeps(u64 k, u32 t) const { return k > key || (k == key && t <= token); }
};

struct FilterShared {
    u64 mass[BINS];
    u32 count[BINS];
    u64 parts[33];
    // The bin that the end is in, what lies before it, and what it holds.
    u32 found, bin, bin_count;
    u64 before;
};

// Tokens with a key in [low, high], `from` on: bins by key. At the first level the score itself spreads better.
struct Interval {
    u64 low, high;
    u32 shift;
    bool first;
};

TL_DEVICE u32 bin_of(const Interval &in, double score, u64 key) {
    if (!in.first) return (u32)((in.high - key) >> in.shift);
    // Scores are at most 0; a step is 1/64, an exact product.
    double steps = score * -64.0;
    return steps < (double)(BINS - 1) ? (u32)steps : BINS - 1;
}

// Keys of bin `bin`.
TL_DEVICE Interval inside(const Interval &in, u32 bin) {
    Interval out;
    out.first = false;
    if (in.first) {
        out.high = bin == 0 ? in.high : order_of((double)bin * (-1.0 / 64.0));
        out.low = bin == BINS - 1 ? 0 : order_of((double)(bin + 1) * (-1.0 / 64.0)) + 1;
    } else {
        out.high = in.high - ((u64)bin << in.shift);
        u64 rest = out.high - in.low, width = ((u64)1 << in.shift) - 1;
        out.low = rest > width ? out.high - width : in.low;
    }
    u64 span = out.high - out.low;
    out.shift = 0;
    while (span >> out.shift >= BINS) out.shift++;
    return out;
}

// The `want`-th smallest token with exactly this key inside `within`.
template <class Score>
TL_DEVICE u32 nth_token(const float *logits, u32 vocab, const Score &score, const End &within, u64 key, u32 want,
                        FilterShared &s) {
    u32 each = (vocab + FILTER_THREADS - 1) / FILTER_THREADS, begin = threadIdx.x * each;
    u32 end = begin + each < vocab ? begin + each : vocab;
    u32 mine = 0;
    for (u32 t = begin; t < end; t++) {
        u64 k = order_of(score(logits[t]));
        mine += k == key && within.keeps(k, t);
    }
    u64 total;
    u64 before = block_before(mine, s.parts, total);
    if (before < want && want <= before + mine) {
        u32 left = want - (u32)before;
        for (u32 t = begin; t < end; t++) {
            u64 k = order_of(score(logits[t]));
            if (k == key && within.keeps(k, t) && --left == 0) s.found = t;
        }
    }
    __syncthreads();
    u32 found = s.found;
    __syncthreads();
    return found;
}

// The end of the smallest set, best first and inside `within`, that holds `want` entries (MASS false), or whose mass reaches
// `share` of that of `within` (MASS true).
template <bool MASS, class Score>
TL_DEVICE End find_end(const float *logits, u32 vocab, const Score &score, const End &within, u32 want, double share,
                       FilterShared &s) {
    Interval in{0, order_of(0.0), 0, true};
    u64 before = 0;
    double goal = (double)want;
    for (bool first = true;; first = false) {
        __syncthreads();
        for (u32 i = threadIdx.x; i < BINS; i += FILTER_THREADS) {
            s.count[i] = 0;
            if (MASS) s.mass[i] = 0;
        }
        if (threadIdx.x == 0) s.found = 0;
        __syncthreads();
        for (u32 t = threadIdx.x; t < vocab; t += FILTER_THREADS) {
            double x = score(logits[t]);
            u64 key = order_of(x);
            if (key < in.low || key > in.high || !within.keeps(key, t)) continue;
            u32 bin = bin_of(in, x, key);
            atomicAdd(&s.count[bin], 1u);
            // Smaller ones round to 0.
            if (MASS && x > -33.0) atomicAdd(&s.mass[bin], (u64)(exp(x) * MASS_ONE));
        }
        __syncthreads();
        // Each thread looks at neighbouring bins.
        const u32 each = BINS / FILTER_THREADS;
        u64 mine = 0;
        for (u32 i = 0; i < each; i++) {
            u32 bin = threadIdx.x * each + i;
            mine += MASS ? s.mass[bin] : (u64)s.count[bin];
        }
        u64 total;
        u64 sum = before + block_before(mine, s.parts, total);
        if (MASS && first) goal = share * (double)total;
        for (u32 i = 0; i < each; i++) {
            u32 bin = threadIdx.x * each + i;
            u64 part = MASS ? s.mass[bin] : (u64)s.count[bin];
            // The first bin that reaches the goal; bins before it do not.
            bool reached_before = (double)sum >= goal && (sum > 0 || goal > 0.0);
            sum += part;
            if (s.count[bin] > 0 && (double)sum >= goal && !reached_before && atomicAdd(&s.found, 1u) == 0) {
                s.bin = bin;
                s.bin_count = s.count[bin];
                s.before = sum - part;
            }
        }
        __syncthreads();
        // By rounding the goal may lie behind everything.
        if (s.found == 0) return within;
        u32 bin = s.bin, held = s.bin_count;
        before = s.before;
        in = inside(in, bin);
        if (held == 1) return in.low <= within.key ? within : End{in.low, NONE};
        if (in.low == in.high) break;
    }
    // Equal scores: as many of them, smallest tokens first, as are still needed.
    u32 need;
    u32 held = s.bin_count;
    if (MASS) {
        u64 one = (u64)(exp(number_of(in.low)) * MASS_ONE);
        need = 1;
        while (need < held && (double)(before + one * need) < goal) need++;
    } else {
        need = want - (u32)before;
    }
    __syncthreads();
    return End{in.low, nth_token(logits, vocab, score, within, in.low, need, s)};
}
