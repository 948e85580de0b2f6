// Best-first trees by a queue on the device, a warp a sequence: one node after the other.
#include "tree.cuh"

struct BestArgs {
    TreeIo io;
    u64 *bounds;  // [seqs][ROWS] for `tree_shared`, or null
    u32 *forced;  // [seqs] for `tree_shared`, or null
    double least; // lowest score of a node behind the spine; -inf = none
    u32 spine;
    u32 unused;
};

TL_KERNEL(tree_best, BestArgs, 32) {
    __shared__ Growth g;
    __shared__ float rows[LEVELS * COLS];
    u32 s = blockIdx.x;
    Limits limits = begin_tree(p.io, s);
    if (p.forced && threadIdx.x == 0) p.forced[s] = 0;
    if (!limits.live) return;
    load_rows(p.io, s, limits.depth, rows);
    __syncwarp();
    u64 *bounds = p.bounds ? p.bounds + (u64)s * ROWS : nullptr;
    u32 n = grow(g, rows, limits, p.spine, p.least, bounds, p.forced ? p.forced + s : nullptr);
    __syncwarp();
    write_grown(p.io, s, g, n);
}
