// One budget for a batch: how many nodes each of the trees grown alone keeps.
#include "tree.cuh"

#define THREADS 1024

struct SharedArgs {
    const u64 *bounds; // [seqs][ROWS] by node the least key taken so far
    const u32 *forced; // [seqs] nodes of the spine
    const u32 *nodes;  // [seqs] NONE = padding
    u32 *rows;         // [seqs] in: rows of the trees grown alone; out: rows within the budget of the batch
    u32 seqs;          // at most THREADS
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
TL_KERNEL(tree_shared, SharedArgs, THREADS) {
    __shared__ u64 sums[33];
    __shared__ u32 parts[64];
    __shared__ u32 firsts[THREADS], lasts[THREADS];
    u32 t = threadIdx.x, turn = 0;
    bool mine = t < p.seqs;
    u32 rows = mine ? p.rows[t] : 0, spine = rows ? p.forced[t] : 0;
    u64 total, live;
    block_before(mine && p.nodes[t] != NONE, sums, live);
    u64 wanted = live * p.mean;
    // Spines first, in batch order; where they use everything up, nothing follows them.
    u64 before = block_before(spine, sums, total);
    u64 left = total < wanted ? wanted - total : 0;
    if (before + spine > wanted) {
        u64 rest = before < wanted ? wanted - before : 0;
        rows = rows ? 1 + (u32)rest : 0;
        spine = rows ? rows - 1 : 0;
    }
    firsts[t] = 1 + spine;
    lasts[t] = rows > 1 + spine ? rows : 1 + spine;
    __syncthreads();
    u32 most = p.seqs * NODES;
    u32 want = left < most + 1 ? (u32)left : most + 1;
    u64 least = threshold<u64>(want, [&](u64 key) {
        u32 n = 0;
#pragma unroll 4
        for (u32 i = t; i < most; i += THREADS) {
            u32 s = i / NODES, node = 1 + i % NODES;
            if (node >= firsts[s] && node < lasts[s]) n += p.bounds[(u64)s * ROWS + node] >= key;
        }
        return block_add(n, parts, turn);
    });
    const u64 *bounds = p.bounds + (u64)t * ROWS;
    u32 above = mine && least != ~0ull ? reach(bounds, firsts[t], lasts[t], least + 1) : 0;
    u32 equal = mine ? reach(bounds, firsts[t], lasts[t], least) - above : 0;
    u64 taken, ties;
    block_before(above, sums, taken);
    before = block_before(equal, sums, ties);
    // Equal ones go to the sequences that come first.
    u64 room = left > taken ? left - taken : 0;
    room = before < room ? room - before : 0;
    if (mine && rows) p.rows[t] = firsts[t] + above + (u32)(equal < room ? equal : room);
}
