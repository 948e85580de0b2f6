// Small kernels for what tensor cores and asynchronous copies do, on the emulator and on a GPU.
#include "ptx.cuh"

struct Tiles {
    const u8 *a;
    const u8 *b;
    float *d;
    u32 mode;
    u32 rows;
};

// Lane t's words of four 8 x 8 matrices of 16-bit numbers that lie behind each other, rows of 16 bytes.
TL_KERNEL(selftest_ldmatrix, Tiles, 32) {
    TL_SHARED(tile);
    u32 lane = threadIdx.x, r4[4], r2[2];
    for (u32 i = lane; i < 32; i += 32) *(uint4 *)(tile + i * 16) = ldg128(p.a + i * 16);
    __syncthreads();
    u32 *out = (u32 *)p.d + lane * 12;
    ldmatrix_x4(r4, tile + lane * 16);
    for (int i = 0; i < 4; i++) out[i] = r4[i];
    ldmatrix_x4_trans(r4, tile + lane * 16);
    for (int i = 0; i < 4; i++) out[4 + i] = r4[i];
    ldmatrix_x2(r2, tile + lane % 16 * 16);
    out[8] = r2[0];
    out[9] = r2[1];
    ldmatrix_x2_trans(r2, tile + 256 + lane % 16 * 16);
    out[10] = r2[0];
    out[11] = r2[1];
}

// d [16, 8] = a [16, 64] b [8, 64]^T in bf16, by cp.async, ldmatrix and mma; rows of a from `rows` on count as zero.
// mode 0: two stages, right. mode 1: reads without waiting. mode 2: waits for one group too few.
TL_KERNEL(selftest_mma, Tiles, 32) {
    TL_SHARED(tile);
    // A stage holds 24 rows of 32 bytes (16 of a, 8 of b), one k-step of 16. Padding keeps the banks apart.
    const u32 ROW = 48, STAGE = 24 * ROW;
    u32 lane = threadIdx.x;
    float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (u32 k = 0; k < 5; k++) {
        if (k < 4) {
            u8 *stage = tile + k % 2 * STAGE;
            for (u32 i = lane; i < 48; i += 32) {
                u32 row = i / 2, part = i % 2 * 16;
                if (row < 16) cp_async16_zfill(stage + row * ROW + part, p.a + row * 128 + k * 32 + part, row < p.rows);
                else cp_async16(stage + row * ROW + part, p.b + (row - 16) * 128 + k * 32 + part);
            }
            cp_async_commit();
        }
        if (k == 0) continue;
        if (p.mode == 0) {
            if (k < 4) cp_async_wait<1>();
            else cp_async_wait<0>();
        } else if (p.mode == 2) {
            cp_async_wait<1>();
        }
        __syncthreads();
        u8 *stage = tile + (k - 1) % 2 * STAGE;
        u32 a[4], b[2];
        ldmatrix_x4(a, stage + lane % 16 * ROW + lane / 16 * 16);
        ldmatrix_x2(b, stage + (16 + lane % 8) * ROW + lane / 8 % 2 * 16);
        mma_bf16_16816(d, a, b);
        __syncthreads();
    }
    float *out = p.d + lane / 4 * 8 + lane % 4 * 2;
    out[0] = d[0];
    out[1] = d[1];
    out[64] = d[2];
    out[65] = d[3];
}

// The sum of 8 pieces of 1024 bytes of a, as u32, word by word: one warp copies in bulk through a ring of two stages with
// mbarriers, three warps add and meet at a barrier of their own.
TL_KERNEL(selftest_bulk, Tiles, 128) {
    TL_SHARED(tile);
    __shared__ u64 full[2], empty[2];
    u32 warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        for (u32 s = 0; s < 2; s++) {
            mbar_init(&full[s], 1);
            mbar_init(&empty[s], 96);
        }
        mbar_fence_init();
    }
    __syncthreads();
    if (warp == 0) {
        for (u32 i = 0; i < 8; i++) {
            u32 s = i % 2, round = i / 2;
            if (round > 0) mbar_wait(&empty[s], (round - 1) % 2);
            if (threadIdx.x == 0) {
                mbar_arrive_expect(&full[s], 1024);
                bulk_copy(tile + s * 1024, p.a + i * 1024, 1024, &full[s]);
            }
            __syncwarp();
        }
        return;
    }
    u32 sums[3] = {0, 0, 0};
    for (u32 i = 0; i < 8; i++) {
        u32 s = i % 2;
        mbar_wait(&full[s], i / 2 % 2);
        const u32 *words = (const u32 *)(tile + s * 1024);
        for (u32 j = 0; j < 3; j++) {
            u32 w = threadIdx.x - 32 + j * 96;
            if (w < 256) sums[j] += words[w];
        }
        mbar_arrive(&empty[s]);
    }
    bar_sync(1, 96);
    u32 *words = (u32 *)tile;
    for (u32 j = 0; j < 3; j++) {
        u32 w = threadIdx.x - 32 + j * 96;
        if (w < 256) words[w] = sums[j];
    }
    bar_sync(1, 96);
    for (u32 w = threadIdx.x - 32; w < 256; w += 96) ((u32 *)p.d)[w] = words[255 - w];
}
