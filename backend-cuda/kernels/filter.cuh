// Where top-k and top-p end in a row's order (score down, then token up), without sorting it.
//
// A histogram over the interval of keys that holds the end, then one over its bin, until one entry or one key is left. Masses
// are whole numbers of 2^-46: their sum does not depend on the order, so the same logits give the same end every time.
#pragma once
#include "sample.cuh"

#define FILTER_THREADS 1024
// Entries of a bin that are looked at from shared memory.
#define LISTED 2048

struct FilterShared {
    u64 mass[BINS];
    u32 count[BINS];
    u64 keys[LISTED];
    u32 tokens[LISTED];
    u64 sums[33];
    u32 parts[64];
    u32 filled;
    // The bin that the end is in, what it holds, and what lies before it.
    u32 found, bin, held;
    u64 before;
};

static_assert(sizeof(FilterShared) == 49696, "as the host gives it");

// e^x for x in [-33, 0], as a whole number of 2^-46, cut.
TL_DEVICE u64 mass_of(double x) {
    const double magic = 6755399441055744.0; // 1.5 2^52: adding it leaves the rounded integer in the low bits
    double shifted = x * 1.4426950408889634 + magic;
    i32 n = (i32)(u32)__double_as_longlong(shifted);
    double k = shifted - magic;
    double r = fma(k, -6.93147180369123816490e-01, x);
    r = fma(k, -1.90821492927058770002e-10, r);
    double e = 1.0 / 479001600.0;
    e = fma(e, r, 1.0 / 39916800.0);
    e = fma(e, r, 1.0 / 3628800.0);
    e = fma(e, r, 1.0 / 362880.0);
    e = fma(e, r, 1.0 / 40320.0);
    e = fma(e, r, 1.0 / 5040.0);
    e = fma(e, r, 1.0 / 720.0);
    e = fma(e, r, 1.0 / 120.0);
    e = fma(e, r, 1.0 / 24.0);
    e = fma(e, r, 1.0 / 6.0);
    e = fma(e, r, 0.5);
    e = fma(e, r, 1.0);
    e = fma(e, r, 1.0);
    // e in [2^-1/2, 2^1/2]: its digits, moved by n and from 52 to 46 behind the point.
    u64 bits = (u64)__double_as_longlong(e);
    i32 power = (i32)(bits >> 52) - 1023 + n;
    u64 digits = (bits & 0xfffffffffffffull) | 0x10000000000000ull;
    return digits >> (6 - power);
}

// Bin of a score at the first level: steps of 1/64 below the maximum, an exact product.
TL_DEVICE u32 first_bin(double score) {
    double steps = score * -64.0;
    return steps < (double)(BINS - 1) ? (u32)steps : BINS - 1;
}

// Keys from `low` to `high`; at deeper levels bins of 2^shift keys, from `high` down.
struct Interval {
    u64 low, high;
    u32 shift;
    TL_DEVICE u32 bin(u64 key) const { return (u32)((high - key) >> shift); }
};

TL_DEVICE Interval interval(u64 low, u64 high) {
    Interval in{low, high, 0};
    while ((high - low) >> in.shift >= BINS) in.shift++;
    return in;
}

// Keys of a bin of the first level.
TL_DEVICE Interval first_interval(u32 bin) {
    u64 high = bin == 0 ? order_of(0.0) : order_of((double)bin * (-1.0 / 64.0));
    u64 low = bin == BINS - 1 ? 0 : order_of((double)(bin + 1) * (-1.0 / 64.0)) + 1;
    return interval(low, high);
}

TL_DEVICE Interval inside(const Interval &in, u32 bin) {
    u64 high = in.high - ((u64)bin << in.shift), width = ((u64)1 << in.shift) - 1;
    return interval(high - in.low > width ? high - width : in.low, high);
}

// The row's entries in an interval: listed in shared memory, or, where they are too many, read from the row each time.
struct Entries {
    const float *logits;
    Score score;
    bool listed;
    u32 n;

