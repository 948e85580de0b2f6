// How the work of latent attention is shared among blocks.
//
// A tile is TILE consecutive (row, head) pairs of one sequence, row-major: they see the same past, so that each key is read once
// for all of them. A unit is one tile against KEYS keys. All units of a pass lie in one order (sequence, tile, keys), and block b
// of B takes those in [U b / B, U (b + 1) / B): every block has the same work whatever the batch looks like, and the launch does
// not depend on it. A tile that several blocks share is joined from their partial results by `mla_merge`.
#pragma once
#include "ptx.cuh"
#include "rows.cuh"

#define DIM (KV_LORA + ROPE)
#define KEYS 64
#define NEVER __int_as_float(0xff800000) // the score of a key that is not seen
#define LOG2E 1.4426950408889634f

// What the forms have in common.
struct MlaArgs {
    Rows rows;
    const act *q;      // [rows][HEADS][DIM], scaled
    const act *cache;  // [cache rows][DIM]
    act *out;          // [rows][HEADS][KV_LORA]
    float *part;       // [2 blocks][TILE][KV_LORA] sums of weight x value, not divided, in the order of `mla_column`
    float2 *part_norm; // [2 blocks][TILE] largest score (base 2), sum of weights
    u32 seqs;
    u32 window;        // keys at a position <= own - window are not seen; 0 = no window
    u32 blocks;        // of the attention kernel
    u32 lanes;         // of the merge: threads that share a (row, head) pair, 4 columns each
};

// The tiles of one sequence.
struct MlaSpan {
    u32 rows;   // of the pass
    u32 start;  // committed tokens
    u32 from;   // first key that any row sees
    u32 keys;   // one behind the last key
    u32 tiles;
    u32 chunks; // of KEYS keys; a chunk and a tile make a unit
};

TL_DEVICE MlaSpan mla_span(const Rows &rows, u32 seq, u32 window) {
    MlaSpan s;
    s.rows = rows.seq_rows[seq];
    s.start = rows.seq_start[seq];
    // No row lies before `start`.
    s.from = window != 0 && s.start + 1 > window ? s.start + 1 - window : 0;
    s.keys = s.start + s.rows;
    s.tiles = (s.rows * HEADS + TILE - 1) / TILE;
    s.chunks = (s.keys - s.from + KEYS - 1) / KEYS;
    return s;
}

TL_DEVICE u32 mla_units(const Rows &rows, u32 seq, u32 seqs, u32 window) {
    if (seq >= seqs) return 0;
    MlaSpan s = mla_span(rows, seq, window);
    return s.tiles * s.chunks;
}

TL_DEVICE u32 warp_sum(u32 x) {
#pragma unroll
    for (int with = 16; with > 0; with /= 2) x += __shfl_xor_sync(0xffffffffu, x, with);
    return x;
}

// Units of all sequences, and of those before `seq`. For whole warps; the same in all lanes.
TL_DEVICE u32 mla_total(const Rows &rows, u32 seqs, u32 window, u32 seq, u32 &before) {
    if (seqs == 1) {
        before = 0;
        return mla_units(rows, 0, 1, window);
    }
    u32 total = 0, earlier = 0;
#pragma unroll 1
    for (u32 s = threadIdx.x % 32; s < seqs; s += 32) {
        u32 units = mla_units(rows, s, seqs, window);
        total += units;
        if (s < seq) earlier += units;
    }
    before = warp_sum(earlier);
    return warp_sum(total);
}

// The sequence that unit `unit` belongs to, and the units before that sequence. For whole warps.
TL_DEVICE u32 mla_find(const Rows &rows, u32 seqs, u32 window, u32 unit, u32 &before) {
    before = 0;
    if (seqs == 1) return 0;
    u32 lane = threadIdx.x % 32;
#pragma unroll 1
    for (u32 base = 0; base < seqs; base += 32) {
        u32 units = mla_units(rows, base + lane, seqs, window), sum = units;
#pragma unroll
        for (int by = 1; by < 32; by *= 2) {
            u32 left = __shfl_up_sync(0xffffffffu, sum, by);
            if (lane >= by) sum += left;
        }
        u32 hit = __ballot_sync(0xffffffffu, before + sum > unit);
        if (hit) {
            int owner = __ffs(hit) - 1;
            before += __shfl_sync(0xffffffffu, sum - units, owner);
            return base + owner;
        }
        before += __shfl_sync(0xffffffffu, sum, 31);
    }
    return 0;
}

// What a block does next: some chunks of one tile.
struct MlaPlace {
    MlaSpan span;
    u32 seq;
    u32 begin; // first row of the sequence in the pass
    u32 tile;
    u32 chunk; // first
    u32 count; // of chunks
};

TL_DEVICE MlaPlace mla_place(const MlaArgs &p, u32 unit, u32 end) {
    MlaPlace at;
    u32 before;
    at.seq = mla_find(p.rows, p.seqs, p.window, unit, before);
    at.span = mla_span(p.rows, at.seq, p.window);
    at.begin = p.rows.seq_begin[at.seq];
    at.tile = (unit - before) / at.span.chunks;
    at.chunk = (unit - before) % at.span.chunks;
    at.count = min(at.span.chunks - at.chunk, end - unit);
    return at;
}

