// CUDA's arithmetic functions for the host. Part of `emulate.cuh`. Fast forms are exact here: tests allow for both.
#pragma once

#define TL_MIN_MAX(T)                                                                                                  \
    inline T min(T a, T b) { return b < a ? b : a; }                                                                   \
    inline T max(T a, T b) { return a < b ? b : a; }
TL_MIN_MAX(int)
TL_MIN_MAX(u32)
TL_MIN_MAX(long)
TL_MIN_MAX(unsigned long)
TL_MIN_MAX(i64)
TL_MIN_MAX(u64)
inline u32 min(int a, u32 b) { return min((u32)a, b); }
inline u32 min(u32 a, int b) { return min(a, (u32)b); }
inline u32 max(int a, u32 b) { return max((u32)a, b); }
inline u32 max(u32 a, int b) { return max(a, (u32)b); }
inline u64 min(u64 a, u32 b) { return min(a, (u64)b); }
inline u64 min(u32 a, u64 b) { return min((u64)a, b); }
// As on the device, a NaN loses against a number.
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

inline float rsqrtf(float x) { return (float)(1.0 / sqrt((double)x)); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }

// Float to integer saturates and takes NaN to 0.
template <class To> inline To tl_convert(double x, double low, double high) {
    return x != x ? (To)0 : x <= low ? (To)low : x >= high ? (To)high : (To)x;
}
inline int tl_to_int(double x) { return tl_convert<int>(x, -2147483648.0, 2147483647.0); }
inline u32 tl_to_uint(double x) { return tl_convert<u32>(x, 0.0, 4294967295.0); }
inline int __float2int_rn(float x) { return tl_to_int(rint((double)x)); }
inline int __float2int_rz(float x) { return tl_to_int(trunc((double)x)); }
inline int __float2int_rd(float x) { return tl_to_int(floor((double)x)); }
inline int __float2int_ru(float x) { return tl_to_int(ceil((double)x)); }
inline u32 __float2uint_rn(float x) { return tl_to_uint(rint((double)x)); }
inline u32 __float2uint_rz(float x) { return tl_to_uint(trunc((double)x)); }
inline u32 __float2uint_rd(float x) { return tl_to_uint(floor((double)x)); }
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(u32 x) { return (float)x; }
inline float __ull2float_rn(u64 x) { return (float)x; }
inline float __double2float_rn(double x) { return (float)x; }
