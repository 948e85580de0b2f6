// Products of bf16 weights with a few rows: y[r, o] = sum over i of x[r, i] w[o, i], weights read once, as they lie in a
// checkpoint. Bound by reading the weights, so what counts is how early and how many of their bytes are on the way.
//
// A block makes 64 outputs for all rows over one of `splits` parts of the inputs. Its eight warps are two (32 outputs each) times
// four (a quarter of the part each). Weights go from memory to registers, DEPTH steps of 32 inputs ahead, the first of them before
// the kernel before this one has ended. A tensor core sums over its inputs in any order: thread t of a quad takes inputs 8 t … 8 t + 7
// of a step, from weights and rows alike, so both come in one load of 16 bytes and need no shared memory.
// The sum over warps, then over splits (by the block that arrives last, always in the same order), is in f32.
//
// TILES (rows / 8, rounded up), DEPTH, RESIDENT (blocks of a multiprocessor).
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

TL_KERNEL_RESIDENT(dense, DenseArgs, 256, RESIDENT) {
    TL_SHARED(shared);
    float *sums = (float *)shared; // [4][ROWS][PITCH]
    __shared__ u32 last;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 g = lane / 4, t = lane % 4, half = warp % 2, quarter = warp / 2;
    u32 tile = blockIdx.x, split = blockIdx.y, batch = blockIdx.z;
    u32 plain = (p.outputs + OUTPUTS - 1) / OUTPUTS;
    bool glu = tile >= plain;

    // Four rows of weights for this thread: two 16-row fragments. Rows that do not exist are read as the last one; what they
    // give is not written.
    const bf16 *w[4];
    u32 steps = p.inputs / 32, parts = p.splits * 4, part = split * 4 + quarter;
    u32 from = steps * part / parts, left = steps * (part + 1) / parts - from;
    u32 k = from * 32 + 8 * t;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        if (glu) {
            // A block has gates in its first half and the matching ups in its second.
            u32 o = min((tile - plain) * 32 + i * 8 + g, p.inner - 1) + half * p.inner;
            w[i] = p.glu + (u64)o * p.inputs + k;
        } else {
            u32 o = min(tile * OUTPUTS + half * 32 + i * 8 + g, p.outputs - 1);
            w[i] = p.w + batch * p.w_batch + (u64)o * p.inputs + k;
        }
    }
    uint4 a[DEPTH][4];
#pragma unroll
    for (u32 d = 0; d < DEPTH; d++)
        if (d < left) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) a[d][i] = ldg128_stream(w[i] + d * 32);
        }
    griddep_launch();
    griddep_wait();

    const bf16 *x = p.x + batch * p.x_batch + g * p.x_stride + k;
    u32 eight = 8 * (u32)p.x_stride;
    float d0[TILES][4], d1[TILES][4];
#pragma unroll
    for (u32 n = 0; n < TILES; n++)
#pragma unroll
        for (u32 i = 0; i < 4; i++) d0[n][i] = d1[n][i] = 0.0f;

    while (left > 0) {
#pragma unroll
        for (u32 d = 0; d < DEPTH; d++)
            if (d < left) {
                // Element j of a load is inputs 8 t + 2 j and the next: words 0, 1 for the first product, 2, 3 for the second.
                const u32 first0[4] = {a[d][0].x, a[d][1].x, a[d][0].y, a[d][1].y};
                const u32 first1[4] = {a[d][2].x, a[d][3].x, a[d][2].y, a[d][3].y};
                const u32 second0[4] = {a[d][0].z, a[d][1].z, a[d][0].w, a[d][1].w};
                const u32 second1[4] = {a[d][2].z, a[d][3].z, a[d][2].w, a[d][3].w};
                const bf16 *at = x + d * 32;
                uint4 b[TILES];
#pragma unroll
                for (u32 n = 0; n < TILES; n++) {
                    b[n].x = b[n].y = b[n].z = b[n].w = 0;
                    if (n * 8 + g < p.rows) b[n] = *(const uint4 *)at;
                    at += eight;
                }
#pragma unroll
                for (u32 n = 0; n < TILES; n++) {
                    mma_bf16_16816(d0[n], first0, b[n].x, b[n].y);
                    mma_bf16_16816(d1[n], first1, b[n].x, b[n].y);
                    mma_bf16_16816(d0[n], second0, b[n].z, b[n].w);
                    mma_bf16_16816(d1[n], second1, b[n].z, b[n].w);
                }
                if (d + DEPTH < left) {
#pragma unroll
                    for (u32 i = 0; i < 4; i++) a[d][i] = ldg128_stream(w[i] + (d + DEPTH) * 32);
                }
            }
#pragma unroll
        for (u32 i = 0; i < 4; i++) w[i] += DEPTH * 32;
        x += DEPTH * 32;
        left = left > DEPTH ? left - DEPTH : 0;
    }

    float *own = sums + quarter * (ROWS * PITCH) + half * 32;
