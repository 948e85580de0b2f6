// Matrix products of a warpgroup (4 warps from a multiple of 4) on Hopper. No other architecture has these instructions: include
// this only in code for `TL_SM90A` (or the emulator, which computes the same).
//
// D (64 x N, f32 registers) = or += A (64 x 16) B (16 x N), bf16. B lies in shared memory, A there or in registers. The product is
// asynchronous: `wgmma_fence` before the first one (and after registers changed), `wgmma_commit` behind a group, `wgmma_wait`
// before D is read or an operand overwritten. Operands that threads wrote to shared memory need `fence_async` and a barrier first.
#pragma once
#include "ptx.cuh"

// How rows lie in shared memory: 16-byte chunks of a row of 128, 64 or 32 bytes change places by the row's number.
#define WGMMA_PLAIN 0u
#define WGMMA_SWIZZLE_128 1u
#define WGMMA_SWIZZLE_64 2u
#define WGMMA_SWIZZLE_32 3u

// Where an operand lies. With `row` counting M (of A) or N (of B), and TRANS = 0 (16 values of k behind each other):
//   swizzled by S bytes: element (row, k) at row / 8 * stride + row % 8 * S + 2 k, then address bits 4.. XOR bits 7..9; `lead`
//   is not used. Start at a multiple of 8 S; the next 16 values of k begin 32 bytes further.
//   plain: row / 8 * stride + row % 8 * 16 + k / 8 * lead + k % 8 * 2.
// TRANS = 1 (rows behind each other):
//   swizzled by 128: row / 64 * lead + row % 64 * 2 + k / 8 * stride + k % 8 * 128, then as above.
//   plain: row / 8 * stride + row % 8 * 2 + k / 8 * lead + k % 8 * 16.
TL_DEVICE u64 wgmma_operand(const void *shared, u32 lead, u32 stride, u32 swizzle) {
    return (u64)((shared_addr(shared) & 0x3ffffu) >> 4) | (u64)((lead & 0x3ffffu) >> 4) << 16 |
           (u64)((stride & 0x3ffffu) >> 4) << 32 | (u64)swizzle << 62;
}
// The same operand `bytes` (a multiple of 16) further on.
TL_DEVICE u64 wgmma_advance(u64 operand, u32 bytes) { return operand + (bytes >> 4); }

#ifdef TL_EMULATED
#include "emulate_wgmma.cuh"
#else

TL_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TL_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all but the newest N groups.
template <int tl_n> TL_DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(tl_n) : "memory"); }
// Keeps the compiler from moving accumulators across this line (around fence and wait).
template <int tl_m> TL_DEVICE void wgmma_keep(float (&d)[tl_m]) {
#pragma unroll
    for (int i = 0; i < tl_m; i++) asm volatile("" : "+f"(d[i])::"memory");
}

// Registers of each thread of the warpgroup, a multiple of 8; needs a kernel with a bound on its threads.
template <int tl_n> TL_DEVICE void registers_more() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(tl_n)); }
template <int tl_n> TL_DEVICE void registers_less() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(tl_n)); }

#define TL_W0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define TL_W1 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TL_W2 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define TL_W3 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TL_W4 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define TL_W5 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define TL_W6 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define TL_W7 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define TL_W_ALL TL_W0 ", " TL_W1 ", " TL_W2 ", " TL_W3 ", " TL_W4 ", " TL_W5 ", " TL_W6 ", " TL_W7
#define TL_F4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TL_F16(i) TL_F4(i), TL_F4(i + 4), TL_F4(i + 8), TL_F4(i + 12)
#define TL_F64(i) TL_F16(i), TL_F16(i + 16), TL_F16(i + 32), TL_F16(i + 48)

#define TL_WGMMA_SS(n, text, a0, b0, p0, ta0, tb0, ...)                                                                \
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " p0 ", 0;\n wgmma.mma_async.sync.aligned.m64n" n                 \
                 "k16.f32.bf16.bf16 {" text "}, " a0 ", " b0 ", p, 1, 1, " ta0 ", " tb0 ";\n}"                          \
                 : __VA_ARGS__                                                                                         \
                 : "l"(a), "l"(b), "r"((u32)accumulate), "n"(TRANS_A), "n"(TRANS_B))
