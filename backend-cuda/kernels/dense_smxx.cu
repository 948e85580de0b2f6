// Products of bf16 weights with a few rows: y[r, o] = sum over i of x[r, i] w[o, i], weights read once, as they lie in a
// checkpoint. Bound by reading the weights, so what counts is how early and how many of their bytes are on the way.
//
// A block makes 64 outputs for all rows over one of `splits` parts of the inputs. Its warps are GROUPS (which share the outputs)
// times PARTS (which share the inputs). Weights go from memory to registers, DEPTH steps of 32 inputs ahead, the first of them before
// the kernel before this one has ended. A tensor core sums over its inputs in any order: thread t of a quad takes inputs 8 t … 8 t + 7
// of a step, from weights and rows alike, so both come in one load of 16 bytes. The rows' part of the inputs is small and lies in
// shared memory; weights go through registers alone.
// The sum over warps, then over splits (by the block that arrives last, always in the same order), is in f32.
//
// TILES (rows / 8, rounded up), DEPTH, FRAGMENTS (of 16 outputs, of a warp), WARPS, RESIDENT (blocks of a multiprocessor).
#include "vector.cuh"
#include "ptx.cuh"

struct DenseArgs {
    const bf16 *x;    // [rows], x_stride apart; batch x_batch apart
    const bf16 *w;    // plain: [outputs][inputs]; batch w_batch apart
    const bf16 *glu;  // gate, then up: [2 * inner][inputs], or none
    void *y;          // [rows], y_stride apart; batch y_batch apart; bf16 or f32
    bf16 *z;          // silu(gate) up: [rows][inner]
    float *partial;   // [tiles][splits][ROWS][64]
    u32 *arrived;     // [tiles], zero before and after
    const float *cos; // [positions][(head - nope) / 2], with queries
    const float *sin;
    const u32 *position; // [rows]
    bf16 *absorbed;      // [rows][heads][latent + head - nope]: the last part of each head is written
    u64 x_stride;
    u64 x_batch;
    u64 w_batch;
    u64 y_stride;
    u64 y_batch;
    u32 rows;
    u32 inputs;
    u32 outputs;
    u32 inner;
    u32 splits;
    u32 wide; // y is f32
    u32 add;  // y is added to
    u32 head; // width of a query head, or 0: then y are no queries
    u32 nope;
    u32 latent;
    float scale;
    u32 unused;
};

#define ROWS (8 * TILES)
#define OUTPUTS 64
#define PITCH (OUTPUTS + 4)
#define THREADS (32 * WARPS)
#define OWN (16 * FRAGMENTS)
#define GROUPS (OUTPUTS / OWN)
#define PARTS (WARPS / GROUPS)
#define LANES (THREADS / OUTPUTS)
#define HELD (ROWS / LANES)
#define AHEAD (HELD <= 2 ? 8 : HELD <= 6 ? 4 : 2)

