// The best WIDTH log-probabilities of each row, and log-softmax on the way: one read of the logits.
//
// `topk_chunk`: a block keeps CHUNK = THREADS * ITEMS logits of a row in registers, sums their exponentials and lists those
// that could be among the row's best: the threshold is a number that enough of the maxima of small groups reach.
// `topk_merge`: a block per row picks the best from the lists.
//
// Ranks go by log-probability, a rounded function of the logit: different logits can become equal, and then the smaller token
// comes first. SPARE entries more than WIDTH are listed for that; where even they could have left out a rival, the merge looks
// at the whole row again.
//
// VOCAB, WIDTH, SPARE, CHUNKS, ITEMS, GROUPS (per thread), CAP (entries of a list), MERGE (threads of a merge), SORT (power of
// two >= WIDTH), ALIGNED (whether rows begin at 16 bytes).
#include "select.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)
#define MERGE_EACH ((CHUNKS * CAP + MERGE - 1) / MERGE)
#define CHUNK (THREADS * ITEMS)
#define LOG2E 1.4426950408889634f

struct TopkArgs {
    const float *logits; // row stride `stride`
    const u32 *source;   // [rows] logits row of each output row, NONE = none; or null for the same
    float *value;        // [rows][CHUNKS][CAP] logits of the lists
    u32 *token;          // the same, tokens
    float *chunk_max;    // [rows][CHUNKS]
    float *chunk_sum;    // [rows][CHUNKS] sum of exp(x - max)
    u32 *chunk_count;    // [rows][CHUNKS] entries
    u32 *chunk_floor;    // [rows][CHUNKS] every logit with at least this key is listed
    u32 *out_token;      // [rows][WIDTH]
    float *out_logp;     // [rows][WIDTH]
    u32 *out_count;      // [rows]
    u32 *out_fault;      // [rows] 1 = a NaN, an infinite maximum, or nothing finite
    u64 stride;
};

// 0 stands for what is never listed: -inf (and NaN, which makes the row a fault).
TL_DEVICE u32 key_of(float x) { return x > MINUS_INF ? order_of(x) : 0u; }

// Key of the smallest finite number: nothing is listed below.
#define LOWEST 0x00800000u

TL_KERNEL_RESIDENT(topk_chunk, TopkArgs, THREADS, GROUPS > 1 ? 3 : 4) {
    __shared__ u32 parts[64];
    __shared__ float sums[WARPS];
    __shared__ u32 groups[GROUPS * THREADS];
    __shared__ u32 filled, top_shared, floor_shared;
    u32 row = blockIdx.y, chunk = blockIdx.x, t = threadIdx.x;
    u32 from = p.source ? p.source[row] : row;
    u64 at = (u64)row * CHUNKS + chunk;
    if (from == NONE) return;
    const float *logits = p.logits + (u64)from * p.stride;
    u32 first = chunk * CHUNK;

    float x[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS / 4; i++) {
        u32 token = first + (i * THREADS + t) * 4;
        if (ALIGNED && token + 4 <= VOCAB) {
            uint4 w = ldg128(logits + token);
            x[4 * i] = __uint_as_float(w.x), x[4 * i + 1] = __uint_as_float(w.y);
            x[4 * i + 2] = __uint_as_float(w.z), x[4 * i + 3] = __uint_as_float(w.w);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++) x[4 * i + j] = token + j < VOCAB ? logits[token + j] : MINUS_INF;
        }
    }
    if (t == 0) filled = 0;

    // Maxima of groups.
    u32 best[GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        float m = MINUS_INF;
#pragma unroll
        for (int i = 0; i < ITEMS / GROUPS; i++) m = fmaxf(m, x[g * (ITEMS / GROUPS) + i]);
        best[g] = key_of(m);
    }
