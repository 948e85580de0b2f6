// The accepted path made dense: cache rows of every layer, and the features of its rows.
//
// UNIT (bytes of one access), COLUMNS (accesses of a cache row), WIDTH and VEC (features).
#include "vector.cuh"

// Rows in flight of a thread.
#define BATCH 8

struct GatherKvArgs {
    const u64 *bases;     // [layers] first byte of each layer's cache
    const u32 *seq_kv;    // [seqs] cache row of position 0
    const u32 *seq_start; // [seqs] length of the past
    const u32 *path;      // [seqs][max_path] ascending indices among the rows of the pass, path[0] = 0
    const u32 *path_len;  // [seqs]
    u32 max_path;
    u32 unused;
};

// One thread moves one column of all the rows, so nobody else reads or writes what it moves. The path ascends, so a row is
// never overwritten before it is read: row i comes from a row ≥ i, and later rows come from later ones.
TL_KERNEL(gather_kv, GatherKvArgs, 128) {
    griddep_launch();
    griddep_wait();
    u32 column = blockIdx.x * 128 + threadIdx.x;
    u32 s = blockIdx.z;
    u32 count = min(p.path_len[s], p.max_path);
    if (column >= COLUMNS || count < 2) return;
    const u32 *path = p.path + (u64)s * p.max_path;
    u64 first = (u64)p.seq_kv[s] + p.seq_start[s];
    Raw<UNIT> *at = (Raw<UNIT> *)p.bases[blockIdx.y] + first * COLUMNS + column;
    for (u32 i = 1; i < count; i += BATCH) {
        Raw<UNIT> held[BATCH];
#pragma unroll
        for (u32 j = 0; j < BATCH; j++)
            if (i + j < count) held[j] = at[(u64)path[i + j] * COLUMNS];
#pragma unroll
        for (u32 j = 0; j < BATCH; j++)
            if (i + j < count) at[(u64)(i + j) * COLUMNS] = held[j];
    }
}

struct GatherRowsArgs {
    const act *src;         // [rows][WIDTH]
    const u32 *seq_begin;   // [seqs] first row of the pass
    const u32 *path;        // [seqs][max_path]
    const u32 *path_len;    // [seqs]
    const u32 *seq_start;   // [seqs] length of the past before this pass, or none
    const u32 *seq_kv;      // [seqs] cache row of position 0 in the cache that the gathered rows are meant for
    act *dst;               // [seqs · max_path][WIDTH]
    u32 *position;          // [seqs · max_path], with seq_start
    u32 *kv_row;            // [seqs · max_path], with seq_start
    u32 max_path;
    u32 sink;
};

TL_KERNEL(gather_rows, GatherRowsArgs, 256) {
    griddep_launch();
    griddep_wait();
    u32 s = blockIdx.z, i = blockIdx.y;
    u64 to = (u64)s * p.max_path + i;
    bool real = i < p.path_len[s];
    if (p.seq_start && blockIdx.x == 0 && threadIdx.x == 0) {
        p.position[to] = real ? p.seq_start[s] + i : 0;
        p.kv_row[to] = real ? p.seq_kv[s] + p.seq_start[s] + i : p.sink;
    }
    u32 column = (blockIdx.x * 256 + threadIdx.x) * VEC;
    if (column >= WIDTH) return;
    float x[VEC];
    clear(x);
    if (real) load(p.src + ((u64)p.seq_begin[s] + p.path[to]) * WIDTH + column, x);
    store(p.dst + to * WIDTH + column, x);
}
