// Trees by levels: every level expands its BEAM best candidates into their BEAM best children, and the best of all levels are
// the tree.
//
// A candidate's key is its score, but never above its parent's. Of each level the NODES best are kept (nothing else can be
// expanded or end in the tree), in order; a running list holds the best of all levels so far.
#include "tree.cuh"

// Keeps the code of a level small: candidates are made again in each pass over them.
#define THREADS 256
#define PER_LEVEL NODES
#define WIDE (BEAM < COLS ? BEAM : COLS)
#define ITEMS (LEVELS * PER_LEVEL + 1)

struct LayersArgs {
    TreeIo io;
};

// A kept candidate; 0 is the root, level d has PER_LEVEL places from 1 + (d - 1) PER_LEVEL on.
struct Item {
    double score, key;
    u32 order; // of its rank tuple among the kept ones of its level
    u16 parent, rank;
};

TL_DEVICE u32 level_of(u32 item) { return item == 0 ? 0 : (item - 1) / PER_LEVEL + 1; }

// Whether `a` comes before `b`, of whatever levels.
TL_DEVICE bool item_before(const Item *items, u32 a, u32 b) {
    if (items[a].key != items[b].key) return items[a].key > items[b].key;
    u32 da = level_of(a), db = level_of(b), x = a, y = b;
    for (u32 d = da; d > db; d--) x = items[x].parent;
    for (u32 d = db; d > da; d--) y = items[y].parent;
    if (x == y) return da < db;
    return items[x].order < items[y].order;
}

TL_KERNEL(tree_layers, LayersArgs, THREADS) {
    TL_SHARED(bytes);
    Item *items = (Item *)bytes;      // [ITEMS]
    u16 *node = (u16 *)(items + ITEMS); // [ITEMS] place in the tree
    __shared__ float rows[LEVELS * COLS];
    __shared__ u64 keys[NODES];        // of the level's best, unsorted
    __shared__ u32 codes[NODES];       // order of the parent's tuple * WIDE + rank
    __shared__ u16 parents[NODES];
    __shared__ u16 best[2][NODES];     // best of all levels so far
    __shared__ u32 parts[64];
    __shared__ u32 filled, shared_beam;
    u32 s = blockIdx.x, t = threadIdx.x, turn = 0;
    Limits limits = begin_tree(p.io, s);
    if (!limits.live || limits.nodes == 0 || limits.depth == 0) return;
    load_rows(p.io, s, limits.depth, rows);
    u32 most = limits.nodes, wide = WIDE < most ? WIDE : most;
    u32 held = 0, side = 0, beam = 1, beam_at = 0;
    if (t == 0) {
        items[0].score = 0.0, items[0].key = 0.0;
        items[0].order = 0, items[0].parent = 0, items[0].rank = 0;
        node[0] = 0;
    }
    for (u32 d = 1; d <= limits.depth && beam > 0; d++) {
        if (t == 0) filled = 0, shared_beam = 0;
        __syncthreads();
        const float *row = rows + (d - 1) * COLS;
        u32 all = beam * wide;
        auto key_at = [&](u32 c) -> u64 {
            const Item &above = items[beam_at + c / wide];
            float x = row[c % wide];
            if (!(x > MINUS_INF)) return 0;
            double path = above.score + (double)x;
            return order_of(above.key < path ? above.key : path);
        };
        auto code_at = [&](u32 c) -> u32 { return items[beam_at + c / wide].order * WIDE + c % wide; };
        auto reaching = [&](u64 key) {
            u32 n = 0;
            for (u32 c = t; c < all; c += THREADS) n += key_at(c) >= key;
            return block_add(n, parts, turn);
        };
        // Mostly there is room for all.
        u64 least = reaching(1) > most ? threshold<u64>(most, reaching) : 1;
        u32 above = 0, equal = 0;
        for (u32 c = t; c < all; c += THREADS) {
            u64 key = key_at(c);
            above += key > least, equal += key == least;
        }
        above = block_add(above, parts, turn);
        equal = block_add(equal, parts, turn);
        // Of equal ones the smallest tuples; ~code, because a threshold counts from above.
        u32 last = 0, room = most - above;
        if (equal > room) {
            last = threshold<u32>(room, [&](u32 code) {
                u32 n = 0;
                for (u32 c = t; c < all; c += THREADS) n += key_at(c) == least && ~code_at(c) >= code;
                return block_add(n, parts, turn);
            });
        }
        for (u32 c = t; c < all; c += THREADS) {
            u64 key = key_at(c);
            u32 code = code_at(c);
            if (key > least || (key == least && ~code >= last)) {
                u32 slot = atomicAdd(&filled, 1u);
                keys[slot] = key, codes[slot] = code;
                parents[slot] = (u16)(beam_at + c / wide);
            }
        }
        __syncthreads();
        u32 n = filled, base = 1 + (d - 1) * PER_LEVEL;
        for (u32 i = t; i < n; i += THREADS) {
            u32 first = 0, order = 0;
            for (u32 j = 0; j < n; j++) {
                first += keys[j] > keys[i] || (keys[j] == keys[i] && codes[j] < codes[i]);
                order += codes[j] < codes[i];
            }
            Item &item = items[base + first];
            u32 rank = codes[i] % WIDE;
            item.parent = parents[i], item.rank = (u16)rank, item.order = order;
            item.key = number_of(keys[i]);
            item.score = items[parents[i]].score + (double)row[rank];
        }
        __syncthreads();
        // Merges the level into the best of all: each entry's place is its own index plus the rivals before it.
        const u16 *old = best[side];
        u16 *fresh = best[side ^ 1];
        for (u32 i = t; i < n + held; i += THREADS) {
            bool is_new = i < n;
            u32 own = is_new ? i : i - n, item = is_new ? base + i : old[own];
            u32 low = 0, high = is_new ? held : n;
            while (low < high) {
                u32 mid = (low + high) / 2, other = is_new ? old[mid] : base + mid;
                if (item_before(items, other, item)) {
                    low = mid + 1;
                } else {
                    high = mid;
                }
            }
            if (own + low < most) {
                fresh[own + low] = (u16)item;
                if (is_new) atomicAdd(&shared_beam, 1u);
            }
        }
        __syncthreads();
        side ^= 1;
        held = held + n < most ? held + n : most;
        // A beam wider than the tree is what is among the best of all.
        beam = BEAM < most ? (BEAM < n ? BEAM : n) : shared_beam;
        beam_at = base;
        __syncthreads();
    }
    for (u32 i = t; i < held; i += THREADS) node[best[side][i]] = (u16)(i + 1);
    __syncthreads();
    for (u32 i = t; i < held; i += THREADS) {
        u32 at = best[side][i], depth = level_of(at);
        const Item &item = items[at];
        u64 out = (u64)s * ROWS + i + 1;
        p.io.out_token[out] = p.io.token[((u64)s * LEVELS + depth - 1) * WIDTH + item.rank];
        p.io.out_parent[out] = node[item.parent];
        p.io.out_depth[out] = depth;
        p.io.out_rank[out] = item.rank;
        p.io.out_score[out] = item.score;
    }
    if (t == 0) p.io.out_rows[s] = 1 + held;
}
