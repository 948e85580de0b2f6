// What the tree kernels share: the drafter's rows in, the trees out, and best-first growth by one warp.
//
// LEVELS, WIDTH (entries of a drafter's row), NODES (most nodes of a tree). No tree reads a rank of NODES or more.
#pragma once
#include "select.cuh"

#define ROWS (NODES + 1)
#define COLS (WIDTH < NODES ? WIDTH : NODES)

struct TreeIo {
    const u32 *root;      // [seqs] root token
    const u32 *nodes;     // [seqs] most nodes, NONE = padding
    const u32 *levels;    // [seqs] levels that were drafted
    const u32 *token;     // [seqs][LEVELS][WIDTH] candidates, best first
    const float *logp;    // the same
    const u32 *count;     // [seqs][LEVELS] candidates of each row
    const u32 *bad;       // [seqs][LEVELS] not 0 = unusable row
    u32 *out_token;       // [seqs][ROWS]
    u32 *out_parent;      // the same, the root is its own
    u32 *out_depth;       // the same
    u32 *out_rank;        // the same
    double *out_score;    // the same
    u32 *out_rows;        // [seqs] rows, 0 = padding
    u32 *out_fault;       // [seqs] depth of the first unusable row, or 0
};

// What one sequence may have; `live` false: padding, or its draft is unusable, and the tree is written already.
struct Limits {
    u32 nodes, depth;
    bool live;
};

// Reads the limits and writes what every tree has. For the whole block.
TL_DEVICE Limits begin_tree(const TreeIo &io, u32 s) {
    u32 nodes = io.nodes[s], levels = io.levels[s];
    levels = levels < LEVELS ? levels : LEVELS;
    u32 fault = 0;
    if (nodes != NONE) {
        for (u32 d = levels; d-- > 0;) fault = io.bad[s * LEVELS + d] ? d + 1 : fault;
    }
    if (threadIdx.x == 0) {
        u64 at = (u64)s * ROWS;
        io.out_token[at] = io.root[s];
        io.out_parent[at] = 0;
        io.out_depth[at] = 0;
        io.out_rank[at] = 0;
        io.out_score[at] = 0.0;
        io.out_rows[s] = nodes == NONE ? 0 : 1;
        io.out_fault[s] = fault;
    }
    return Limits{nodes < NODES ? nodes : NODES, levels, nodes != NONE && fault == 0};
}

// The rows of sequence `s` in shared memory [LEVELS][COLS], -inf where a row has no candidate.
TL_DEVICE void load_rows(const TreeIo &io, u32 s, u32 depth, float *rows) {
    for (u32 i = threadIdx.x; i < depth * COLS; i += blockDim.x) {
        u32 d = i / COLS, r = i % COLS;
        u32 at = s * LEVELS + d;
        rows[i] = r < io.count[at] ? io.logp[(u64)at * WIDTH + r] : MINUS_INF;
    }
}

// The working tree of one warp. Each node offers one candidate, its next child.
struct Growth {
    double score[ROWS];
    u64 key[ROWS]; // of the offered candidate's score, 0 = none
    u32 parent[ROWS];
    u32 rank[ROWS];
    u32 depth[ROWS];
    u32 open[ROWS]; // rank of the offered candidate
};

// Whether the candidate offered by `a` comes before that of `b` by rank tuple: the smaller one, a prefix before its extension.
TL_DEVICE bool path_before(const Growth &g, u32 a, u32 b) {
    u32 x = a, y = b, rx = g.open[a], ry = g.open[b];
    u32 dx = g.depth[a], dy = g.depth[b];
    for (u32 d = dx; d > dy; d--) rx = g.rank[x], x = g.parent[x];
    for (u32 d = dy; d > dx; d--) ry = g.rank[y], y = g.parent[y];
    while (x != y) {
        rx = g.rank[x], x = g.parent[x];
        ry = g.rank[y], y = g.parent[y];
    }
    return rx != ry ? rx < ry : dx < dy;
}

TL_DEVICE u64 offer(const Growth &g, const float *rows, u32 depth, u32 node) {
    u32 d = g.depth[node], r = g.open[node];
    if (d >= depth || r >= COLS) return 0;
    float x = rows[d * COLS + r];
    // Not `>=`, so that NaN is left out with -inf.
    return x > MINUS_INF ? order_of(g.score[node] + (double)x) : 0;
}

