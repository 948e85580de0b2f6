// What the tensor-core forms of grouped-query attention share: arguments, visibility, and where results go.
//
// Pairs of (row, head of the group) are the rows of one product, so that the keys and values of a head are read once for all
// of them. The sequence's own rows lie behind its past in the cache and are keys like the others; only their visibility
// comes from the mask. Blocks take parts of the keys (`gqa_split.cuh`); gqa_merge puts the parts together.
//
// HEADS, KV_HEADS, DIM (64 or 128), TILE_M, KEYS, THREADS.
#pragma once
#include "gqa_split.cuh"
#include "vector.cuh"

#define CHUNKS (DIM / 8)
#define LOG2_E 1.4426950408889634f

struct GqaTileArgs {
    Rows rows;
    const bf16 *q; // [rows][HEADS][DIM], scaled
    const bf16 *k; // [cache rows][KV_HEADS][DIM]
    const bf16 *v;
    bf16 *out;     // [rows][HEADS][DIM]
    float *part;   // [slots][TILE_M][DIM] weighted values of a part
    float *top;    // [slots][TILE_M][2] maximum (times log2 e) and sum of a part
    Cut *cuts;     // [seqs]
    u32 seqs;
    u32 slots;     // blocks that run at once
    u32 window;
    u32 window_tail;
};

// Visible keys among [key, key + 64) of row `row` of the pass.
TL_DEVICE u64 sees(const Rows &rows, const Job &job, u32 row, u32 key, u32 window, u32 window_tail) {
    u32 start = job.start, end = start + job.rows, position = rows.position[row];
    u64 bits;
    if (key + 64 <= start) {
        bits = ~0ull;
    } else {
        const u32 *mask = rows.mask + (u64)row * MASK_WORDS;
        u32 word = key < start ? 0 : (key - start) / 32, shift = key < start ? 0 : (key - start) % 32;
        u32 w[3];
#pragma unroll
        for (u32 i = 0; i < 3; i++) w[i] = word + i < MASK_WORDS ? mask[word + i] : 0;
        bits = ((u64)w[1] << 32 | w[0]) >> shift;
        if (shift) bits |= (u64)w[2] << (64 - shift);
        if (key < start) bits = bits << (start - key) | ((1ull << (start - key)) - 1);
        if (key + 64 > end) bits &= end > key ? (1ull << (end - key)) - 1 : 0;
    }
    if (window && position + 1 > window) {
        u32 first = position + 1 - window, past = min(first, start);
        if (past > key) bits = past - key >= 64 ? 0 : bits >> (past - key) << (past - key);
        if (window_tail && first > start) {
            // A tree deeper than the window: rare, so it may be slow.
#pragma unroll 1
            for (u32 j = max(key, start); j < min(key + 64, end); j++) {
                if (rows.position[job.row + j - start] < first) bits &= ~(1ull << (j - key));
            }
        }
    }
    return bits;
}

// Where the result of pair `m` of the tile goes: the output itself if the tile has one part, else the parts' memory.
struct Target {
    bf16 *out;
    float *part;
    float *top;
};

TL_DEVICE Target target_of(const GqaTileArgs &p, const Job &job, u32 m) {
    u32 pair = job.first_pair + m;
    u64 head = (u64)(job.row + pair / GROUP) * HEADS + job.kv_head * GROUP + pair % GROUP;
    u64 slot = (u64)blockIdx.x * TILE_M + m;
    Target to = {job.cut.parts == 1 ? p.out + head * DIM : nullptr, p.part + slot * DIM, p.top + 2 * slot};
    return to;
}

// A NaN among the values of a tree row must not reach rows that do not see it, and 0 · NaN would. So values that are not finite
// are taken out of the KEYS · CHUNKS pieces that `piece` finds, and their keys returned. Run by the whole block.
template <class Piece> TL_DEVICE u64 take_out_broken(u32 (&broken)[2], Piece piece) {
    if (threadIdx.x < 2) broken[threadIdx.x] = 0;
    __syncthreads();
    for (u32 item = threadIdx.x; item < KEYS * CHUNKS; item += THREADS) {
        uint4 *at = (uint4 *)piece(item / CHUNKS, item % CHUNKS);
        u32 w[4] = {at->x, at->y, at->z, at->w};
        bool finite = true;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            finite = finite && (w[i] & 0x7f80u) != 0x7f80u && (w[i] & 0x7f800000u) != 0x7f800000u;
        }
        if (!finite) {
            *at = make_uint4(0, 0, 0, 0);
            atomicOr(&broken[item / CHUNKS / 32], 1u << (item / CHUNKS % 32));
        }
    }
    fence_async();
    __syncthreads();
    return (u64)broken[1] << 32 | broken[0];
}
