// How grouped-query attention of a whole batch is cut into blocks: tiles of (row, head of the group) pairs, each over a part
// of the keys. The grid is fixed for a bucket; who does what follows from the lengths that the pass brings.
//
// HEADS, KV_HEADS, TILE_M (pairs of a tile at most), KEYS (keys of a step).
#pragma once
#include "rows.cuh"
#include "ptx.cuh"

#define GROUP (HEADS / KV_HEADS)
// Keys in one block at least, in steps, where there is a choice.
#ifndef LEAST_STEPS
#define LEAST_STEPS 1
#endif
// Parts of one tile at most: merging reads all of them.
#define MOST_PARTS 64

// One sequence as the merge has to know it, written by block 0.
struct Cut {
    u32 first; // its first block
    u32 tiles;
    u32 parts; // 1 = nothing to merge
    u32 pairs; // pairs of each tile but perhaps the last
};

// What one block does.
struct Job {
    Cut cut;
    u32 seq, tile, kv_head;
    u32 kv, start, row, rows;  // the sequence's cache and past, its first row and its rows
    u32 begin, end;            // keys of this block
    u32 first_pair, pairs;     // of the tile: pair i is row i / GROUP, head i % GROUP of the key/value head
};

// What decides how a sequence is cut.
struct Length {
    u32 rows, start;
    u32 low;   // first key that any of its rows sees
    u32 tiles; // over all key/value heads
    u32 steps;
};

// a / b for a below 2^24, rounded down: the general division is several times longer, and every block waits for a few of them.
TL_DEVICE u32 over(u32 a, u32 b) {
    u32 q = (u32)((float)a * rcp_approx((float)b));
    i32 rest = (i32)(a - q * b);
    return rest < 0 ? q - 1 : rest >= (i32)b ? q + 1 : q;
}
TL_DEVICE u32 over_up(u32 a, u32 b) { return over(a + b - 1, b); }

TL_DEVICE Length length_of(const Rows &rows, u32 s, u32 seqs, u32 window) {
    Length of = {0, 0, 0, 0, 0};
    if (s < seqs) {
        of.rows = rows.seq_rows[s];
        of.start = rows.seq_start[s];
        if (window && of.start + 1 > window) of.low = of.start + 1 - window;
        of.tiles = (of.rows * GROUP + TILE_M - 1) / TILE_M * KV_HEADS;
        of.steps = (of.start + of.rows - of.low + KEYS - 1) / KEYS;
    }
    return of;
}

// Run by one warp. Finds this block's job, `false` if there is none. `slots` = blocks that run at once.
TL_DEVICE bool find_job(const Rows &rows, u32 seqs, u32 window, u32 slots, Cut *cuts, Job *job) {
    const u32 all = 0xffffffffu;
    u32 lane = threadIdx.x % 32;
    // Each lane keeps its first sequence: few batches have more than 32.
    const Length kept = length_of(rows, lane, seqs, window);
    u32 longest = 0, items = 0, total = 0;
    for (u32 base = 0; base < seqs; base += 32) {
        Length of = base ? length_of(rows, base + lane, seqs, window) : kept;
        if (of.rows) {
            longest = max(longest, of.steps);
            items += of.tiles;
            total += of.tiles * of.steps;
        }
    }
    longest = __reduce_max_sync(all, longest);
    items = __reduce_add_sync(all, items);
    total = __reduce_add_sync(all, total);
    if (items == 0) return false;
    slots = max(slots, items);
    // Steps of one part: as few as fill the machine without a second wave. Equal sequences in one try; else a search from below,
    // whose steps cost at most an eighth.
    u32 most = over(slots, items), quota = max((longest + MOST_PARTS - 1) / MOST_PARTS, (u32)LEAST_STEPS);
    if (seqs == 1) {
        quota = max(quota, over_up(longest, most));
    } else {
        quota = max(quota, max((total + slots - 1) / slots, (total / items + most - 1) / most));
    }
    for (;;) {
        u32 blocks = 0;
        for (u32 base = 0; base < seqs; base += 32) {
            Length of = base ? length_of(rows, base + lane, seqs, window) : kept;
            if (of.rows) blocks += of.tiles * over_up(of.steps, quota);
        }
        if (__reduce_add_sync(all, blocks) <= slots) break;
        quota += max(quota / 8, 1u);
    }
    u32 before = 0;
    bool found = false;
    for (u32 base = 0; base < seqs; base += 32) {
        u32 s = base + lane;
        Length of = base ? length_of(rows, s, seqs, window) : kept;
        u32 tiles = of.tiles / KV_HEADS, parts = of.rows ? over_up(of.steps, quota) : 0;
        u32 mine = of.tiles * parts, upto = mine;
#pragma unroll
        for (int near = 1; near < 32; near *= 2) {
            u32 other = __shfl_up_sync(all, upto, near);
            if (lane >= near) upto += other;
        }
        u32 first = before + upto - mine;
        // Tiles of one sequence get equally many pairs, so that none has only the rest.
        Cut cut = {first, tiles, parts, tiles ? over_up(of.rows * GROUP, tiles) : 0};
        if (blockIdx.x == 0 && s < seqs) cuts[s] = cut;
        if (blockIdx.x >= first && blockIdx.x < first + mine) {
            // Neighbouring blocks read the same keys: tile first, then head, then part.
            u32 i = blockIdx.x - first, part = over(i, of.tiles), column = over(i, tiles);
            job->cut = cut;
            job->seq = s;
            job->tile = i - column * tiles;
            job->kv_head = column % KV_HEADS;
            job->kv = rows.seq_kv[s];
            job->start = of.start;
            job->row = rows.seq_begin[s];
            job->rows = of.rows;
            job->begin = of.low + part * quota * KEYS;
            job->end = min(of.start + of.rows, of.low + (part + 1) * quota * KEYS);
            job->first_pair = job->tile * cut.pairs;
            job->pairs = min(cut.pairs, of.rows * GROUP - job->first_pair);
            found = true;
        }
        before += __shfl_sync(all, upto, 31);
    }
    return __any_sync(all, found);
}
