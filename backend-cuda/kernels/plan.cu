// The rows of a verify pass from trees on the device, as `RowPlan` makes them on the host, padding included.
#include "rows.cuh"
#include "select.cuh"

#define THREADS 128

struct PlanArgs {
    const u32 *tree_token;  // [seqs], `stride` apart
    const u32 *tree_parent; // the same
    const u32 *tree_rows;   // [seqs]
    const u32 *kv;          // [seqs] cache row of position 0
    const u32 *start;       // [seqs] committed tokens
    u32 *token;             // [rows]
    u32 *position;
    u32 *kv_row;
    i32 *seq;
    u32 *offset;
    u32 *mask; // [rows][MASK_WORDS]
    u32 *seq_kv; // [seqs]
    u32 *seq_start;
    u32 *seq_begin;
    u32 *seq_rows;
    u32 *overflow; // [1] set to 1 where the rows did not fit
    u32 stride;
    u32 rows; // of the bucket
    u32 seqs;
    u32 sink;
};

// Block s writes sequence s, the last block the padding.
TL_KERNEL(plan, PlanArgs, THREADS) {
    __shared__ u32 parts[64];
    __shared__ u32 parent[MASK_WORDS * 32];
    __shared__ u32 bits[THREADS * MASK_WORDS];
    u32 s = blockIdx.x, t = threadIdx.x, turn = 0;
    const u32 most = MASK_WORDS * 32;
    auto rows_of = [&](u32 s) { return p.tree_rows[s] < most ? p.tree_rows[s] : most; };
    u32 before = 0;
    for (u32 i = t; i < s && i < p.seqs; i += THREADS) before += rows_of(i);
    before = block_add(before, parts, turn);
    if (s == p.seqs) {
        for (u32 row = before + t; row < p.rows; row += THREADS) {
            p.token[row] = 0;
            p.position[row] = 0;
            p.kv_row[row] = p.sink;
            p.seq[row] = -1;
            p.offset[row] = 0;
        }
        u64 first = (u64)before * MASK_WORDS;
        for (u64 i = first + t; i < (u64)p.rows * MASK_WORDS; i += THREADS) p.mask[i] = 0;
        return;
    }
    u32 n = rows_of(s);
    // The host gives a bucket that holds everything; memory stays whole even so.
    u32 begin = before < p.rows ? before : p.rows, room = p.rows - begin;
    if (t == 0 && (n > room || p.tree_rows[s] > most)) *p.overflow = 1;
    n = n < room ? n : room;
    u32 kv = p.kv[s], start = p.start[s];
    if (t == 0) {
        p.seq_kv[s] = n ? kv : 0;
        p.seq_start[s] = n ? start : 0;
        p.seq_begin[s] = n ? begin : 0;
        p.seq_rows[s] = n;
    }
    const u32 *tree = p.tree_token + (u64)s * p.stride;
    for (u32 j = t; j < n; j += THREADS) parent[j] = p.tree_parent[(u64)s * p.stride + j];
    __syncthreads();
    for (u32 first = 0; first < n; first += THREADS) {
        u32 j = first + t;
        u32 *mine = bits + t * MASK_WORDS;
        for (u32 w = 0; w < MASK_WORDS; w++) mine[w] = 0;
        if (j < n) {
            u32 at = j, depth = 0;
            mine[at / 32] |= 1u << (at % 32);
            // Parents lie before their children, so this ends; a bad parent ends it at once.
            while (at > 0) {
                at = parent[at] < at - 1 ? parent[at] : at - 1;
                mine[at / 32] |= 1u << (at % 32);
                depth++;
            }
            u32 row = begin + j;
            p.token[row] = tree[j];
            p.position[row] = start + depth;
            p.kv_row[row] = kv + start + j;
            p.seq[row] = (i32)s;
            p.offset[row] = j;
        }
        __syncthreads();
        u32 here = n - first < THREADS ? n - first : THREADS;
        u64 out = (u64)(begin + first) * MASK_WORDS;
        for (u32 i = t; i < here * MASK_WORDS; i += THREADS) p.mask[out + i] = bits[i];
        __syncthreads();
    }
}