// First (row, head) pair of the tile, and how many are real.
TL_DEVICE u64 mla_pair(const MlaPlace &at) { return (u64)at.begin * HEADS + at.tile * TILE; }
TL_DEVICE u32 mla_valid(const MlaPlace &at) { return min(at.span.rows * HEADS - at.tile * TILE, (u32)TILE); }

// Blocks that take part. With EVEN, one sequence's tiles get the same number of blocks each if that costs little: blocks at the same
// keys of several tiles read them at the same time, and none pays for the beginning and end of two parts.
TL_DEVICE u32 mla_blocks(const MlaArgs &p, u32 total) {
    u32 blocks = min(p.blocks, total);
#if EVEN
    if (p.seqs == 1 && total != 0) {
        u32 tiles = mla_span(p.rows, 0, p.window).tiles, even = blocks / tiles * tiles;
        if (even * 10 >= blocks * 9) return even;
    }
#endif
    return blocks;
}

// First unit of block `block`.
TL_DEVICE u32 mla_begin(u32 total, u32 block, u32 blocks) { return (u32)((u64)total * block / blocks); }

// The block that has unit `unit`.
TL_DEVICE u32 mla_owner(u32 total, u32 unit, u32 blocks) { return (u32)(((u64)(unit + 1) * blocks - 1) / total); }

// Where a block leaves its part of a tile: one place for a tile that an earlier block began, one for a tile it began itself.
TL_DEVICE u32 mla_slot(u32 block, bool begins) { return 2 * block + (begins ? 1 : 0); }

// Bit i: whether row `row` of the pass sees key `key + i`.
TL_DEVICE u64 mla_seen(const MlaArgs &p, const MlaSpan &s, u32 begin, u32 row, u32 key) {
    const u32 *mask = p.rows.mask + (u64)row * MASK_WORDS;
    u64 seen;
    if (key < s.start) {
        u32 past = s.start - key;
        seen = past >= KEYS ? ~0ull : ((u64)mask[1] << 32 | mask[0]) << past | ((1ull << past) - 1);
    } else {
        u32 word = (key - s.start) / 32, by = (key - s.start) % 32;
        u32 a = word < MASK_WORDS ? mask[word] : 0, b = word + 1 < MASK_WORDS ? mask[word + 1] : 0;
        u32 c = word + 2 < MASK_WORDS ? mask[word + 2] : 0;
        seen = (u64)__funnelshift_r(b, c, by) << 32 | __funnelshift_r(a, b, by);
    }
    if (s.keys - key < KEYS) seen &= (1ull << (s.keys - key)) - 1;
    if (p.window != 0) {
        u32 own = p.rows.position[row];
#pragma unroll 1
        for (u32 i = 0; i < KEYS; i++) {
            u32 k = key + i;
            if (!(seen >> i & 1)) continue;
            u32 position = k < s.start ? k : p.rows.position[begin + k - s.start];
            if ((u64)position + p.window <= own) seen &= ~(1ull << i);
        }
    }
    return seen;
}

// Whether some row may not see some key of the chunk that begins at `key`.
TL_DEVICE bool mla_edge(const MlaSpan &s, u32 key, u32 window) {
    return key + KEYS > s.start || (window != 0 && (u64)key + window < s.start + s.rows);
}

// Both halves with what is infinite or NaN made zero.
TL_DEVICE u32 finite_bf16x2(u32 x) {
    u32 low = (x & 0x7f80u) == 0x7f80u ? 0 : x & 0xffffu;
    u32 high = (x & 0x7f800000u) == 0x7f800000u ? 0 : x & 0xffff0000u;
    return low | high;
}

// Makes values of a chunk finite: rows (keys) `first` .. `last`, by `threads` threads.
//
// Weight 0 times a value must be 0, also where a row that this row does not see holds NaN. Whether there is such a row shows in the
// scores: a key that is not finite gives no finite score with any query. So this runs almost never.
TL_DEVICE void mla_clean(u8 *chunk, u32 first, u32 last, u32 thread, u32 threads) {
    // Word by word: it is the registers that count here, not the time.
#pragma unroll 1
    for (u32 panel = 0; panel < KV_LORA / 64; panel++) {
        u32 *words = (u32 *)(chunk + panel * KEYS * 128);
#pragma unroll 1
        for (u32 t = first * 32 + thread; t < last * 32; t += threads) words[t] = finite_bf16x2(words[t]);
    }
}

// Partial results lie as the threads that make them have them: of 16 columns, thread t of a quad holds 2t, 2t + 1, 8 + 2t, 9 + 2t
// and writes them side by side. The first of the four columns at place `at` (a multiple of 4); the others are 1, 8 and 9 further.
TL_DEVICE u32 mla_column(u32 at) { return at / 16 * 16 + at % 16 / 2; }

// Whether a score is NaN or infinite.
TL_DEVICE bool not_finite(float x) { return (__float_as_uint(x) & 0x7f800000u) == 0x7f800000u; }
