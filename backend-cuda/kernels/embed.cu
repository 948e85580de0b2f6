// Rows of the embedding table, widened to the residual stream.
//
// HIDDEN, VEC, THREADS.
#include "vector.cuh"

struct EmbedArgs {
    const act *table; // [vocab][HIDDEN]
    const u32 *token; // [rows]
    const i32 *seq;   // [rows]
    float *x;         // [rows][HIDDEN]
    u32 vocab;
    u32 unused;
};

TL_KERNEL(embed, EmbedArgs, THREADS) {
    griddep_launch();
    griddep_wait();
    u32 row = blockIdx.x;
    u32 column = (blockIdx.y * THREADS + threadIdx.x) * VEC;
    if (column >= HIDDEN) return;
    float x[VEC];
    clear(x);
    u32 token = p.token[row];
    if (p.seq[row] >= 0) {
        if (token < p.vocab) {
            load(p.table + (u64)token * HIDDEN + column, x);
        } else {
            // No such token: the request has to fail, and NaN is what fails it.
            for (int i = 0; i < VEC; i++) x[i] = __uint_as_float(0x7fc00000u);
        }
    }
    store(p.x + (u64)row * HIDDEN + column, x);
}