#pragma unroll
    for (u32 n = 0; n < TILES; n++) {
        float *at = own + (n * 8 + 2 * t) * PITCH + g;
        at[0] = d0[n][0], at[PITCH] = d0[n][1], at[8] = d0[n][2], at[PITCH + 8] = d0[n][3];
        at[16] = d1[n][0], at[PITCH + 16] = d1[n][1], at[24] = d1[n][2], at[PITCH + 24] = d1[n][3];
    }
    __syncthreads();
    // Thread: one output of every fourth row.
    u32 o = threadIdx.x % OUTPUTS, r0 = threadIdx.x / OUTPUTS;
    u32 slot = batch * gridDim.x + tile;
    float *mine = p.partial + (u64)slot * p.splits * (ROWS * OUTPUTS);
    for (u32 r = r0; r < p.rows; r += 4) {
        float *at = sums + r * PITCH + o;
        float sum = ((at[0] + at[ROWS * PITCH]) + at[2 * ROWS * PITCH]) + at[3 * ROWS * PITCH];
        if (p.splits == 1) {
            at[0] = sum;
        } else {
            mine[(u64)split * (ROWS * OUTPUTS) + r * OUTPUTS + o] = sum;
        }
    }
    if (p.splits > 1) {
        fence_gpu();
        __syncthreads();
        if (threadIdx.x == 0) {
            last = atom_acq_rel_add(p.arrived + slot, 1) == p.splits - 1;
            if (last) p.arrived[slot] = 0;
        }
        __syncthreads();
        if (!last) return;
        fence_gpu();
        for (u32 r = r0; r < p.rows; r += 4) {
            float sum = 0.0f;
            for (u32 s = 0; s < p.splits; s++) sum += __ldcg(mine + (u64)s * (ROWS * OUTPUTS) + r * OUTPUTS + o);
            sums[r * PITCH + o] = sum;
        }
    }
    __syncthreads();
    if (glu) {
        u32 column = threadIdx.x % 32, at = (tile - plain) * 32 + column;
        for (u32 r = threadIdx.x / 32; r < p.rows; r += 8) {
            float gate = sums[r * PITCH + column], up = sums[r * PITCH + 32 + column];
            if (at < p.inner) p.z[(u64)r * p.inner + at] = to_bf16(gate / (1.0f + expf(-gate)) * up);
        }
        return;
    }
    u32 column = tile * OUTPUTS + o;
    if (column >= p.outputs) return;
    for (u32 r = r0; r < p.rows; r += 4) {
        u64 at = batch * p.y_batch + r * p.y_stride + column;
        float value = sums[r * PITCH + o];
        if (p.head) {
            // Queries of latent attention: scaled; neighbours of a head's last part are turned, and go to their place there.
            u32 head = column / p.head, within = column % p.head;
            if (within >= p.nope) {
                u32 half = (p.head - p.nope) / 2, pair = (within - p.nope) / 2;
                u64 angle = (u64)p.position[r] * half + pair;
                float other = sums[r * PITCH + (o ^ 1)], cos = p.cos[angle], sin = p.sin[angle];
                value = within % 2 ? value * cos + other * sin : value * cos - other * sin;
                u64 key = p.latent + p.head - p.nope;
                p.absorbed[(r * (u64)(p.outputs / p.head) + head) * key + p.latent + within - p.nope] = to_bf16(value * p.scale);
                continue;
            }
            value *= p.scale;
        }
        if (p.wide) {
            ((float *)p.y)[at] = value;
        } else {
            bf16 *y = (bf16 *)p.y + at;
            *y = to_bf16(p.add ? value + to_float(*y) : value);
        }
    }
}
