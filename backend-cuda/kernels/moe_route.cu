// Routing: the experts of each row with their weights, then the picks sorted by expert.
//
// EXPERTS, TOP_K, SIGMOID (else softmax), GROUPS and KEEP (sigmoid: groups, and those that may be chosen from), NORM.
#include "moe.cuh"
#include "ptx.cuh"

#define WARPS 8
#define THREADS (WARPS * 32)
#define PER ((EXPERTS + 31) / 32)
#define PER_THREAD ((EXPERTS + THREADS - 1) / THREADS)
// Picks that a thread keeps in registers while it sorts.
#define HELD 4
#define MINUS_INFINITY (__uint_as_float(0xff800000u))
// Order of scores as unsigned numbers: taken, unusable (NaN, -inf: last, but never twice), the rest.
#define TAKEN 0u
#define UNUSABLE 1u

struct RouteArgs {
    const i32 *seq;      // [rows], -1 = padding
    const float *logits; // [rows][EXPERTS]
    const float *bias;   // [EXPERTS] or none
    const i32 *forced;   // [rows][TOP_K] or none
    i32 *ids;            // [rows][TOP_K] ascending, -1 in padded rows
    float *weights;      // [rows][TOP_K]
    u32 *distinct;       // experts that real rows use, or none
    u32 *arrived;        // blocks that are done; 0 between launches
    Segment *segments; // by ascending expert
    u32 *counts;       // segments, picks, distinct experts
    float scaling;
    u32 rows;
};