// The best offer among this lane's nodes (lane, lane + 32, ..) of `n`.
TL_DEVICE void scan_offers(const Growth &g, u32 n, u64 &best, u32 &node) {
    best = 0;
    for (u32 e = threadIdx.x % 32; e < n; e += 32) {
        u64 key = g.key[e];
        if (key > best || (key == best && key && path_before(g, e, node))) best = key, node = e;
    }
}

// Grows a tree to `limits.nodes` nodes: `spine` rank-0 levels, then the best offer again and again while its score is at least
// `least`. For one warp; returns the number of rows. `bounds` (or null) receives by node the least key taken so far, `forced`
// the length of the spine.
TL_DEVICE u32 grow(Growth &g, const float *rows, Limits limits, u32 spine, double least, u64 *bounds, u32 *forced) {
    u32 lane = threadIdx.x % 32;
    if (lane == 0) g.score[0] = 0.0, g.parent[0] = 0, g.rank[0] = 0, g.depth[0] = 0, g.open[0] = 0;
    __syncwarp();
    u32 n = 1;
    while (n - 1 < spine && n - 1 < limits.depth && n <= limits.nodes) {
        float x = rows[(n - 1) * COLS];
        if (!(x > MINUS_INF)) break;
        if (lane == 0) {
            g.score[n] = g.score[n - 1] + (double)x;
            g.parent[n] = n - 1, g.rank[n] = 0, g.depth[n] = n, g.open[n] = 0;
            g.open[n - 1] = 1;
        }
        n++;
        __syncwarp();
    }
    if (forced && lane == 0) *forced = n - 1;
    for (u32 e = lane; e < n; e += 32) g.key[e] = offer(g, rows, limits.depth, e);
    __syncwarp();
    u64 best, bound = ~0ull;
    u32 mine = 0;
    scan_offers(g, n, best, mine);
    while (n <= limits.nodes) {
        u64 top = warp_max(best);
        if (top == 0 || !(number_of(top) >= least)) break;
        u32 who = __ballot_sync(LANES, best == top);
        u32 from = __shfl_sync(LANES, mine, (u32)__ffs((i32)who) - 1);
        for (who &= who - 1; who; who &= who - 1) {
            u32 rival = __shfl_sync(LANES, mine, (u32)__ffs((i32)who) - 1);
            if (path_before(g, rival, from)) from = rival;
        }
        u32 rank = g.open[from], depth = g.depth[from];
        __syncwarp();
        if (lane == 0) {
            g.score[n] = number_of(top);
            g.parent[n] = from, g.rank[n] = rank, g.depth[n] = depth + 1, g.open[n] = 0;
            g.open[from] = rank + 1;
            if (bounds) {
                bound = top < bound ? top : bound;
                bounds[n] = bound;
            }
        }
        __syncwarp();
        u32 node = n++;
        bool parents = lane == from % 32, own = lane == node % 32;
        if (parents) g.key[from] = offer(g, rows, limits.depth, from);
        if (own) g.key[node] = offer(g, rows, limits.depth, node);
        if (parents) {
            scan_offers(g, n, best, mine);
        } else if (own) {
            u64 key = g.key[node];
            if (key > best || (key == best && key && path_before(g, node, mine))) best = key, mine = node;
        }
        __syncwarp();
    }
    return n;
}

// Writes a grown tree. For the whole block.
TL_DEVICE void write_grown(const TreeIo &io, u32 s, const Growth &g, u32 n) {
    for (u32 i = threadIdx.x + 1; i < n; i += blockDim.x) {
        u64 at = (u64)s * ROWS + i;
        io.out_token[at] = io.token[((u64)s * LEVELS + g.depth[i] - 1) * WIDTH + g.rank[i]];
        io.out_parent[at] = g.parent[i];
        io.out_depth[at] = g.depth[i];
        io.out_rank[at] = g.rank[i];
        io.out_score[at] = g.score[i];
    }
    if (threadIdx.x == 0) io.out_rows[s] = n;
}
