// What a kernel file takes for granted of CUDA C++, for the host's compiler. The scheduler is in `emulate_host.cuh`.
#pragma once

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __constant__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__
#define TL_DEVICE inline

// A kernel registers itself under its name; its body is an ordinary function.
#define TL_KERNEL(kernel, Args, most)                                                                                  \
    static void tl_body_##kernel(const Args &p);                                                                       \
    static tl::Entry tl_entry_##kernel(#kernel, sizeof(Args), most,                                                    \
                                       [](const void *p) { tl_body_##kernel(*(const Args *)p); });                     \
    static void tl_body_##kernel(const Args &p)
#define TL_KERNEL_RESIDENT(kernel, Args, most, blocks) TL_KERNEL(kernel, Args, most)
#define TL_SHARED(name) u8 *const name = tl::dynamic_shared

// ---- Vector types -------------------------------------------------------------------------------------------------------

#define TL_VECTOR2(V, T, A)                                                                                            \
    struct __align__(A) V {                                                                                            \
        T x, y;                                                                                                        \
    };                                                                                                                 \
    inline V make_##V(T x, T y) { return V{x, y}; }
#define TL_VECTOR4(V, T, A)                                                                                            \
    struct __align__(A) V {                                                                                            \
        T x, y, z, w;                                                                                                  \
    };                                                                                                                 \
    inline V make_##V(T x, T y, T z, T w) { return V{x, y, z, w}; }
TL_VECTOR2(char2, signed char, 2)
TL_VECTOR4(char4, signed char, 4)
TL_VECTOR2(uchar2, u8, 2)
TL_VECTOR4(uchar4, u8, 4)
TL_VECTOR2(short2, short, 4)
TL_VECTOR4(short4, short, 8)
TL_VECTOR2(ushort2, u16, 4)
TL_VECTOR4(ushort4, u16, 8)
TL_VECTOR2(int2, int, 8)
TL_VECTOR4(int4, int, 16)
TL_VECTOR2(uint2, u32, 8)
TL_VECTOR4(uint4, u32, 16)
TL_VECTOR2(float2, float, 8)
TL_VECTOR4(float4, float, 16)
TL_VECTOR2(double2, double, 16)
TL_VECTOR2(longlong2, i64, 16)
TL_VECTOR2(ulonglong2, u64, 16)

// ---- Bits ---------------------------------------------------------------------------------------------------------------

template <class To, class From> inline To tl_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
inline u32 __float_as_uint(float x) { return tl_bits<u32>(x); }
inline int __float_as_int(float x) { return tl_bits<int>(x); }
inline float __uint_as_float(u32 x) { return tl_bits<float>(x); }
inline float __int_as_float(int x) { return tl_bits<float>(x); }
inline i64 __double_as_longlong(double x) { return tl_bits<i64>(x); }
inline double __longlong_as_double(i64 x) { return tl_bits<double>(x); }
inline int __popc(u32 x) { return __builtin_popcount(x); }
inline int __popcll(u64 x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(i64 x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz((u32)x) : 32; }
inline int __clzll(i64 x) { return x ? __builtin_clzll((u64)x) : 64; }
inline u32 __brev(u32 x) {
    u32 r = 0;
    for (int i = 0; i < 32; i++) r |= ((x >> i) & 1u) << (31 - i);
    return r;
}
inline u64 __brevll(u64 x) { return ((u64)__brev((u32)x) << 32) | __brev((u32)(x >> 32)); }
inline u32 __umulhi(u32 a, u32 b) { return (u32)(((u64)a * b) >> 32); }
inline int __mulhi(int a, int b) { return (int)(((i64)a * b) >> 32); }
inline u64 __umul64hi(u64 a, u64 b) { return (u64)(((unsigned __int128)a * b) >> 64); }
inline u32 __byte_perm(u32 a, u32 b, u32 selector) {
    u64 bytes = ((u64)b << 32) | a;
    u32 r = 0;
    for (int i = 0; i < 4; i++) r |= (u32)((bytes >> (8 * ((selector >> (4 * i)) & 7u))) & 0xffu) << (8 * i);
    return r;
}
inline u32 __funnelshift_l(u32 low, u32 high, u32 by) { return (u32)(((((u64)high << 32) | low) << (by & 31)) >> 32); }
inline u32 __funnelshift_r(u32 low, u32 high, u32 by) { return (u32)((((u64)high << 32) | low) >> (by & 31)); }

// ---- Memory -------------------------------------------------------------------------------------------------------------

template <class T> inline T __ldg(const T *p, tl::Site at = tl::here()) {
    tl::check_global(p, sizeof(T), alignof(T), at);
    return *p;
}
template <class T> inline T __ldcs(const T *p, tl::Site at = tl::here()) { return __ldg(p, at); }
template <class T> inline T __ldcg(const T *p, tl::Site at = tl::here()) { return __ldg(p, at); }

// Atomics: nothing runs at the same time, so plain operations do. The value's type is that of the memory.
template <class T> struct tl_same {
    typedef T type;
};
#define TL_ATOMIC(name, result)                                                                                        \
    template <class T> inline T name(T *p, typename tl_same<T>::type v) {                                              \
        T old = *p;                                                                                                    \
        *p = result;                                                                                                   \
        return old;                                                                                                    \
    }
TL_ATOMIC(atomicAdd, old + v)
TL_ATOMIC(atomicSub, old - v)
TL_ATOMIC(atomicMax, old < v ? v : old)
TL_ATOMIC(atomicMin, v < old ? v : old)
TL_ATOMIC(atomicExch, v)
TL_ATOMIC(atomicAnd, old & v)
TL_ATOMIC(atomicOr, old | v)
TL_ATOMIC(atomicXor, old ^ v)
TL_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
template <class T> inline T atomicCAS(T *p, typename tl_same<T>::type expected, typename tl_same<T>::type v) {
    T old = *p;
    if (old == expected) *p = v;
    return old;
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(u32, tl::Site at = tl::here()) { tl::poll(at); }
[[noreturn]] inline void __trap(tl::Site at = tl::here()) { tl::fail(at, "trap"); }

#include "emulate_math.cuh"
#include "emulate_warp.cuh"
