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
    u32 low, begin, end; // first key that the tile sees; keys of this block
};

// First key that any row of the sequence sees.
TL_DEVICE u32 first_key(const Rows &rows, u32 s, u32 window) {
    u32 start = rows.seq_start[s];
    return window && start + 1 > window ? start + 1 - window : 0;
}

// Run by one warp. Finds this block's job, `false` if there is none. `slots` = blocks that run at once.
TL_DEVICE bool find_job(const Rows &rows, u32 seqs, u32 window, u32 slots, Cut *cuts, Job *job) {
    const u32 all = 0xffffffffu;
    u32 lane = threadIdx.x % 32;
    u32 longest = 0, items = 0, total = 0;
    for (u32 base = 0; base < seqs; base += 32) {
        u32 s = base + lane;
        u32 n = s < seqs ? rows.seq_rows[s] : 0;
        if (n) {
            u32 tiles = (n * GROUP + TILE_M - 1) / TILE_M * KV_HEADS;
            u32 steps = (rows.seq_start[s] + n - first_key(rows, s, window) + KEYS - 1) / KEYS;
            longest = max(longest, steps);
            items += tiles;
            total += tiles * steps;
        }
    }
    longest = __reduce_max_sync(all, longest);
    items = __reduce_add_sync(all, items);
    total = __reduce_add_sync(all, total);
    if (items == 0) return false;
    slots = max(slots, items);
    // Steps of one part: as few as fill the machine without a second wave. One sequence (or equal ones) in one try; else a
    // search from below, whose steps cost at most an eighth.
    u32 quota = max(max((total + slots - 1) / slots, (u32)LEAST_STEPS), (longest + MOST_PARTS - 1) / MOST_PARTS);
    quota = max(quota, (total / items + slots / items - 1) / (slots / items));
    for (;;) {
        u32 blocks = 0;
        for (u32 base = 0; base < seqs; base += 32) {
            u32 s = base + lane;
            u32 n = s < seqs ? rows.seq_rows[s] : 0;
            if (n) {
                u32 steps = (rows.seq_start[s] + n - first_key(rows, s, window) + KEYS - 1) / KEYS;
                blocks += (n * GROUP + TILE_M - 1) / TILE_M * KV_HEADS * ((steps + quota - 1) / quota);
            }
        }
        if (__reduce_add_sync(all, blocks) <= slots) break;
        quota += max(quota / 8, 1u);
    }
    u32 before = 0;
    bool found = false;
    for (u32 base = 0; base < seqs; base += 32) {
        u32 s = base + lane;
        u32 n = s < seqs ? rows.seq_rows[s] : 0;
        u32 low = 0, tiles = 0, parts = 0;
        if (n) {
            low = first_key(rows, s, window);
            tiles = (n * GROUP + TILE_M - 1) / TILE_M;
            parts = ((rows.seq_start[s] + n - low + KEYS - 1) / KEYS + quota - 1) / quota;
        }
        u32 mine = tiles * KV_HEADS * parts, upto = mine;
#pragma unroll
        for (int near = 1; near < 32; near *= 2) {
            u32 other = __shfl_up_sync(all, upto, near);
            if (lane >= near) upto += other;
        }
        u32 first = before + upto - mine;
        // Tiles of one sequence get equally many pairs, so that none has only the rest.
        Cut cut = {first, tiles, parts, tiles ? (n * GROUP + tiles - 1) / tiles : 0};
        if (blockIdx.x == 0 && s < seqs) cuts[s] = cut;
        if (blockIdx.x >= first && blockIdx.x < first + mine) {
            // Neighbouring blocks read the same keys: tile first, then head, then part.
            u32 i = blockIdx.x - first;
            u32 part = i / (tiles * KV_HEADS);
            job->cut = cut;
            job->seq = s;
            job->tile = i % tiles;
            job->kv_head = i / tiles % KV_HEADS;
            job->low = low;
            job->begin = low + part * quota * KEYS;
            job->end = min(rows.seq_start[s] + n, low + (part + 1) * quota * KEYS);
            found = true;
        }
        before += __shfl_sync(all, upto, 31);
    }
    return __any_sync(all, found);
}
