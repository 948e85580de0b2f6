// One product of a warpgroup, in each layout of its operands, on the emulator and on Hopper.
//
// COLUMNS = N; TURNED: B comes as [k][N] and lies with its columns behind each other; PLAIN: no swizzle; REGISTERS: A in registers.
#include "wgmma.cuh"

struct Tiles {
    const u16 *a;
    const u16 *b;
    float *d;
    u32 mode;
    u32 rows;
};

// d [64][N] = a [64][64] b, b = [N][64] transposed, or [64][N]. mode 1: overwrites an operand before the wait.
TL_KERNEL(selftest_wgmma, Tiles, 128) {
#if defined(TL_SM90A) || defined(TL_EMULATED)
    TL_SHARED(bytes);
    // Swizzling goes by address: the tiles begin at a multiple of 1024.
    u8 *a = bytes + (1024u - shared_addr(bytes) % 1024u) % 1024u, *b = a + 8192;
    u32 t = threadIdx.x;
    for (u32 i = t; i < 64 * 64; i += 128) {
        u32 row = i / 64, k = i % 64;
        u32 at = PLAIN ? k / 8 * 1024 + row / 8 * 128 + row % 8 * 16 + k % 8 * 2
                       : row * 128 + ((k / 8) ^ (row % 8)) * 16 + k % 8 * 2;
        *(u16 *)(a + at) = p.a[i];
    }
    for (u32 i = t; i < 64 * COLUMNS; i += 128) {
        u32 k = TURNED ? i / COLUMNS : i % 64, n = TURNED ? i % COLUMNS : i / 64, at;
        if (TURNED) {
            at = PLAIN ? k / 8 * (COLUMNS * 16) + n / 8 * 128 + k % 8 * 16 + n % 8 * 2
                       : n / 64 * 8192 + k / 8 * 1024 + k % 8 * 128 + ((n % 64 / 8) ^ (k % 8)) * 16 + n % 8 * 2;
        } else {
            at = PLAIN ? k / 8 * (COLUMNS * 16) + n / 8 * 128 + n % 8 * 16 + k % 8 * 2
                       : n * 128 + ((k / 8) ^ (n % 8)) * 16 + k % 8 * 2;
        }
        *(u16 *)(b + at) = p.b[i];
    }
    fence_async();
    __syncthreads();
    const u32 kind = PLAIN ? WGMMA_PLAIN : WGMMA_SWIZZLE_128;
    u64 a_op = wgmma_operand(a, 1024, PLAIN ? 128 : 1024, kind);
    u64 b_op = PLAIN ? wgmma_operand(b, COLUMNS * 16, 128, kind) : wgmma_operand(b, 8192, 1024, kind);
    u32 a_step = PLAIN ? 2048 : 32, b_step = PLAIN ? COLUMNS * 32 : TURNED ? 2048 : 32;
    float d[COLUMNS / 2];
    wgmma_fence();
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        u64 b_at = wgmma_advance(b_op, k * b_step);
#if REGISTERS
        const u16 *from = p.a + (t / 32 * 16 + t % 32 / 4) * 64 + k * 16 + t % 4 * 2;
        u32 words[4] = {ldg32(from), ldg32(from + 8 * 64), ldg32(from + 8), ldg32(from + 8 * 64 + 8)};
        wgmma_rs<TURNED>(d, words, b_at, k > 0);
#else
        wgmma_ss<0, TURNED>(d, wgmma_advance(a_op, k * a_step), b_at, k > 0);
#endif
    }
    wgmma_commit();
    if (p.mode == 1) b[t % 16] = 0;
    wgmma_wait<0>();
    wgmma_keep(d);
    float *out = p.d + (t / 32 * 16 + t % 32 / 4) * COLUMNS + t % 4 * 2;
    for (u32 j = 0; j < COLUMNS / 8; j++) {
        for (u32 e = 0; e < 4; e++) out[e / 2 * 8 * COLUMNS + j * 8 + e % 2] = d[j * 4 + e];
    }
#endif
}
