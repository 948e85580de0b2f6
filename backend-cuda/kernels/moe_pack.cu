// Weights of experts: synthetic ones, and the repacking of a checkpoint's INT4 into the layout of the fast kernels.
//
// HIDDEN, INTER. The checkpoint's layout of one expert is that of `moe_plain.cu`. The fast one is made of chunks of 16 rows x 64
// columns: for each of 32 lanes 16 bytes, then for each of 8 lane groups 8 bytes of scales, 576 bytes in all. With g = lane / 4,
// t = lane % 4, the lane's words are (row g, group 0), (row g + 8, group 0), (row g, group 1), (row g + 8, group 1), each the
// columns 8 t .. 8 t + 7 of its group of 32: just what one thread feeds to four mma. In a word, nibble i < 4 is column 2 i,
// nibble i + 4 column 2 i + 1, so that one shift and one mask give a pair. Chunks of one tile of 16 rows follow one another.
// A tile of gate and up has 8 rows of each, so that both meet in one thread; after all of those come the tiles of down.
#include "treeline.cuh"

#define THREADS 256
#define CHUNK 576
#define MATRIX_WORDS ((u64)HIDDEN * INTER / 8 + (u64)HIDDEN * INTER / 64)

struct PackArgs {
    const u32 *from; // one expert as the checkpoint has it
    u32 *to;         // the same in the fast layout
};

// Nibbles 0..7 in the order 0, 2, 4, 6, 1, 3, 5, 7.
TL_DEVICE u32 shuffle(u32 w) {
    u32 out = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int place = i / 2 + (i % 2) * 4;
        out |= (w >> (4 * i) & 15u) << (4 * place);
    }
    return out;
}

TL_KERNEL(moe_pack, PackArgs, THREADS) {
    const u64 words = 3 * MATRIX_WORDS, up_words = 2 * MATRIX_WORDS;
    u64 at = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (at >= words) return;
    bool down = at >= up_words;
    u64 inside = down ? at - up_words : at;
    u32 columns = down ? INTER : HIDDEN, rows = down ? HIDDEN : INTER;
    u32 chunk = (u32)(inside / (CHUNK / 4)), word = (u32)(inside % (CHUNK / 4));
    u32 tile = chunk / (columns / 64), column = chunk % (columns / 64) * 64;
    bool scale = word >= 128;
    u32 g = scale ? (word - 128) / 2 : word / 16;
    u32 high = word % 2; // row g + 8 rather than g
    u64 matrix = down ? up_words : high * MATRIX_WORDS;
    u32 row = down ? tile * 16 + high * 8 + g : tile * 8 + g;
    if (scale) {
        const u32 *scales = p.from + matrix + (u64)rows * columns / 8;
        p.to[at] = scales[((u64)row * (columns / 32) + column / 32) / 2];
    } else {
        u32 t = word / 4 % 4, group = word / 2 % 2;
        p.to[at] = shuffle(p.from[matrix + (u64)row * (columns / 8) + column / 8 + group * 4 + t]);
    }
}

struct SyntheticArgs {
    u32 *to; // one expert as the checkpoint has it, or dense weights
    u64 seed;
    u64 words;
    u32 scale; // bits of the smallest scale, bf16; of a dense weight's largest size, float
    u32 kind;  // 0 INT4, 1 float, 2 bf16
};

TL_DEVICE u64 mix(u64 z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// Random weights by their place alone. INT4: any nibble, scales between one and two times the smallest.
TL_KERNEL(moe_synthetic, SyntheticArgs, THREADS) {
    u64 at = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (at >= p.words) return;
    u64 bits = mix(p.seed + (at + 1) * 0x9e3779b97f4a7c15ull);
    if (p.kind == 0) {
        const u64 nibbles = (u64)HIDDEN * INTER / 8;
        bool scale = at % MATRIX_WORDS >= nibbles;
        u32 low = p.scale + (u32)(bits & 127), high = p.scale + (u32)(bits >> 32 & 127);
        p.to[at] = scale ? low | high << 16 : (u32)bits;
        return;
    }
    float size = __uint_as_float(p.scale) / 8388608.0f;
    float low = ((float)(u32)(bits >> 40) - 8388608.0f) * size;
    float high = ((float)(u32)(bits >> 8 & 0xffffffu) - 8388608.0f) * size;
    p.to[at] = p.kind == 1 ? __float_as_uint(low) : (u32)to_bf16(low).bits | (u32)to_bf16(high).bits << 16;
}