// Ascending with the float; NaN of either sign at the ends.
TL_DEVICE u32 order(float x) {
    u32 u = __float_as_uint(x);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

TL_DEVICE u32 choice_key(float x) {
    // x > -inf is false for NaN. Adding 0 makes -0 equal to 0.
    return x > MINUS_INFINITY ? order(x + 0.0f) : UNUSABLE;
}

#if SIGMOID && GROUPS > 1
// Whether the group of each expert may be chosen from: the KEEP groups with the largest sums of their two best.
TL_DEVICE void keep_groups(const float *choice, u32 *kept, u32 lane) {
    const int size = EXPERTS / GROUPS;
    for (u32 group = lane; group < GROUPS; group += 32) {
        float a = MINUS_INFINITY, b = MINUS_INFINITY;
        for (int i = 0; i < size; i++) {
            float s = choice[group * size + i];
            if (s > a) {
                b = a;
                a = s;
            } else if (s > b) {
                b = s;
            }
        }
        kept[group] = order(a + b);
    }
    __syncwarp();
    u32 ranks[(GROUPS + 31) / 32];
    for (u32 group = lane, i = 0; group < GROUPS; group += 32, i++) {
        ranks[i] = 0;
        for (u32 other = 0; other < GROUPS; other++)
            ranks[i] += kept[other] > kept[group] || (kept[other] == kept[group] && other < group);
    }
    __syncwarp();
    for (u32 group = lane, i = 0; group < GROUPS; group += 32, i++) kept[group] = ranks[i] < KEEP;
    __syncwarp();
}
#endif

// Shared memory of one warp.
struct RowShared {
    float score[EXPERTS];
#if SIGMOID && GROUPS > 1
    float choice[EXPERTS];
    u32 kept[GROUPS];
#endif
    i32 picked[TOP_K];
};

// One warp routes one row; `ids` has its experts for this block too.
TL_DEVICE void route_row(const RouteArgs &p, u32 row, u32 lane, RowShared &s, i32 *ids) {
    float x[PER];
#if SIGMOID
    float bias[PER];
#endif
    u32 key[PER];
    // All that has to be read, at once. Padded rows have memory too.
    i32 seq = (i32)ldg32(p.seq + row), id = -1;
#pragma unroll
    for (int j = 0; j < PER; j++) {
        u32 e = j * 32 + lane;
        x[j] = e < EXPERTS ? __uint_as_float(ldg32(p.logits + (u64)row * EXPERTS + e)) : MINUS_INFINITY;
#if SIGMOID
        bias[j] = e < EXPERTS && p.bias ? __uint_as_float(ldg32(p.bias + e)) : 0.0f;
#endif
    }
    if (p.forced && lane < TOP_K) id = (i32)ldg32(p.forced + (u64)row * TOP_K + lane);
    if (seq < 0) {
        if (lane < TOP_K) {
            ids[lane] = p.ids[(u64)row * TOP_K + lane] = -1;
            p.weights[(u64)row * TOP_K + lane] = 0.0f;
        }
        return;
    }
#if SIGMOID
#pragma unroll
    for (int j = 0; j < PER; j++) {
        u32 e = j * 32 + lane;
        if (e < EXPERTS) {
            x[j] = 1.0f / (1.0f + expf(-x[j]));
            s.score[e] = x[j];
            x[j] += bias[j];
#if GROUPS > 1
            s.choice[e] = x[j];
#endif
        }
    }
    __syncwarp();
#else
    float most = MINUS_INFINITY, sum = 0.0f;
#pragma unroll
    for (int j = 0; j < PER; j++) most = fmaxf(most, x[j]);
#pragma unroll
    for (int far = 16; far > 0; far /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, far));
#pragma unroll
    for (int j = 0; j < PER; j++) {
        x[j] = j * 32 + lane < EXPERTS ? expf(x[j] - most) : 0.0f;
        sum += x[j];
    }
#pragma unroll
    for (int far = 16; far > 0; far /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, far);
    float scale = 1.0f / sum;
#pragma unroll
    for (int j = 0; j < PER; j++) {
        x[j] *= scale;
        if (j * 32 + lane < EXPERTS) s.score[j * 32 + lane] = x[j];
    }
    __syncwarp();
#endif
#if SIGMOID && GROUPS > 1
    keep_groups(s.choice, s.kept, lane);
#endif
    bool forced = false;
    if (p.forced) {
        if (lane < TOP_K) s.picked[lane] = id;
        __syncwarp();
        bool fits = lane >= TOP_K || (id >= 0 && id < EXPERTS);
        for (u32 i = 0; i < TOP_K; i++) fits = fits && (i >= lane || lane >= TOP_K || s.picked[i] != id);
        forced = __all_sync(0xffffffffu, fits);
    }
    if (!forced) {
#pragma unroll
        for (int j = 0; j < PER; j++) {
            u32 e = j * 32 + lane;
            key[j] = e < EXPERTS ? choice_key(x[j]) : TAKEN;
#if SIGMOID && GROUPS > 1
            if (e < EXPERTS && !s.kept[e / (EXPERTS / GROUPS)]) key[j] = UNUSABLE;
#endif
        }
        u32 taken = 0xffffffffu;
        for (int i = 0; i < TOP_K; i++) {
            u32 best = TAKEN, own = 0;
#pragma unroll
            for (int j = 0; j < PER; j++) {
                if (j * 32 + lane == taken) key[j] = TAKEN;
                if (key[j] > best) {
                    best = key[j];
                    own = j * 32 + lane;
                }
            }
            u32 most = __reduce_max_sync(0xffffffffu, best);
            taken = __reduce_min_sync(0xffffffffu, best == most ? own : 0xffffffffu);
            if (lane == 0) s.picked[i] = (i32)taken;
        }
    }
    __syncwarp();
    // Ascending ids: every pick finds its own place.
    id = lane < TOP_K ? s.picked[lane] : 0;
    u32 place = 0;
    for (u32 i = 0; i < TOP_K; i++) place += s.picked[i] < id;
    __syncwarp();
    if (lane < TOP_K) s.picked[place] = id;
    __syncwarp();
    if (lane < TOP_K) {
        id = s.picked[lane];
        float total = 1.0f;
#if NORM
        total = 0.0f;
        for (int i = 0; i < TOP_K; i++) total += s.score[s.picked[i]];
        total += 1e-20f;
#endif
        ids[lane] = p.ids[(u64)row * TOP_K + lane] = id;
        p.weights[(u64)row * TOP_K + lane] = s.score[id] / total * p.scaling;
    }
}

