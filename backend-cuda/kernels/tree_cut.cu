// Best-first trees without a queue: a lower bound of the last node's score, all prefixes that reach it, and the best of those.
//
// As long as log-probabilities are at most 0, the tree of B nodes holds the B best prefixes, whatever their order of growth.
// (1) A fixed list of rank tuples, which are among the best of many drafts, is scored at once; the B-th best of any such
// selection bounds the B-th best of all from below. (2) Level by level every prefix that reaches the bound is listed: the
// children of a node that do are its first ones. (3) Each counts those before it, which is its place.
// Where too many reach the bound, the B-th best of the listed ones is a better bound; where even that does not help (equal
// scores all over), or a log-probability is above 0, one warp grows the tree with a queue.
//
// SEEDS = tuples of the list.
#include "tree.cuh"

#define THREADS 512
#define WARPS (THREADS / 32)
#define EACH ((SEEDS + THREADS - 1) / THREADS)
#define ENTRIES (NODES < 64 ? 256 : 4 * NODES)
// Threads that count for one entry.
#define PARTS 8
#define TRIES 3
// Up to here all entries are compared with each other.
#define FEW 128

struct CutArgs {
    TreeIo io;
    u64 *bounds;       // [seqs][ROWS] by node the least key taken so far, or null
    u32 *forced;       // [seqs] nodes of the spine, or null
    const uint4 *path; // [SEEDS] ranks by level, a byte each
    const u32 *depth;  // [SEEDS]
    double least;      // lowest score of a node behind the spine; -inf = none
    u32 spine;
    u32 unused;
};

// The listed prefixes; 0 is the root.
struct Listed {
    double score[ENTRIES];
    u64 key[ENTRIES]; // of the score; of spine nodes above all others
    u16 parent[ENTRIES];
    u16 rank[ENTRIES];
    u16 depth[ENTRIES];
    u16 place[ENTRIES];
};

TL_DEVICE u32 rank_at(const uint4 &path, u32 level) {
    u32 w = level < 8 ? (level < 4 ? path.x : path.y) : (level < 12 ? path.z : path.w);
    return w >> (8 * (level % 4)) & 255;
}

TL_DEVICE u64 spine_key(u32 depth) { return ~0ull - depth; }

// Order of two entries with equal keys: the smaller rank tuple, a prefix before its extension.
TL_DEVICE bool tuple_before(const Listed &l, u32 a, u32 b) {
    u32 x = a, y = b;
    while (l.depth[x] > l.depth[y]) x = l.parent[x];
    while (l.depth[y] > l.depth[x]) y = l.parent[y];
    if (x == y) return l.depth[a] < l.depth[b];
    while (l.parent[x] != l.parent[y]) x = l.parent[x], y = l.parent[y];
    return l.rank[x] < l.rank[y];
}

