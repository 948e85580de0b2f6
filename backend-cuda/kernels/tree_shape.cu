// Trees of a fixed shape (a chain is one): a node is there when all its ancestors are and the draft lists its candidate.
//
// SHAPE = nodes of the shape, DEEPEST = its deepest level.
#include "tree.cuh"

#define THREADS 256
#define EACH ((SHAPE + THREADS - 1) / THREADS)

struct ShapeArgs {
    TreeIo io;
    const u32 *parent; // [SHAPE] node i + 1's parent as a node of the shape, 0 = the root
    const u32 *rank;   // [SHAPE]
    const u32 *depth;  // [SHAPE]
};

TL_KERNEL(tree_shape, ShapeArgs, THREADS) {
    __shared__ double score[SHAPE + 1];
    __shared__ u32 place[SHAPE + 1]; // NONE = not there
    __shared__ u64 parts[33];
    u32 s = blockIdx.x, t = threadIdx.x;
    Limits limits = begin_tree(p.io, s);
    if (!limits.live) return;
    if (t == 0) score[0] = 0.0, place[0] = 0;
    u32 parent[EACH], rank[EACH], depth[EACH];
    float logp[EACH];
#pragma unroll
    for (u32 k = 0; k < EACH; k++) {
        u32 i = t * EACH + k;
        bool in = i < SHAPE;
        parent[k] = in ? p.parent[i] : 0;
        rank[k] = in ? p.rank[i] : 0;
        depth[k] = in ? p.depth[i] : NONE;
        u64 row = (u64)s * LEVELS + depth[k] - 1;
        bool listed = in && depth[k] <= limits.depth && rank[k] < p.io.count[row] && rank[k] < WIDTH;
        logp[k] = listed ? p.io.logp[row * WIDTH + rank[k]] : MINUS_INF;
    }
    // Level by level, so that a score is its parent's plus one edge.
    for (u32 d = 1; d <= DEEPEST; d++) {
        __syncthreads();
#pragma unroll
        for (u32 k = 0; k < EACH; k++) {
            if (depth[k] != d) continue;
            bool there = place[parent[k]] != NONE && logp[k] > MINUS_INF;
            place[t * EACH + k + 1] = there ? 0 : NONE;
            score[t * EACH + k + 1] = score[parent[k]] + (double)logp[k];
        }
    }
    __syncthreads();
    u64 mine = 0, total;
#pragma unroll
    for (u32 k = 0; k < EACH; k++) mine += depth[k] != NONE && place[t * EACH + k + 1] != NONE;
    u32 next = (u32)block_before(mine, parts, total) + 1;
#pragma unroll
    for (u32 k = 0; k < EACH; k++) {
        if (depth[k] != NONE && place[t * EACH + k + 1] != NONE) place[t * EACH + k + 1] = next++;
    }
    __syncthreads();
#pragma unroll
    for (u32 k = 0; k < EACH; k++) {
        if (depth[k] == NONE) continue;
        u32 at = place[t * EACH + k + 1];
        // The tree's limit cuts the shape in its own order.
        if (at == NONE || at > limits.nodes) continue;
        u64 out = (u64)s * ROWS + at;
        p.io.out_token[out] = p.io.token[((u64)s * LEVELS + depth[k] - 1) * WIDTH + rank[k]];
        p.io.out_parent[out] = place[parent[k]];
        p.io.out_depth[out] = depth[k];
        p.io.out_rank[out] = rank[k];
        p.io.out_score[out] = score[t * EACH + k + 1];
    }
    if (t == 0) p.io.out_rows[s] = 1 + (u32)(total < limits.nodes ? total : limits.nodes);
}
