// What the kernels of a mixture of experts share: which rows go to which expert.
#pragma once
#include "treeline.cuh"

// At most eight picks of one expert: one tile of columns.
struct Segment {
    i32 expert;
    u32 first; // its first slot
    u32 count; // 1..8
    u32 pad;
};
#define SEGMENT 8

// Picks sorted by expert. Their order within an expert is arbitrary: nothing that is computed depends on it.
struct Dispatch {
    const Segment *segments; // by ascending expert
    const u32 *counts;       // [0] segments, [1] slots, [2] distinct experts
    const i32 *slot_row;     // [slots] row of each pick
    const float *slot_weight; // [slots]
};

TL_DEVICE float silu(float x) { return x / (1.0f + expf(-x)); }
