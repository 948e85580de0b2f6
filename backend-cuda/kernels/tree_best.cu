// Best-first trees by a heap on the device, a warp a sequence; and the split of one budget over a batch.
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

struct SharedArgs {
    const u64 *bounds; // [seqs][ROWS] by node the least key taken so far
    const u32 *forced; // [seqs] nodes of the spine
    const u32 *nodes;  // [seqs] NONE = padding
    u32 *rows;         // [seqs] in: rows of the trees grown alone; out: rows within the budget of the batch
    u32 seqs;          // at most 1024
    u32 mean;          // nodes a sequence on average
};

// Nodes of a tree from `first` on whose bound is at least `key`: bounds fall, so they come first.
TL_DEVICE u32 reach(const u64 *bounds, u32 first, u32 rows, u64 key) {
    u32 low = first, high = rows;
    while (low < high) {
        u32 mid = (low + high) / 2;
        if (bounds[mid] >= key) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low - first;
}

// One heap over the batch takes nodes in the order of (bound, sequence): a tree's next node is taken at once when it is better
// than the last one, so the least score so far is what it competes with. So the heap's outcome is a cut through the trees grown
// alone.
TL_KERNEL(tree_shared, SharedArgs, 1024) {
    __shared__ u64 parts[33];
    __shared__ u32 firsts[1024], lasts[1024];
    __shared__ u32 counts[16][16];
    u32 t = threadIdx.x;
    bool mine = t < p.seqs;
    u32 rows = mine ? p.rows[t] : 0, spine = rows ? p.forced[t] : 0;
    u64 total, live;
    block_before(mine && p.nodes[t] != NONE, parts, live);
    u64 wanted = live * p.mean;
    // Spines first, in batch order; where they use everything up, nothing follows them.
    u64 before = block_before(spine, parts, total);
    u64 left = total < wanted ? wanted - total : 0;
    if (before + spine > wanted) {
        u64 rest = before < wanted ? wanted - before : 0;
        rows = rows ? 1 + (u32)rest : 0;
        spine = rows ? rows - 1 : 0;
    }
    firsts[t] = 1 + spine;
    lasts[t] = rows > 1 + spine ? rows : 1 + spine;
    if (t < 256) counts[t / 16][t % 16] = 0;
    __syncthreads();
    // Four bits of the least key at a time: 15 keys side by side, 16 threads a sequence.
    u64 least = 0;
    for (u32 step = 0; step < 16; step++) {
        u32 shift = 60 - 4 * step, digit = t % 16;
        u64 key = least | (u64)digit << shift;
        u32 n = 0;
        for (u32 s = t / 16; digit > 0 && s < p.seqs; s += 64)
            n += reach(p.bounds + (u64)s * ROWS, firsts[s], lasts[s], key);
        if (n) atomicAdd(&counts[step][digit], n);
        __syncthreads();
        u32 best = 0;
        for (u32 d = 1; d < 16; d++) best = counts[step][d] >= left ? d : best;
        least |= (u64)best << shift;
    }
    const u64 *bounds = p.bounds + (u64)t * ROWS;
    u32 above = mine && least != ~0ull ? reach(bounds, firsts[t], lasts[t], least + 1) : 0;
    u32 equal = mine ? reach(bounds, firsts[t], lasts[t], least) - above : 0;
    u64 taken, ties;
    block_before(above, parts, taken);
    before = block_before(equal, parts, ties);
    // Equal ones go to the sequences that come first.
    u64 room = left > taken ? left - taken : 0;
    room = before < room ? room - before : 0;
    if (mine && rows) p.rows[t] = firsts[t] + above + (u32)(equal < room ? equal : room);
}
