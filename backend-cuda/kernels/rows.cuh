// The rows of one pass, as `ops/rows.rs` lays them out.
#pragma once
#include "treeline.cuh"

// Words of a row's mask: bit j of word j / 32 says that the row sees row j of its own sequence's pass.
#define MASK_WORDS 9

struct Rows {
    const u32 *token;     // [rows]
    const u32 *position;  // [rows] absolute: rotary embedding and windows go by it
    const u32 *kv_row;    // [rows] row of the flat cache that this row writes; padding writes the sink
    const i32 *seq;       // [rows] index of its sequence, -1 = padding
    const u32 *offset;    // [rows] index among the rows of its sequence
    const u32 *mask;      // [rows][MASK_WORDS]
    const u32 *seq_kv;    // [seqs] row of the cache that holds position 0 of the sequence
    const u32 *seq_start; // [seqs] length of the past
    const u32 *seq_begin; // [seqs] first row of the pass
    const u32 *seq_rows;  // [seqs] rows of the pass, 0 = padding
};
