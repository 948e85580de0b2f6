// Experts, for every shape and type: each thread makes one output of one pick or row.
//
// HIDDEN, INTER, TOP_K, INT4 (else weights of the activations' type), VEC (dense: elements of one access).
// An expert is gate [INTER][HIDDEN], up, down [HIDDEN][INTER]. INT4: words of 8 nibbles (lowest first, stored as q + 8), behind
// each matrix its scales, bf16 [rows][columns / 32].
#include "moe.cuh"
#include "vector.cuh"

#define THREADS 128
#if INT4
#define MATRIX_BYTES ((u64)HIDDEN * INTER / 2 + (u64)HIDDEN * INTER / 16)
#else
#define MATRIX_BYTES ((u64)HIDDEN * INTER * sizeof(act))
#endif

struct PlainArgs {
    const u8 *experts;
    const act *h;         // [rows][HIDDEN]
    const i32 *ids;       // [rows][TOP_K] ascending, -1 in padded rows
    const float *weights; // [rows][TOP_K]
    act *middle;          // [rows][TOP_K][INTER]
    act *out;             // [rows][HIDDEN]
};

// Row `row` of a matrix of `columns` columns and `rows` rows, times x.
template <int ROWS, int COLUMNS> TL_DEVICE float dot(const u8 *matrix, u32 row, const act *x) {
    float sum = 0.0f;
#if INT4
    const u32 *words = (const u32 *)matrix + (u64)row * (COLUMNS / 8);
    const bf16 *scales = (const bf16 *)(matrix + (u64)ROWS * COLUMNS / 2) + (u64)row * (COLUMNS / 32);
    for (int group = 0; group < COLUMNS / 32; group++) {
        float part = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 word = words[group * 4 + i];
            float v[4];
#pragma unroll
            for (int k = 0; k < 8; k++) {
                if (k % 4 == 0) load(x + group * 32 + i * 8 + k, v);
                part += (float)((i32)(word >> (4 * k) & 15u) - 8) * v[k % 4];
            }
        }
        sum += to_float(scales[group]) * part;
    }
#else
    const act *weights = (const act *)matrix + (u64)row * COLUMNS;
    for (int k = 0; k < COLUMNS; k += VEC) {
        float w[VEC], v[VEC];
        load(weights + k, w);
        load(x + k, v);
#pragma unroll
        for (int i = 0; i < VEC; i++) sum += w[i] * v[i];
    }
#endif
    return sum;
}

// middle = silu(gate h) * up h.
TL_KERNEL(moe_plain_up, PlainArgs, THREADS) {
    u32 pick = blockIdx.x, i = blockIdx.y * THREADS + threadIdx.x;
    i32 id = p.ids[pick];
    if (id < 0 || i >= INTER) return;
    const u8 *gate = p.experts + (u64)id * (3 * MATRIX_BYTES);
    const act *h = p.h + (u64)(pick / TOP_K) * HIDDEN;
    float g = dot<INTER, HIDDEN>(gate, i, h), u = dot<INTER, HIDDEN>(gate + MATRIX_BYTES, i, h);
    p.middle[(u64)pick * INTER + i] = to_act(silu(g) * u);
}

// out = sum of weight * down(middle), experts in ascending order.
TL_KERNEL(moe_plain_down, PlainArgs, THREADS) {
    u32 row = blockIdx.x, i = blockIdx.y * THREADS + threadIdx.x;
    if (i >= HIDDEN) return;
    float sum = 0.0f;
    for (u32 k = 0; k < TOP_K; k++) {
        u32 pick = row * TOP_K + k;
        i32 id = p.ids[pick];
        if (id < 0) continue;
        const u8 *down = p.experts + (u64)id * (3 * MATRIX_BYTES) + 2 * MATRIX_BYTES;
        sum += p.weights[pick] * dot<HIDDEN, INTER>(down, i, p.middle + (u64)pick * INTER);
    }
    p.out[(u64)row * HIDDEN + i] = to_act(sum);
}
