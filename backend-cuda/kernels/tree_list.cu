// Best-first trees without a heap: the rank tuples that any best-first tree of B nodes is made of are a fixed list; all are
// scored at once and the B best are the tree.
//
// A tuple's predecessors (its prefixes and everything with no greater ranks) come before it in every draft, as long as
// log-probabilities are at most 0, so tuples with B or more of them are never among the B best. The list is in lexicographic
// order, a prefix before its extension: equal scores rank by index.
//
// COUNT = tuples. Dynamic shared memory: COUNT keys of 8 bytes, then COUNT places of 2 bytes.
#include "tree.cuh"

#define THREADS 512

struct ListArgs {
    TreeIo io;
    const uint4 *path;  // [COUNT] ranks by level, a byte each
    const u32 *parent;  // [COUNT] index of the prefix, NONE = the root
    const u32 *depth;   // [COUNT]
};

TL_DEVICE u32 rank_at(const uint4 &path, u32 level) {
    u32 w = level < 8 ? (level < 4 ? path.x : path.y) : (level < 12 ? path.z : path.w);
    return w >> (8 * (level % 4)) & 255;
}

TL_KERNEL(tree_list, ListArgs, THREADS) {
    TL_SHARED(bytes);
    u64 *keys = (u64 *)bytes;
    u16 *place = (u16 *)(keys + COUNT);
    __shared__ Growth g;
    __shared__ float rows[LEVELS * COLS];
    __shared__ u64 picked[NODES];
    __shared__ u16 index[NODES];
    __shared__ u32 parts[64];
    __shared__ u64 sums[33];
    __shared__ u32 filled, grown;
    u32 s = blockIdx.x, t = threadIdx.x, turn = 0;
    Limits limits = begin_tree(p.io, s);
    if (!limits.live || limits.nodes == 0 || limits.depth == 0) return;
    load_rows(p.io, s, limits.depth, rows);
    if (t == 0) filled = 0;
    __syncthreads();
    bool above = false;
    for (u32 d = 0; d < limits.depth; d++) above |= rows[d * COLS] > 0.0f;
    if (above) {
        // Not a case for the list.
        if (t < 32) {
            u32 n = grow(g, rows, limits, 0, (double)MINUS_INF, nullptr, nullptr);
            if (t == 0) grown = n;
        }
        __syncthreads();
        write_grown(p.io, s, g, grown);
        return;
    }
    for (u32 i = t; i < COUNT; i += THREADS) {
        uint4 path = p.path[i];
        u32 depth = p.depth[i];
        double score = 0.0;
        bool there = depth <= limits.depth;
        for (u32 d = 0; there && d < depth; d++) {
            u32 r = rank_at(path, d);
            there = r < COLS && rows[d * COLS + r] > MINUS_INF;
            if (there) score += (double)rows[d * COLS + r];
        }
        keys[i] = there ? order_of(score) : 0;
    }
    __syncthreads();
    u32 want = limits.nodes;
    u64 least = threshold<u64>(want, [&](u64 key) {
        u32 n = 0;
        for (u32 i = t; i < COUNT; i += THREADS) n += keys[i] >= key;
        return block_add(n, parts, turn);
    });
    least = least ? least : 1;
    // Of equal scores at the end the first ones are taken. Each thread looks at neighbours.
    const u32 each = (COUNT + THREADS - 1) / THREADS;
    u32 begin = t * each, end = begin + each < COUNT ? begin + each : COUNT;
    u64 mine = 0, total;
    for (u32 i = begin; i < end; i++) mine += (keys[i] > least ? 1ull << 32 : 0ull) + (keys[i] == least);
    u64 before = block_before(mine, sums, total);
    u32 room = want - (u32)(total >> 32), equal = (u32)before;
    for (u32 i = begin; i < end; i++) {
        bool tie = keys[i] == least;
        if (keys[i] > least || (tie && equal < room)) {
            u32 slot = atomicAdd(&filled, 1u);
            picked[slot] = keys[i];
            index[slot] = (u16)i;
        }
        equal += tie;
    }
    __syncthreads();
    u32 n = filled;
    for (u32 i = t; i < n; i += THREADS) {
        u32 first = 0;
        u64 key = picked[i];
        for (u32 j = 0; j < n; j++) first += picked[j] > key || (picked[j] == key && index[j] < index[i]);
        place[index[i]] = (u16)(first + 1);
    }
    __syncthreads();
    for (u32 i = t; i < n; i += THREADS) {
        u32 c = index[i], depth = p.depth[c], rank = rank_at(p.path[c], depth - 1), parent = p.parent[c];
        u64 at = (u64)s * ROWS + place[c];
        p.io.out_token[at] = p.io.token[((u64)s * LEVELS + depth - 1) * WIDTH + rank];
        p.io.out_parent[at] = parent == NONE ? 0 : place[parent];
        p.io.out_depth[at] = depth;
        p.io.out_rank[at] = rank;
        p.io.out_score[at] = number_of(picked[i]);
    }
    if (t == 0) p.io.out_rows[s] = 1 + n;
}
