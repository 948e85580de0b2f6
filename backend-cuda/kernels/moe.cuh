// What the kernels of a mixture of experts share: which picks go to which expert.
#pragma once
#include "treeline.cuh"

// At most eight picks of one expert: one tile of columns. Their order within an expert is arbitrary; nothing that is computed
// depends on it.
#define SEGMENT 8
struct Segment {
    i32 expert;
    u32 count; // 1..8
    u32 pad[2];
    u32 pick[SEGMENT]; // row * top_k + place among the row's experts
};

TL_DEVICE float silu(float x) { return x / (1.0f + expf(-x)); }