#pragma unroll
    for (int g = 0; g < GROUPS; g++) groups[g * THREADS + t] = best[g];
    __syncthreads();
    if (t < 32) {
        // One warp, so that no barrier is on the way; a few more than wanted will do.
        u32 top = 0;
        for (u32 i = t; i < GROUPS * THREADS; i += 32) top = groups[i] > top ? groups[i] : top;
        top = warp_max(top);
        u32 floor = threshold<u32>(
            WIDTH + SPARE,
            [&](u32 key) {
                u32 n = 0;
#pragma unroll
                for (int i = 0; i < GROUPS * THREADS / 32; i++) n += groups[i * 32 + t] >= key;
                return warp_add(n);
            },
            (WIDTH + SPARE) / 8);
        if (t == 0) top_shared = top, floor_shared = floor > LOWEST ? floor : LOWEST;
    }
    __syncthreads();
    u32 floor = floor_shared;
    float max = top_shared ? number_of(top_shared) : MINUS_INF, bar = number_of(floor);
    u64 list = at * CAP;

    float sum = 0.0f;
    u32 hits = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        sum += exp2_approx((x[i] - max) * LOG2E);
        hits |= x[i] >= bar ? 1u << i : 0u;
    }
    // The entries' order does not matter: the merge sorts. Few are read again, which leaves the registers alone.
    for (; hits; hits &= hits - 1) {
        u32 i = (u32)__ffs((i32)hits) - 1, slot = atomicAdd(&filled, 1u);
        u32 token = first + ((i / 4) * THREADS + t) * 4 + i % 4;
        if (slot < CAP) p.value[list + slot] = logits[token], p.token[list + slot] = token;
    }
    if (max == MINUS_INF) {
        // -inf - -inf is no number; NaN must show even where nothing else is finite.
        sum = 0.0f;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) sum += x[i] == MINUS_INF ? 0.0f : x[i];
    }
#pragma unroll
    for (int far = 16; far > 0; far /= 2) sum += __shfl_xor_sync(LANES, sum, far);
    if (t % 32 == 0) sums[t / 32] = sum;
    __syncthreads();
    u32 n = filled, turn = 0;
    if (n > CAP) {
        // The best lie close together: search among all logits, read again.
        auto logit = [&](u32 i) { return first + i < VOCAB ? logits[first + i] : MINUS_INF; };
        auto above = [&](u32 key) {
            u32 n = 0;
            for (u32 i = t; i < CHUNK; i += THREADS) n += key_of(logit(i)) >= key;
            return block_add(n, parts, turn);
        };
        floor = threshold<u32>(WIDTH + SPARE, above);
        floor = floor > LOWEST ? floor : LOWEST;
        // Too many equal ones: they are left out, and the floor says so.
        if (above(floor) > CAP) floor++;
        if (t == 0) filled = 0;
        __syncthreads();
        for (u32 i = t; i < CHUNK; i += THREADS) {
            if (key_of(logit(i)) < floor) continue;
            u32 slot = atomicAdd(&filled, 1u);
            p.value[list + slot] = logit(i);
            p.token[list + slot] = first + i;
        }
        __syncthreads();
        n = filled;
    }
    if (t == 0) {
        float total = 0.0f;
        for (int w = 0; w < WARPS; w++) total += sums[w];
        p.chunk_max[at] = max;
        p.chunk_sum[at] = total;
        p.chunk_count[at] = n;
        p.chunk_floor[at] = floor;
    }
}

TL_DEVICE u64 entry(float logp, u32 token) { return (u64)order_of(logp) << 32 | (u32)~token; }