    // Calls `f(key, token)` for this thread's share.
    template <class F> TL_DEVICE void each(const FilterShared &s, const F &f) const {
        for (u32 i = threadIdx.x; i < n; i += FILTER_THREADS) {
            if (listed) {
                f(s.keys[i], s.tokens[i]);
            } else {
                f(order_of(score(logits[i])), i);
            }
        }
    }
};

TL_DEVICE Entries gather(const float *logits, const Score &score, const Interval &in, FilterShared &s) {
    __syncthreads();
    if (threadIdx.x == 0) s.filled = 0;
    __syncthreads();
#pragma unroll 8
    for (u32 t = threadIdx.x; t < VOCAB; t += FILTER_THREADS) {
        u64 key = order_of(score(logits[t]));
        if (key < in.low || key > in.high) continue;
        u32 slot = atomicAdd(&s.filled, 1u);
        if (slot < LISTED) s.keys[slot] = key, s.tokens[slot] = t;
    }
    __syncthreads();
    bool listed = s.filled <= LISTED;
    return Entries{logits, score, listed, listed ? s.filled : VOCAB};
}

// Finds the first bin at which the sum from `before` on reaches `goal`; in `s`. False where none does.
template <bool MASS> TL_DEVICE bool locate(double goal, u64 before, FilterShared &s) {
    const u32 each = BINS / FILTER_THREADS;
    __syncthreads();
    if (threadIdx.x == 0) s.found = 0;
    u64 mine = 0;
    for (u32 i = 0; i < each; i++) {
        u32 bin = threadIdx.x * each + i;
        mine += MASS ? s.mass[bin] : (u64)s.count[bin];
    }
    u64 total;
    u64 sum = before + block_before(mine, s.sums, total);
    for (u32 i = 0; i < each; i++) {
        u32 bin = threadIdx.x * each + i;
        u64 part = MASS ? s.mass[bin] : (u64)s.count[bin];
        bool already = (double)sum >= goal && (sum > 0 || goal > 0.0);
        sum += part;
        if (s.count[bin] > 0 && (double)sum >= goal && !already && atomicAdd(&s.found, 1u) == 0) {
            s.bin = bin;
            s.held = s.count[bin];
            s.before = sum - part;
        }
    }
    __syncthreads();
    return s.found > 0;
}

// The end inside the bin that `locate` found, `in` its keys: of the smallest set, best first and within `within`, whose number
// or mass reaches `goal`.
template <bool MASS>
TL_DEVICE End finish(const Entries &entries, Interval in, const End &within, double goal, FilterShared &s) {
    u32 turn = 0, held = s.held;
    u64 before = s.before;
    while (held > 1 && in.low < in.high) {
        __syncthreads();
        for (u32 i = threadIdx.x; i < BINS; i += FILTER_THREADS) s.count[i] = 0, s.mass[i] = 0;
        __syncthreads();
        entries.each(s, [&](u64 key, u32 token) {
            if (key < in.low || key > in.high || !within.keeps(key, token)) return;
            u32 bin = in.bin(key);
            atomicAdd(&s.count[bin], 1u);
            double x = number_of(key);
            if (MASS && x > -33.0) atomicAdd(&s.mass[bin], mass_of(x));
        });
        // By rounding the goal may lie behind everything.
        if (!locate<MASS>(goal, before, s)) return within;
        held = s.held;
        before = s.before;
        in = inside(in, s.bin);
    }
    if (held == 1) return in.low <= within.key ? within : End{in.low, NONE};
    // Equal scores: as many of them, smallest tokens first, as are still needed. What cannot be drawn stays as a whole.
    u64 one = number_of(in.low) > -33.0 ? mass_of(number_of(in.low)) : 0;
    if (in.low <= order_of((double)MINUS_INF) || (MASS && one == 0)) return in.low <= within.key ? within : End{in.low, NONE};
    u32 need = 1;
    while (need < held && (double)(before + (MASS ? one * need : (u64)need)) < goal) need++;
    u32 last = threshold<u32>(need, [&](u32 code) {
        u32 n = 0;
        entries.each(s, [&](u64 key, u32 token) { n += key == in.low && within.keeps(key, token) && ~token >= code; });
        return block_add(n, s.parts, turn);
    });
    u32 token = ~last;
    return End{in.low, in.low == within.key && within.token < token ? within.token : token};
}
