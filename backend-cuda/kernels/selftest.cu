// Small kernels that compare the emulator with a GPU, one language feature each.
#include "ptx.cuh"

struct Numbers {
    const u32 *in;
    u32 *out;
    u32 n;
    u32 mode;
};

// out[block] = sum of the block's 1024 numbers: a tree in shared memory, then a warp's shuffles.
TL_KERNEL(selftest_sum, Numbers, 256) {
    __shared__ u32 part[256];
    u32 sum = 0;
    for (u32 i = threadIdx.x; i < 1024; i += blockDim.x) {
        u32 at = blockIdx.x * 1024 + i;
        sum += at < p.n ? p.in[at] : 0;
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    for (u32 half = 128; half >= 32; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x < 32) {
        sum = part[threadIdx.x];
        for (int with = 16; with > 0; with /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, with);
        if (threadIdx.x == 0) p.out[blockIdx.x] = sum;
    }
}

// Every collective of a warp, one word of the result each; `n` lanes of the last warp are used.
TL_KERNEL(selftest_warp, Numbers, 64) {
    u32 lane = threadIdx.x % 32, x = p.in[threadIdx.x], *out = p.out + threadIdx.x * 20;
    const u32 all = 0xffffffffu;
    out[0] = __shfl_sync(all, x, (int)(lane * 7 % 32));
    out[1] = __shfl_sync(all, x, 3, 8);
    out[2] = __shfl_up_sync(all, x, 3);
    out[3] = __shfl_up_sync(all, x, 1, 4);
    out[4] = __shfl_down_sync(all, x, 5);
    out[5] = __shfl_down_sync(all, x, 2, 16);
    out[6] = __shfl_xor_sync(all, x, 9);
    out[7] = __shfl_xor_sync(all, x, 16, 16);
    out[8] = __ballot_sync(all, x & 1);
    out[9] = (u32)__any_sync(all, (int)(x % 40 == 0)) * 2 + (u32)__all_sync(all, (int)(x % 40 != 0));
    out[10] = __match_any_sync(all, x % 5);
    out[11] = __reduce_add_sync(all, x);
    out[12] = __reduce_max_sync(all, x);
    out[13] = (u32)__reduce_min_sync(all, (int)x);
    out[14] = __reduce_xor_sync(all, x);
    out[15] = (u32)(__shfl_xor_sync(all, (u64)x * 0x100000001ull, 1) >> 32);
    out[16] = __float_as_uint(__shfl_down_sync(all, (float)(x % 1000), 1));
    // Halves of a warp by themselves.
    u32 half = lane < 16 ? 0xffffu : 0xffff0000u;
    out[17] = __reduce_or_sync(half, x) & __ballot_sync(half, x & 2);
    out[18] = (u32)__syncthreads_count(x & 1);
    out[19] = (u32)(__syncthreads_or(x == 7) * 2 + __syncthreads_and(x != 7));
}

// Functions of two words, bit for bit.
TL_KERNEL(selftest_bits, Numbers, 64) {
    u32 a = p.in[threadIdx.x], b = p.in[threadIdx.x + 64], c = a * b, *out = p.out + threadIdx.x * 28;
    float x = __uint_as_float((a & 0x3fffffffu) | 0x20000000u), y = __uint_as_float((b & 0x3fffffffu) | 0x20000000u);
    out[0] = (u32)(__popc(a) + __ffs((int)b) + __clz((int)(a >> (b % 32))));
    out[1] = __brev(a);
    out[2] = __umulhi(a, b) + (u32)__mulhi((int)a, (int)b);
    out[3] = (u32)__umul64hi((u64)a << 20, (u64)b << 20);
    out[4] = (u32)(__popcll(((u64)a << 32) | b) + __clzll((i64)a) + __ffsll((i64)b << 20));
    out[5] = __byte_perm(a, b, 0x5170u);
    out[6] = prmt(a, b, b & 0x7777u);
    out[7] = lop3<0xEA>(a, b, c);
    out[8] = lop3<0x96>(a, b, c);
    out[9] = pack_bf16x2(x, -y);
    out[10] = bf16x2_fma(a & 0xbfffbfffu, b & 0xbfffbfffu, c & 0xbfffbfffu);
    out[11] = bf16x2_mul(a & 0xbfffbfffu, b & 0xbfffbfffu);
    out[12] = bf16x2_add(a & 0xbfffbfffu, b & 0xbfffbfffu);
    out[13] = bf16x2_sub(a & 0xbfffbfffu, b & 0xbfffbfffu);
    out[14] = __float_as_uint(fmaf(x, y, -x));
    out[15] = (u32)__float2int_rn(x) ^ (u32)__float2int_rd(-y * 3.0f) ^ (u32)__float2int_rz(y);
    out[16] = __float2uint_rn(x) ^ __float2uint_rz(-x);
    out[17] = __float_as_uint(max(x, y) - min(x, y));
    out[18] = min(a, b) ^ (u32)max((int)a, (int)b);
    out[19] = __funnelshift_l(a, b, b % 32) ^ __funnelshift_r(a, b, a % 32);
    out[20] = to_bf16(x).bits | (u32)to_bf16(-y).bits << 16;
    out[21] = __float_as_uint(sqrtf(x) / y);
    out[22] = __float_as_uint(__fadd_rn(__fmul_rn(x, y), x));
    out[23] = __float_as_uint(rintf(x) + floorf(y) - truncf(x * 0.5f));
    out[24] = __float_as_uint(bf16_lo(a & 0xbfffbfffu)) ^ __float_as_uint(bf16_hi(a));
    out[25] = (u32)__double_as_longlong((double)x * (double)y + 1.0);
    out[26] = __float_as_uint(fmaxf(x, __uint_as_float(0x7fc00000u)));
    out[27] = (u32)(__float2int_rn(__uint_as_float(0x7fc00000u)) ^ __float2int_rn(1e20f));
}

// Atomics whose result does not depend on the order: out[0..8].
TL_KERNEL(selftest_atomics, Numbers, 128) {
    u32 x = p.in[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(&p.out[0], x);
    atomicMax(&p.out[1], x);
    atomicMin(&p.out[2], x);
    atomicOr(&p.out[3], x & 0xffu);
    atomicXor(&p.out[4], x);
    atomicMax((i32 *)&p.out[5], (i32)x);
    atomicAdd((u64 *)&p.out[6], (u64)x << 8);
    if (threadIdx.x == 0) {
        // The last block to arrive sees what all have added.
        fence_gpu();
        if (atom_acq_rel_add(&p.out[8], 1) == gridDim.x - 1) p.out[9] = ld_acquire(&p.out[8]);
    }
}

// A chain through the blocks: each waits for the one before.
TL_KERNEL(selftest_chain, Numbers, 32) {
    u32 total = 0;
    if (threadIdx.x == 0) {
        if (blockIdx.x > 0) {
            while (ld_acquire(&p.out[gridDim.x]) < blockIdx.x) {
            }
            total = p.out[blockIdx.x - 1];
        }
        p.out[blockIdx.x] = total + p.in[blockIdx.x];
        red_release_add(&p.out[gridDim.x], 1);
    }
}
