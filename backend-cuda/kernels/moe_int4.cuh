// Products of INT4 weights with at most eight rows, on the tensor cores: weights are the 16 x 16 operand, rows the 16 x 8 one.
//
// A chunk is 16 rows x 64 columns of weights in the layout of `moe_pack.cu`. A nibble n becomes the bf16 128 + n by setting two
// bits, so a product carries 136 times the sum of the group's inputs with it: the accumulator begins with minus that. Groups of 32
// columns are summed exactly in f32 and then scaled, so the weight is never rounded.
#pragma once
#include "moe.cuh"
#include "ptx.cuh"

#define CHUNK 576
#define NIBBLES 0x000f000fu
#define MAGIC 0x43004300u  // bf16 128, twice
#define OFFSET 0xc308c308u // bf16 -136, twice

// Inputs of one group of 32 columns: columns 8 t .. 8 t + 7 of row g, as they lie in memory.
typedef uint4 Inputs;

// What one thread of a warp holds of a chunk.
struct Weights {
    uint4 words;  // (row g, group 0), (row g + 8, group 0), (row g, group 1), (row g + 8, group 1)
    uint2 scales; // row g, row g + 8: group 0 in the low half
};

TL_DEVICE Weights read_chunk(const u8 *chunk, u32 lane) {
    Weights w;
    w.words = *(const uint4 *)(chunk + lane * 16);
    w.scales = *(const uint2 *)(chunk + 512 + lane / 4 * 8);
    return w;
}

// -136 times the sum of a group's inputs, for the two columns of this thread: d[0] = d[2], d[1] = d[3].
TL_DEVICE void offset_of(float (&d)[4], const Inputs &x) {
    const u32 a[4] = {OFFSET, OFFSET, OFFSET, OFFSET};
    d[0] = d[1] = d[2] = d[3] = 0.0f;
    mma_bf16_16816(d, a, x.x, x.y);
    mma_bf16_16816(d, a, x.z, x.w);
}

// d += the products of one half (two mma make a group): `low` is row g, `high` row g + 8.
TL_DEVICE void multiply(float (&d)[4], u32 low, u32 high, u32 b0, u32 b1) {
    const u32 a[4] = {lop3<0xEA>(low, NIBBLES, MAGIC), lop3<0xEA>(high, NIBBLES, MAGIC),
                      lop3<0xEA>(low >> 4, NIBBLES, MAGIC), lop3<0xEA>(high >> 4, NIBBLES, MAGIC)};
    mma_bf16_16816(d, a, b0, b1);
}
TL_DEVICE void multiply_group(float (&d)[4], u32 low, u32 high, const Inputs &x) {
    multiply(d, low, high, x.x, x.y);
    multiply(d, low >> 8, high >> 8, x.z, x.w);
}
TL_DEVICE void add_scaled(float (&sum)[4], const float (&d)[4], float low, float high) {
    sum[0] += low * d[0];
    sum[1] += low * d[1];
    sum[2] += high * d[2];
    sum[3] += high * d[3];
}