#define TL_WGMMA_RS(n, text, a0, a1, a2, a3, b0, p0, tb0, ...)                                                         \
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " p0 ", 0;\n wgmma.mma_async.sync.aligned.m64n" n                 \
                 "k16.f32.bf16.bf16 {" text "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b0 ", p, 1, 1, " tb0 ";\n}"         \
                 : __VA_ARGS__                                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((u32)accumulate), "n"(TRANS_B))

// N = 2 M is 8, 16, 32, 64, 128 or 256. Thread t of the warpgroup, with row 16 (t / 32) + t % 32 / 4: d[4 j], d[4 j + 1] are columns
// 8 j + 2 (t % 4) and the next of that row, d[4 j + 2], d[4 j + 3] those of the row 8 further.
template <int TRANS_A, int TRANS_B, int tl_m> TL_DEVICE void wgmma_ss(float (&d)[tl_m], u64 a, u64 b, bool accumulate) {
    if constexpr (tl_m == 4)
        TL_WGMMA_SS("8", "%0, %1, %2, %3", "%4", "%5", "%6", "%7", "%8",
                    TL_F4(0));
    else if constexpr (tl_m == 8)
        TL_WGMMA_SS("16", "%0, %1, %2, %3, %4, %5, %6, %7", "%8", "%9", "%10", "%11", "%12",
                    TL_F4(0), TL_F4(4));
    else if constexpr (tl_m == 16)
        TL_WGMMA_SS("32", TL_W0, "%16", "%17", "%18", "%19", "%20",
                    TL_F16(0));
    else if constexpr (tl_m == 32)
        TL_WGMMA_SS("64", TL_W0 ", " TL_W1, "%32", "%33", "%34", "%35", "%36",
                    TL_F16(0), TL_F16(16));
    else if constexpr (tl_m == 64)
        TL_WGMMA_SS("128", TL_W0 ", " TL_W1 ", " TL_W2 ", " TL_W3, "%64", "%65", "%66", "%67", "%68",
                    TL_F64(0));
    else if constexpr (tl_m == 128)
        TL_WGMMA_SS("256", TL_W_ALL, "%128", "%129", "%130", "%131", "%132",
                    TL_F64(0), TL_F64(64));
    else static_assert(tl_m == 4, "no such product");
}
// A in registers, as `mma_bf16_16816` takes it: rows of the thread's warp.
template <int TRANS_B, int tl_m> TL_DEVICE void wgmma_rs(float (&d)[tl_m], const u32 (&a)[4], u64 b, bool accumulate) {
    if constexpr (tl_m == 4)
        TL_WGMMA_RS("8", "%0, %1, %2, %3", "%4", "%5", "%6", "%7", "%8", "%9", "%10",
                    TL_F4(0));
    else if constexpr (tl_m == 8)
        TL_WGMMA_RS("16", "%0, %1, %2, %3, %4, %5, %6, %7", "%8", "%9", "%10", "%11", "%12", "%13", "%14",
                    TL_F4(0), TL_F4(4));
    else if constexpr (tl_m == 16)
        TL_WGMMA_RS("32", TL_W0, "%16", "%17", "%18", "%19", "%20", "%21", "%22",
                    TL_F16(0));
    else if constexpr (tl_m == 32)
        TL_WGMMA_RS("64", TL_W0 ", " TL_W1, "%32", "%33", "%34", "%35", "%36", "%37", "%38",
                    TL_F16(0), TL_F16(16));
    else if constexpr (tl_m == 64)
        TL_WGMMA_RS("128", TL_W0 ", " TL_W1 ", " TL_W2 ", " TL_W3, "%64", "%65", "%66", "%67", "%68", "%69", "%70",
                    TL_F64(0));
    else if constexpr (tl_m == 128)
        TL_WGMMA_RS("256", TL_W_ALL, "%128", "%129", "%130", "%131", "%132", "%133", "%134",
                    TL_F64(0), TL_F64(64));
    else static_assert(tl_m == 4, "no such product");
}
#endif