// One block sorts all picks by expert: count, running sums, then each pick takes the next place of its expert. `count` is 0.
TL_DEVICE void sort_picks(const RouteArgs &p, const i32 *ids, u32 *count, u32 *begin, u32 (*sums)[3]) {
    u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32, picks = p.rows * TOP_K;
    i32 id[HELD];
#pragma unroll
    for (u32 k = 0; k < HELD; k++) id[k] = k * THREADS + thread < picks ? ids[k * THREADS + thread] : -1;
#pragma unroll
    for (u32 k = 0; k < HELD; k++) {
        if (id[k] >= 0) atomicAdd(&count[id[k]], 1u);
    }
    for (u32 i = HELD * THREADS + thread; i < picks; i += THREADS) {
        if (ids[i] >= 0) atomicAdd(&count[ids[i]], 1u);
    }
    __syncthreads();
    // Thread t sums over experts t PER_THREAD...: slots, segments, distinct experts.
    u32 own[3] = {0, 0, 0}, before[3];
    for (u32 i = 0; i < PER_THREAD; i++) {
        u32 e = thread * PER_THREAD + i, n = e < EXPERTS ? count[e] : 0;
        own[0] += n;
        own[1] += (n + SEGMENT - 1) / SEGMENT;
        own[2] += n > 0;
    }
#pragma unroll
    for (int k = 0; k < 3; k++) {
        u32 sum = own[k];
#pragma unroll
        for (int far = 1; far < 32; far *= 2) {
            u32 other = __shfl_up_sync(0xffffffffu, sum, far);
            if (lane >= (u32)far) sum += other;
        }
        before[k] = sum - own[k];
        if (lane == 31) sums[warp][k] = sum;
    }
    __syncthreads();
    u32 all[3] = {0, 0, 0};
    for (u32 w = 0; w < THREADS / 32; w++) {
#pragma unroll
        for (int k = 0; k < 3; k++) {
            if (w < warp) before[k] += sums[w][k];
            all[k] += sums[w][k];
        }
    }
    for (u32 i = 0; i < PER_THREAD; i++) {
        u32 e = thread * PER_THREAD + i, n = e < EXPERTS ? count[e] : 0;
        if (e < EXPERTS) {
            begin[e] = before[1];
            count[e] = 0;
        }
        for (u32 done = 0; done < n; done += SEGMENT) {
            Segment &s = p.segments[before[1]++];
            s.expert = (i32)e;
            s.count = n - done < SEGMENT ? n - done : SEGMENT;
            s.pad[0] = s.pad[1] = 0;
        }
        before[0] += n;
    }
    if (thread == 0) {
        p.counts[0] = all[1];
        p.counts[1] = all[0];
        p.counts[2] = all[2];
        if (p.distinct) *p.distinct = all[2];
    }
    __syncthreads();
    auto place = [&](u32 i, i32 id) {
        if (id < 0) return;
        u32 at = atomicAdd(&count[id], 1u);
        Segment &s = p.segments[begin[id] + at / SEGMENT];
        s.pick[at % SEGMENT] = i;
    };
#pragma unroll
    for (u32 k = 0; k < HELD; k++) place(k * THREADS + thread, id[k]);
    for (u32 i = HELD * THREADS + thread; i < picks; i += THREADS) place(i, ids[i]);
}

// A warp for each row; the last block to finish sorts.
TL_KERNEL(moe_route, RouteArgs, THREADS) {
    __shared__ RowShared rows[WARPS];
    __shared__ i32 ids[WARPS][TOP_K];
    __shared__ u32 count[EXPERTS], begin[EXPERTS], sums[WARPS][3];
    __shared__ u32 last;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = blockIdx.x * WARPS + warp;
    griddep_wait();
    griddep_launch();
    for (u32 e = threadIdx.x; e < EXPERTS; e += THREADS) count[e] = 0;
    if (row < p.rows) route_row(p, row, lane, rows[warp], ids[warp]);
    __syncthreads();
    if (gridDim.x == 1) {
        sort_picks(p, ids[0], count, begin, sums);
        return;
    }
    if (threadIdx.x == 0) last = atom_acq_rel_add(p.arrived, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    if (threadIdx.x == 0) *p.arrived = 0;
    sort_picks(p, p.ids, count, begin, sums);
}