TL_KERNEL_RESIDENT(topk_merge, TopkArgs, MERGE, 1) {
    __shared__ u64 best[SORT];
    __shared__ u32 parts[64];
    __shared__ u32 counts[CHUNKS], listed[CHUNKS];
    __shared__ float norm_shared;
    __shared__ u32 filled, bad, doubt, low_shared;
    u32 row = blockIdx.x, t = threadIdx.x, turn = 0;
    u32 from = p.source ? p.source[row] : row;
    u64 at = (u64)row * CHUNKS;
    if (from == NONE) {
        if (t == 0) {
            p.out_count[row] = 0;
            p.out_fault[row] = 0;
        }
        return;
    }
    // All entries of the lists, asked for before their number is known.
    float x[MERGE_EACH];
    u32 token[MERGE_EACH];
#pragma unroll
    for (u32 k = 0; k < MERGE_EACH; k++) {
        u32 slot = t + k * MERGE;
        bool in = slot < CHUNKS * CAP;
        x[k] = in ? p.value[at * CAP + slot] : 0.0f;
        token[k] = in ? p.token[at * CAP + slot] : 0;
    }
    if (t < 32) {
        // Lane by lane the chunks' maxima and sums.
        u32 top = 0, low = 0;
        for (u32 c = t; c < CHUNKS; c += 32) {
            u32 key = order_of(p.chunk_max[at + c]);
            top = key > top ? key : top;
            counts[c] = p.chunk_count[at + c];
            listed[c] = p.chunk_floor[at + c];
            // A list of enough entries bounds what the row's best must reach.
            if (counts[c] >= WIDTH) low = listed[c] > low ? listed[c] : low;
        }
        float max = number_of(warp_max(top));
        low = warp_max(low);
        double sum = 0.0;
        for (u32 c = t; c < CHUNKS; c += 32) {
            float m = p.chunk_max[at + c];
            double s = (double)p.chunk_sum[at + c];
            // A chunk of -inf has the sum 0, or NaN where it has one.
            sum += m == MINUS_INF ? s : s * exp((double)m - (double)max);
        }
        for (u32 far = 16; far > 0; far /= 2) sum += __shfl_xor_sync(LANES, sum, far);
        if (t == 0) {
            norm_shared = max + (float)log(sum);
            bad = !(sum > 0.0) || !(max < -MINUS_INF);
            filled = 0;
            doubt = 0;
            low_shared = low;
        }
    }
    __syncthreads();
    if (bad) {
        if (t == 0) {
            p.out_count[row] = 0;
            p.out_fault[row] = 1;
        }
        return;
    }
    float norm = norm_shared;
    u64 key[MERGE_EACH];
#pragma unroll
    for (u32 k = 0; k < MERGE_EACH; k++) {
        u32 slot = t + k * MERGE;
        key[k] = slot < CHUNKS * CAP && slot % CAP < counts[slot / CAP] ? entry(x[k] - norm, token[k]) : 0;
    }
    auto reaching = [&](u64 least) {
        u32 n = 0;
#pragma unroll
        for (u32 k = 0; k < MERGE_EACH; k++) n += key[k] >= least;
        return block_add(n, parts, turn);
    };
    // Keys differ, so there is one that exactly WIDTH reach, if there are so many: between the best list's floor and the top.
    u64 low = low_shared ? entry(number_of(low_shared) - norm, NONE) : 1, high = ~0ull;
    u32 n = reaching(low);
    while (n > WIDTH) {
        u64 middle = low + (high - low) / 2;
        u32 above = reaching(middle);
        if (above >= WIDTH) {
            low = middle, n = above;
        } else {
            high = middle;
        }
    }
    // The best that a list may have left out.
    for (u32 c = t; c < CHUNKS; c += MERGE) {
        if (listed[c] > LOWEST && (n < WIDTH || entry(number_of(listed[c] - 1) - norm, 0) >= low)) doubt = 1;
    }
    __syncthreads();
    if (doubt) {
        const float *logits = p.logits + (u64)from * p.stride;
        low = threshold<u64>(WIDTH, [&](u64 key) {
            u32 n = 0;
            for (u32 i = t; i < VOCAB; i += MERGE) n += logits[i] > MINUS_INF && entry(logits[i] - norm, i) >= key;
            return block_add(n, parts, turn);
        });
        for (u32 i = t; i < VOCAB; i += MERGE)
            if (logits[i] > MINUS_INF && entry(logits[i] - norm, i) >= low)
                best[atomicAdd(&filled, 1u)] = entry(logits[i] - norm, i);
    } else {
#pragma unroll
        for (u32 k = 0; k < MERGE_EACH; k++)
            if (key[k] >= low) best[atomicAdd(&filled, 1u)] = key[k];
    }
    __syncthreads();
    n = filled;
    for (u32 i = n + t; i < SORT; i += MERGE) best[i] = 0;
    sort_descending(best, SORT);
    // A logit far below the maximum may become -inf by rounding.
    u32 finite = 0;
    for (u32 i = t; i < n; i += MERGE) finite += best[i] >= entry(MINUS_INF, 0) + 1;
    n = block_add(finite, parts, turn);
    for (u32 i = t; i < WIDTH; i += MERGE) {
        p.out_token[(u64)row * WIDTH + i] = i < n ? ~(u32)best[i] : NONE;
        p.out_logp[(u64)row * WIDTH + i] = i < n ? number_of((u32)(best[i] >> 32)) : MINUS_INF;
    }
    if (t == 0) {
        p.out_count[row] = n;
        p.out_fault[row] = 0;
    }
}
