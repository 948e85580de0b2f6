// The best WIDTH log-probabilities of each row, and log-softmax on the way: one read of the logits.
//
// `topk_chunk`: a block keeps CHUNK = THREADS * ITEMS logits of a row in registers, sums their exponentials and lists those
// that could be among the row's best: a warp's threshold is the largest that enough of the maxima of its small groups reach,
// the block's is the smallest of its warps'. `topk_merge`: a block per row picks the best from the lists.
//
// Ranks go by log-probability, a rounded function of the logit: different logits can become equal, and then the smaller token
// comes first. SPARE entries more than WIDTH are listed for that; where even they could have left out a rival, the merge looks
// at the whole row again.
//
// VOCAB, WIDTH, SPARE, CHUNKS, ITEMS, GROUPS (per thread), CAP (entries of a list), ROOM (entries of the merge), SORT (power of
// two >= WIDTH), ALIGNED (whether rows begin at 16 bytes).
#include "select.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)
#define MERGE_THREADS 256
#define EACH ((ROOM + MERGE_THREADS - 1) / MERGE_THREADS)
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

TL_KERNEL_RESIDENT(topk_chunk, TopkArgs, THREADS, 4) {
    __shared__ u32 parts[64];
    __shared__ float sums[8];
    __shared__ u32 filled;
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

    // Maxima of groups; the whole thread's maximum.
    u32 best[GROUPS];
    float most = MINUS_INF;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        float m = MINUS_INF;
#pragma unroll
        for (int i = 0; i < ITEMS / GROUPS; i++) m = fmaxf(m, x[g * (ITEMS / GROUPS) + i]);
        best[g] = key_of(m);
        most = fmaxf(most, m);
    }
    // Whatever is at least the smallest of the warps' thresholds: each warp has its share of the wanted number above its own,
    // so all are listed that could be wanted. No barrier on the way; a few more than the share will do.
    const u32 share = (WIDTH + SPARE + WARPS - 1) / WARPS;
    u32 top = warp_max(order_of(most));
    u32 least = threshold<u32>(
        share,
        [&](u32 key) {
            u32 n = 0;
#pragma unroll
            for (int g = 0; g < GROUPS; g++) n += (u32)__popc(__ballot_sync(LANES, best[g] >= key));
            return n;
        },
        share / 4);
    if (t % 32 == 0) parts[t / 32] = top, parts[WARPS + t / 32] = ~least;
    __syncthreads();
    top = warp_max(t % 32 < WARPS ? parts[t % 32] : 0u);
    u32 floor = ~warp_max(t % 32 < WARPS ? parts[WARPS + t % 32] : 0u);
    floor = floor > LOWEST ? floor : LOWEST;
    float max = number_of(top), bar = number_of(floor);
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

