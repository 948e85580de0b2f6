// Puts the parts of tiles together that `gqa_attend_smxx.cu` and `gqa_attend_sm90.cu` left, and zeroes padded rows.
//
// HEADS, KV_HEADS, DIM, TILE_M.
#define KEYS 64
#define THREADS 128
#include "gqa_tile.cuh"

struct GqaMergeArgs {
    Rows rows;
    const float *part;
    const float *top;
    const Cut *cuts;
    bf16 *out;
    u32 count; // rows
    u32 unused;
};

// One warp a row and head: the parts of its tile, weighted by what their maxima say.
TL_KERNEL(gqa_merge, GqaMergeArgs, 128) {
    griddep_launch();
    griddep_wait();
    u32 lane = threadIdx.x % 32;
    u32 item = blockIdx.x * 4 + threadIdx.x / 32;
    u32 row = item / HEADS, head = item % HEADS;
    if (row >= p.count) return;
    const int width = DIM / 32;
    float mixed[width];
    clear(mixed);
    bf16 *out = p.out + (u64)item * DIM + lane * width;
    i32 s = p.rows.seq[row];
    if (s < 0) {
        store(out, mixed);
        return;
    }
    Cut cut = p.cuts[s];
    if (cut.parts == 1) return;
    u32 pair = p.rows.offset[row] * GROUP + head % GROUP, tile = over(pair, cut.pairs), m = pair - tile * cut.pairs;
    u64 first = (u64)cut.first + (head / GROUP) * cut.tiles + tile, step = (u64)KV_HEADS * cut.tiles;
    float most = MINUS_INFINITY, whole = 0.0f;
    // MOST_PARTS = 64: two parts a lane.
    float tops[2], sums[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        u32 part = lane + 32 * i;
        bool real = part < cut.parts;
        u64 slot = (first + part * step) * TILE_M + m;
        tops[i] = real ? p.top[2 * slot] : MINUS_INFINITY;
        sums[i] = real ? p.top[2 * slot + 1] : 0.0f;
        most = fmaxf(most, tops[i]);
    }
#pragma unroll
    for (int far = 16; far > 0; far /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, far));
#pragma unroll
    for (int i = 0; i < 2; i++) {
        tops[i] = tops[i] == most ? 1.0f : exp2_approx(tops[i] - most);
        whole += sums[i] * tops[i];
    }
    whole = warp_sum(whole);
#pragma unroll 4
    for (u32 part = 0; part < cut.parts; part++) {
        float scale = __shfl_sync(0xffffffffu, part < 32 ? tops[0] : tops[1], part % 32), more[width];
        load(p.part + ((first + part * step) * TILE_M + m) * DIM + lane * width, more);
#pragma unroll
        for (int i = 0; i < width; i++) mixed[i] += more[i] * scale;
    }
    float over = whole == 0.0f ? 0.0f : 1.0f / whole;
#pragma unroll
    for (int i = 0; i < width; i++) mixed[i] *= over;
    store(out, mixed);
}