TL_KERNEL_RESIDENT(dense, DenseArgs, THREADS, RESIDENT) {
    TL_SHARED(shared);
    float *sums = (float *)shared; // [PARTS][ROWS][PITCH], after the products; before that rows
    __shared__ u32 last;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 g = lane / 4, t = lane % 4, group = warp % GROUPS, quarter = warp / GROUPS;
    u32 tile = blockIdx.x, split = blockIdx.y, batch = blockIdx.z;
    u32 plain = (p.outputs + OUTPUTS - 1) / OUTPUTS;
    bool glu = tile >= plain;

    // Two rows of weights for each fragment of this thread. Rows that do not exist are read as the last one; what they give is
    // not written.
    const bf16 *w[2 * FRAGMENTS];
    u32 steps = p.inputs / 32, begin = steps * split / p.splits, own_steps = steps * (split + 1) / p.splits - begin;
    u32 from = own_steps * quarter / PARTS, left = own_steps * (quarter + 1) / PARTS - from;
    u32 k = (begin + from) * 32 + 8 * t;
#pragma unroll
    for (u32 i = 0; i < 2 * FRAGMENTS; i++) {
        u32 within = group * OWN + i * 8 + g;
        if (glu) {
            // A block has gates in its first half and the matching ups in its second.
            u32 o = min((tile - plain) * 32 + within % 32, p.inner - 1) + within / 32 * p.inner;
            w[i] = p.glu + (u64)o * p.inputs + k;
        } else {
            u32 o = min(tile * OUTPUTS + within, p.outputs - 1);
            w[i] = p.w + batch * p.w_batch + (u64)o * p.inputs + k;
        }
    }
    uint4 a[DEPTH][2 * FRAGMENTS];
#pragma unroll
    for (u32 d = 0; d < DEPTH; d++)
        if (d < left) {
#pragma unroll
            for (u32 i = 0; i < 2 * FRAGMENTS; i++) a[d][i] = ldg128_stream(w[i] + d * 32);
        }
    griddep_launch();
    griddep_wait();

    // A pitch of 64 bytes modulo 128: the eight threads of an access go to eight different groups of banks.
    u32 pitch = (own_steps + 1) / 2 * 128 + 64;
    for (u32 row = warp; row < p.rows; row += WARPS) {
        const bf16 *source = p.x + batch * p.x_batch + row * p.x_stride + begin * 32;
        for (u32 i = lane; i < own_steps * 4; i += 32) cp_async16(shared + row * pitch + i * 16, source + i * 8);
    }
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    // Rows that do not exist hold whatever was there; each column of a product has its own sum, and theirs are not written.
    const u8 *x = shared + g * pitch + from * 64 + t * 16;
    float sum[TILES][FRAGMENTS][4];
#pragma unroll
    for (u32 n = 0; n < TILES; n++)
#pragma unroll
        for (u32 f = 0; f < FRAGMENTS; f++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) sum[n][f][i] = 0.0f;

    while (left > 0) {
#pragma unroll
        for (u32 d = 0; d < DEPTH; d++)
            if (d < left) {
                uint4 b[TILES];
#pragma unroll
                for (u32 n = 0; n < TILES; n++) {
                    b[n] = *(const uint4 *)(x + n * 8 * pitch + d * 64);
                }
#pragma unroll
                for (u32 f = 0; f < FRAGMENTS; f++) {
                    // Word j of a load is inputs 8 t + 2 j and the next: words 0, 1 for the first product, 2, 3 for the second.
                    uint4 low = a[d][2 * f], high = a[d][2 * f + 1];
                    const u32 first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
                    for (u32 n = 0; n < TILES; n++) {
                        mma_bf16_16816(sum[n][f], first, b[n].x, b[n].y);
                        mma_bf16_16816(sum[n][f], second, b[n].z, b[n].w);
                    }
                }
                if (d + DEPTH < left) {
#pragma unroll
                    for (u32 i = 0; i < 2 * FRAGMENTS; i++) a[d][i] = ldg128_stream(w[i] + (d + DEPTH) * 32);
                }
            }
#pragma unroll
        for (u32 i = 0; i < 2 * FRAGMENTS; i++) w[i] += DEPTH * 32;
        x += DEPTH * 64;
        left = left > DEPTH ? left - DEPTH : 0;
    }

    __syncthreads();
    float *own = sums + quarter * (ROWS * PITCH) + group * OWN;
#pragma unroll
    for (u32 n = 0; n < TILES; n++)
#pragma unroll
        for (u32 f = 0; f < FRAGMENTS; f++) {
            float *at = own + (n * 8 + 2 * t) * PITCH + f * 16 + g;
            at[0] = sum[n][f][0], at[PITCH] = sum[n][f][1], at[8] = sum[n][f][2], at[PITCH + 8] = sum[n][f][3];
        }
    __syncthreads();
    // Thread: one output, every LANES-th row. Loads come all at once, else each would wait for the one before.
    u32 o = threadIdx.x % OUTPUTS, r0 = threadIdx.x / OUTPUTS;
    float all[HELD];
#pragma unroll
    for (u32 i = 0; i < HELD; i++) {
        const float *at = sums + (r0 + i * LANES) * PITCH + o;
        all[i] = at[0];
#pragma unroll
        for (u32 j = 1; j < PARTS; j++) all[i] += at[j * ROWS * PITCH];
    }
    if (p.splits > 1) {
        u32 slot = batch * gridDim.x + tile;
        float *mine = p.partial + (u64)slot * p.splits * (ROWS * OUTPUTS) + r0 * OUTPUTS + o;
#pragma unroll
        for (u32 i = 0; i < HELD; i++)
            if (r0 + i * LANES < p.rows) mine[split * (ROWS * OUTPUTS) + i * (LANES * OUTPUTS)] = all[i];
        fence_gpu();
        __syncthreads();
        if (threadIdx.x == 0) {
            last = atom_acq_rel_add(p.arrived + slot, 1) == p.splits - 1;
            if (last) p.arrived[slot] = 0;
        }
        __syncthreads();
        if (!last) return;
        fence_gpu();
#pragma unroll
        for (u32 i = 0; i < HELD; i++) all[i] = 0.0f;
        for (u32 s = 0; s < p.splits; s += AHEAD) {
            float more[AHEAD][HELD];
#pragma unroll
            for (u32 j = 0; j < AHEAD; j++)
#pragma unroll
                for (u32 i = 0; i < HELD; i++) {
                    bool real = s + j < p.splits && r0 + i * LANES < p.rows;
                    more[j][i] = real ? __ldcg(mine + (s + j) * (ROWS * OUTPUTS) + i * (LANES * OUTPUTS)) : 0.0f;
                }
#pragma unroll
            for (u32 j = 0; j < AHEAD; j++)
#pragma unroll
                for (u32 i = 0; i < HELD; i++) all[i] += more[j][i];
        }
    }
    if (glu || p.head) {
        // What becomes of an output depends on another thread's.
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < HELD; i++) sums[(r0 + i * LANES) * PITCH + o] = all[i];
        __syncthreads();
    }
    if (glu) {
        u32 column = threadIdx.x % 32, at = (tile - plain) * 32 + column;
        for (u32 r = warp; r < p.rows; r += WARPS) {
            float gate = sums[r * PITCH + column], up = sums[r * PITCH + 32 + column];
            if (at < p.inner) p.z[(u64)r * p.inner + at] = to_bf16(gate / (1.0f + expf(-gate)) * up);
        }
        return;
    }
    u32 column = tile * OUTPUTS + o;
    if (column >= p.outputs) return;
    u32 head = 0, within = 0;
    if (p.head) head = column / p.head, within = column % p.head;
#pragma unroll
    for (u32 i = 0; i < HELD; i++) {
        u32 r = r0 + i * LANES;
        if (r >= p.rows) break;
        u64 at = batch * p.y_batch + r * p.y_stride + column;
        float value = all[i];
        if (p.head) {
            // Queries of latent attention: scaled; neighbours of a head's last part are turned, and go to their place there.
            value *= p.scale;
            if (within >= p.nope) {
                u32 rope = p.head - p.nope, key = p.latent + rope;
                u64 angle = (u64)p.position[r] * (rope / 2) + (within - p.nope) / 2;
                float other = sums[r * PITCH + (o ^ 1)] * p.scale, cos = p.cos[angle], sin = p.sin[angle];
                value = within % 2 ? value * cos + other * sin : value * cos - other * sin;
                p.absorbed[((u64)r * (p.outputs / p.head) + head) * key + p.latent + within - p.nope] = to_bf16(value);
                continue;
            }
        }
        if (p.wide) {
            ((float *)p.y)[at] = value;
        } else {
            bf16 *y = (bf16 *)p.y + at;
            *y = to_bf16(p.add ? value + to_float(*y) : value);
        }
    }
}