TL_KERNEL(topk_merge, TopkArgs, MERGE_THREADS) {
    TL_SHARED(bytes);
    u64 *keys = (u64 *)bytes;  // [ROOM]
    u64 *best = keys + ROOM;   // [SORT]
    __shared__ u32 parts[64];
    __shared__ u32 begin[CHUNKS + 1];
    __shared__ float norm_shared;
    __shared__ u32 filled, bad, doubt;
    u32 row = blockIdx.x, t = threadIdx.x;
    u32 from = p.source ? p.source[row] : row;
    u64 at = (u64)row * CHUNKS;
    if (from == NONE) {
        if (t == 0) {
            p.out_count[row] = 0;
            p.out_fault[row] = 0;
        }
        return;
    }
    if (t < 32) {
        // Lane by lane the chunks' maxima, sums and counts.
        u32 top = 0, n = 0;
        for (u32 c = t; c < CHUNKS; c += 32) {
            u32 key = order_of(p.chunk_max[at + c]);
            top = key > top ? key : top;
        }
        float max = number_of(warp_max(top));
        double sum = 0.0;
        for (u32 first = 0; first < CHUNKS; first += 32) {
            u32 c = first + t;
            float m = c < CHUNKS ? p.chunk_max[at + c] : MINUS_INF, s = c < CHUNKS ? p.chunk_sum[at + c] : 0.0f;
            // A chunk of -inf has the sum 0, or NaN where it has one.
            sum += m == MINUS_INF ? (double)s : (double)s * exp((double)m - (double)max);
            u32 count = c < CHUNKS ? p.chunk_count[at + c] : 0, before = count;
            for (u32 far = 1; far < 32; far *= 2) {
                u32 other = __shfl_up_sync(LANES, before, far);
                if (t >= far) before += other;
            }
            if (c < CHUNKS) begin[c] = n + before - count;
            n += __shfl_sync(LANES, before, 31);
        }
        for (u32 far = 16; far > 0; far /= 2) sum += __shfl_xor_sync(LANES, sum, far);
        if (t == 0) {
            begin[CHUNKS] = n;
            norm_shared = max + (float)log(sum);
            bad = !(sum > 0.0) || !(max < -MINUS_INF);
            filled = 0;
            doubt = n > ROOM;
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
    u32 total = begin[CHUNKS], turn = 0;
    u64 floor = 0;
    if (!doubt) {
        // A warp a chunk.
        for (u32 c = t / 32; c < CHUNKS; c += MERGE_THREADS / 32) {
            u64 list = (at + c) * CAP;
            u32 to = begin[c], n = begin[c + 1] - to;
            for (u32 i = t % 32; i < n; i += 32) keys[to + i] = entry(p.value[list + i] - norm, p.token[list + i]);
        }
        __syncthreads();
        u64 own[EACH < 20 ? EACH : 1];
        if (EACH < 20) {
#pragma unroll
            for (u32 k = 0; k < (EACH < 20 ? EACH : 1); k++) {
                u32 i = t + k * MERGE_THREADS;
                own[k] = i < total ? keys[i] : 0;
            }
        }
        floor = threshold<u64>(WIDTH, [&](u64 key) {
            u32 n = 0;
            if (EACH < 20) {
#pragma unroll
                for (u32 k = 0; k < (EACH < 20 ? EACH : 1); k++) n += own[k] >= key;
            } else {
                for (u32 i = t; i < total; i += MERGE_THREADS) n += keys[i] >= key;
            }
            return block_add(n, parts, turn);
        });
        // The best that a list may have left out.
        for (u32 c = t; c < CHUNKS; c += MERGE_THREADS) {
            u32 listed = p.chunk_floor[at + c];
            if (listed > LOWEST && entry(number_of(listed - 1) - norm, 0) >= floor) doubt = 1;
        }
        __syncthreads();
    }
    const float *logits = p.logits + (u64)from * p.stride;
    if (doubt) {
        floor = threshold<u64>(WIDTH, [&](u64 key) {
            u32 n = 0;
            for (u32 i = t; i < VOCAB; i += MERGE_THREADS) n += logits[i] > MINUS_INF && entry(logits[i] - norm, i) >= key;
            return block_add(n, parts, turn);
        });
        for (u32 i = t; i < VOCAB; i += MERGE_THREADS)
            if (logits[i] > MINUS_INF && entry(logits[i] - norm, i) >= floor)
                best[atomicAdd(&filled, 1u)] = entry(logits[i] - norm, i);
    } else {
        for (u32 i = t; i < total; i += MERGE_THREADS)
            if (keys[i] >= floor) best[atomicAdd(&filled, 1u)] = keys[i];
    }
    __syncthreads();
    u32 n = filled;
    for (u32 i = n + t; i < SORT; i += MERGE_THREADS) best[i] = 0;
    sort_descending(best, SORT);
    // A logit far below the maximum may become -inf by rounding.
    u32 finite = 0;
    for (u32 i = t; i < n; i += MERGE_THREADS) finite += best[i] >= entry(MINUS_INF, 0) + 1;
    n = block_add(finite, parts, turn);
    for (u32 i = t; i < WIDTH; i += MERGE_THREADS) {
        p.out_token[(u64)row * WIDTH + i] = i < n ? ~(u32)best[i] : NONE;
        p.out_logp[(u64)row * WIDTH + i] = i < n ? number_of((u32)(best[i] >> 32)) : MINUS_INF;
    }
    if (t == 0) {
        p.out_count[row] = n;
        p.out_fault[row] = 0;
    }
}