TL_KERNEL_RESIDENT(tree_cut, CutArgs, THREADS, 2) {
    __shared__ __align__(16) u8 memory[sizeof(Listed) > sizeof(Growth) ? sizeof(Listed) : sizeof(Growth)];
    __shared__ float rows[LEVELS * COLS];
    __shared__ u32 parts[64];
    __shared__ u32 counts[LEVELS + 1];
    __shared__ u16 chosen[ENTRIES];
    __shared__ u32 tip, grown;
    Listed &l = *(Listed *)memory;
    u32 s = blockIdx.x, t = threadIdx.x, lane = t % 32, turn = 0;
    uint4 path[EACH];
    u32 depth[EACH];
#pragma unroll
    for (u32 k = 0; k < EACH; k++) {
        u32 i = t + k * THREADS;
        path[k] = p.path[i < SEEDS ? i : 0];
        depth[k] = i < SEEDS ? p.depth[i] : NONE;
    }
    Limits limits = begin_tree(p.io, s);
    if (p.forced && t == 0) p.forced[s] = 0;
    if (!limits.live || limits.nodes == 0 || limits.depth == 0) return;
    load_rows(p.io, s, limits.depth, rows);
    __syncthreads();
    u32 spine = 0;
    while (spine < p.spine && spine < limits.depth && spine < limits.nodes && rows[spine * COLS] > MINUS_INF) spine++;
    bool queue = false;
    for (u32 d = 0; d < limits.depth; d++) queue |= rows[d * COLS] > 0.0f;
    u32 want = limits.nodes - spine, total = 1;
    double bound = p.least;
    u64 *bounds = p.bounds ? p.bounds + (u64)s * ROWS : nullptr;

    if (!queue) {
        u32 keys[EACH];
#pragma unroll
        for (u32 k = 0; k < EACH; k++) {
            double score = 0.0;
            bool there = depth[k] <= limits.depth, straight = depth[k] <= spine;
#pragma unroll
            for (u32 d = 0; d < (LEVELS < 16 ? LEVELS : 16); d++) {
                if (!there || d >= depth[k]) break;
                u32 r = rank_at(path[k], d);
                straight &= r == 0;
                there = r < COLS && rows[d * COLS + r] > MINUS_INF;
                if (there) score += (double)rows[d * COLS + r];
            }
            // Rounded down: a bound from below.
            float down = (float)score;
            u32 key = order_of(down);
            key -= (double)down > score;
            keys[k] = there && !straight ? key : 0;
        }
        u32 least = 0;
        for (u32 bit = 0x80000000u; bit && want > 0; bit >>= 1) {
            u32 n = 0;
#pragma unroll
            for (u32 k = 0; k < EACH; k++) n += keys[k] >= (least | bit);
            n = block_add(n, parts, turn);
            if (n < want) continue;
            least |= bit;
            // Close enough.
            if (n <= want + want / 8) break;
        }
        // Keys below that of -inf are no numbers.
        double seeded = least >= 0x00800000u ? (double)number_of(least) : (double)MINUS_INF;
        bound = seeded > bound ? seeded : bound;
        // Nothing has a place behind the spine.
        if (want == 0) bound = -(double)MINUS_INF;
    }
    for (u32 tries = 0; !queue; tries++) {
        __syncthreads();
        if (t <= limits.depth) counts[t] = 0;
        if (t == 0) {
            l.score[0] = 0.0, l.key[0] = spine_key(0);
            l.parent[0] = 0, l.rank[0] = 0, l.depth[0] = 0, l.place[0] = 0;
            tip = 0;
        }
        __syncthreads();
        u32 low = 0;
        total = 1;
        for (u32 d = 1; d <= limits.depth && low < total; d++) {
            u32 last = tip, begin = total;
            __syncthreads();
            for (u32 u = low + t / 32; u < begin; u += WARPS) {
                double above = l.score[u];
                bool forced = d <= spine && u == last;
                for (u32 first = 0; first < COLS; first += 32) {
                    u32 r = first + lane;
                    float x = r < COLS ? rows[(d - 1) * COLS + r] : MINUS_INF;
                    double score = above + (double)x;
                    bool own = forced && r == 0;
                    bool pass = own || (x > MINUS_INF && score >= bound);
                    u32 who = __ballot_sync(LANES, pass);
                    u32 slot = 0;
                    if (lane == 0 && who) slot = atomicAdd(&counts[d], (u32)__popc(who));
                    u32 at = begin + __shfl_sync(LANES, slot, 0) + (u32)__popc(who & ((1u << lane) - 1));
                    if (pass && at < ENTRIES) {
                        l.score[at] = score, l.key[at] = own ? spine_key(d) : order_of(score);
                        l.parent[at] = (u16)u, l.rank[at] = (u16)r, l.depth[at] = (u16)d;
                        if (own) tip = at;
                    }
                    // Rows fall: behind the first that does not pass, none does.
                    if (who != LANES) break;
                }
            }
            __syncthreads();
            low = begin;
            total = begin + counts[d];
            if (total > ENTRIES) break;
        }
        if (total <= ENTRIES) break;
        u64 better = threshold<u64>(want, [&](u64 key) {
            u32 n = 0;
            for (u32 e = 1 + t; e < ENTRIES; e += THREADS) n += l.key[e] >= key && l.key[e] < spine_key(LEVELS);
            return block_add(n, parts, turn);
        });
        queue = tries == TRIES || !(number_of(better) > bound);
        bound = number_of(better);
    }
    if (queue) {
        Growth &g = *(Growth *)memory;
        __syncthreads();
        if (t < 32) {
            u32 n = grow(g, rows, limits, p.spine, p.least, bounds, p.forced ? p.forced + s : nullptr);
            if (t == 0) grown = n;
        }
        __syncthreads();
        write_grown(p.io, s, g, grown);
        return;
    }
    // Those that have a place, ties at the end included.
    u64 last = 0;
    if (total > FEW && total - 1 > limits.nodes) {
        last = threshold<u64>(limits.nodes, [&](u64 key) {
            u32 n = 0;
            for (u32 e = 1 + t; e < total; e += THREADS) n += l.key[e] >= key;
            return block_add(n, parts, turn);
        });
    }
    if (t == 0) grown = 0;
    __syncthreads();
    for (u32 e = 1 + t; e < total; e += THREADS) {
        l.place[e] = 0;
        if (l.key[e] >= last) chosen[atomicAdd(&grown, 1u)] = (u16)e;
    }
    __syncthreads();
    u32 n = grown;
    for (u32 first = 0; first < n; first += THREADS / PARTS) {
        u32 at = first + t / PARTS;
        u32 e = at < n ? chosen[at] : 0;
        u32 before = 0;
        u64 key = l.key[e];
        for (u32 i = t % PARTS; i < n; i += PARTS) {
            u32 j = chosen[i];
            u64 other = l.key[j];
            before += other > key || (other == key && j != e && tuple_before(l, j, e));
        }
#pragma unroll
        for (int far = 1; far < PARTS; far *= 2) before += __shfl_xor_sync(LANES, before, far);
        if (at < n && t % PARTS == 0) l.place[e] = before < limits.nodes ? (u16)(before + 1) : 0;
    }
    __syncthreads();
    for (u32 e = 1 + t; e < total; e += THREADS) {
        u32 place = l.place[e];
        if (place == 0) continue;
        u32 depth = l.depth[e], rank = l.rank[e];
        u64 at = (u64)s * ROWS + place;
        p.io.out_token[at] = p.io.token[((u64)s * LEVELS + depth - 1) * WIDTH + rank];
        p.io.out_parent[at] = l.place[l.parent[e]];
        p.io.out_depth[at] = depth;
        p.io.out_rank[at] = rank;
        p.io.out_score[at] = l.score[e];
        if (bounds) bounds[place] = l.key[e];
    }
    if (t == 0) {
        p.io.out_rows[s] = total - 1 < limits.nodes ? total : limits.nodes + 1;
        if (p.forced) p.forced[s] = spine;
    }
}
