// silu(gate) · up.
//
// INNER, VEC, THREADS.
#include "vector.cuh"

struct SwigluArgs {
    const act *gate_up; // [rows][2][INNER]
    const i32 *seq;     // [rows] or none
    act *out;           // [rows][INNER]
};

TL_KERNEL(swiglu, SwigluArgs, THREADS) {
    griddep_launch();
    griddep_wait();
    u32 row = blockIdx.x;
    u32 column = (blockIdx.y * THREADS + threadIdx.x) * VEC;
    if (column >= INNER) return;
    float gate[VEC], up[VEC];
    if (p.seq && p.seq[row] < 0) {
        clear(gate);
    } else {
        const act *from = p.gate_up + (u64)row * (2 * INNER) + column;
        load(from, gate);
        load(from + INNER, up);
#pragma unroll
        for (int i = 0; i < VEC; i++) gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    }
    store(p.out + (u64)row * INNER + column, gate);
}
