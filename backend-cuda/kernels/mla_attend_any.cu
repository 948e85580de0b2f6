// Latent attention of any shape and both types: one block a row and head, every score in f32, one thread a key.
//
// The accurate form, for small shapes and the f32 path; the tile forms replace it where speed counts.
// Defines: HEADS, KV_LORA, ROPE.
#include "ptx.cuh"
#include "rows.cuh"

#define DIM (KV_LORA + ROPE)
#define THREADS 64
#define NEVER __int_as_float(0xff800000)
#define COLUMNS ((KV_LORA + THREADS - 1) / THREADS)

struct MlaAnyArgs {
    Rows rows;
    const act *q;      // [rows][HEADS][DIM], scaled
    const act *cache;  // [cache rows][DIM]
    act *out;          // [rows][HEADS][KV_LORA]
    u32 window;        // keys at a position <= own - window are not seen; 0 = no window
    u32 unused;
};

// Whether a row sees key `key` of its sequence: the past by the window, the pass's own rows by the mask as well.
TL_DEVICE bool sees(const MlaAnyArgs &p, u32 row, u32 begin, u32 start, u32 key) {
    u32 position = key;
    if (key >= start) {
        u32 j = key - start;
        if (!(p.rows.mask[(u64)row * MASK_WORDS + j / 32] >> (j % 32) & 1)) return false;
        position = p.rows.position[begin + j];
    }
    return p.window == 0 || (u64)position + p.window > p.rows.position[row];
}

TL_KERNEL(mla_attend_any, MlaAnyArgs, THREADS) {
    __shared__ float q[DIM], weight[THREADS], top[THREADS];
    u32 row = blockIdx.y, head = blockIdx.x, t = threadIdx.x;
    griddep_wait();
    griddep_launch();
    i32 seq = p.rows.seq[row];
    act *out = p.out + ((u64)row * HEADS + head) * KV_LORA;
    if (seq < 0) {
        for (u32 c = t; c < KV_LORA; c += THREADS) out[c] = to_act(0.0f);
        return;
    }
    const act *query = p.q + ((u64)row * HEADS + head) * DIM;
    for (u32 c = t; c < DIM; c += THREADS) q[c] = to_float(query[c]);
    u32 start = p.rows.seq_start[seq], begin = p.rows.seq_begin[seq], keys = start + p.rows.seq_rows[seq];
    const act *cache = p.cache + (u64)p.rows.seq_kv[seq] * DIM;
    // Rows never lie before `start`, so a window hides these from all of them.
    u32 from = p.window != 0 && start + 1 > p.window ? start + 1 - p.window : 0;
    float acc[COLUMNS] = {0.0f}, most = NEVER, total = 0.0f;
    for (u32 first = from; first < keys; first += THREADS) {
        u32 key = first + t;
        float score = NEVER;
        __syncthreads();
        if (key < keys && sees(p, row, begin, start, key)) {
            const act *k = cache + (u64)key * DIM;
            score = 0.0f;
            for (u32 c = 0; c < DIM; c++) score += q[c] * to_float(k[c]);
        }
        top[t] = score;
        __syncthreads();
        float highest = most;
        // A NaN must win, so that it reaches the output: fmaxf would drop it.
        for (u32 i = 0; i < THREADS; i++) highest = top[i] > highest || top[i] != top[i] ? top[i] : highest;
        weight[t] = score == NEVER ? 0.0f : expf(score - highest);
        __syncthreads();
        if (highest == NEVER) continue;
        float scale = most == NEVER ? 0.0f : expf(most - highest);
        most = highest;
        total *= scale;
        for (u32 i = 0; i < COLUMNS; i++) acc[i] *= scale;
        u32 count = min(keys - first, (u32)THREADS);
        for (u32 j = 0; j < count; j++) {
            float w = weight[j];
            // Weight 0 is an unseen key (or one that underflowed): its value may be anything.
            if (w == 0.0f) continue;
            total += w;
            const act *v = cache + (u64)(first + j) * DIM;
            for (u32 i = 0; i < COLUMNS; i++) {
                u32 c = i * THREADS + t;
                if (c < KV_LORA) acc[i] += w * to_float(v[c]);
            }
        }
    }
    for (u32 i = 0; i < COLUMNS; i++) {
        u32 c = i * THREADS + t;
        if (c < KV_LORA) out[c] = to_act(total == 0.0f ? 0.0f : acc[i] / total);
    }
}
