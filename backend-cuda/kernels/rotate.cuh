// Rotary embedding of neighbouring pairs of one head.
#pragma once
#include "vector.cuh"

// Loads N pairs, first member to `a`, second to `b`, from a head of 2 · SPLIT rotated numbers; `pair` is the first pair.
template <int SPLIT, bool NEIGHBOURS, int N, typename T>
TL_DEVICE void load_pairs(const T *head, u32 pair, float (&a)[N], float (&b)[N]) {
    if (NEIGHBOURS) {
        float both[2 * N];
        load(head + 2 * pair, both);
#pragma unroll
        for (int i = 0; i < N; i++) a[i] = both[2 * i], b[i] = both[2 * i + 1];
    } else {
        load(head + pair, a);
        load(head + SPLIT + pair, b);
    }
}

template <int SPLIT, bool NEIGHBOURS, int N, typename T>
TL_DEVICE void store_pairs(T *head, u32 pair, const float (&a)[N], const float (&b)[N]) {
    if (NEIGHBOURS) {
        float both[2 * N];
#pragma unroll
        for (int i = 0; i < N; i++) both[2 * i] = a[i], both[2 * i + 1] = b[i];
        store(head + 2 * pair, both);
    } else {
        store(head + pair, a);
        store(head + SPLIT + pair, b);
    }
}

// (a, b) turned by the angles of one position, then scaled; `cos` and `sin` point at this position's first pair.
template <int N>
TL_DEVICE void rotate(float (&a)[N], float (&b)[N], const float *cos, const float *sin, float scale) {
    float c[N], s[N];
    load(cos, c);
    load(sin, s);
#pragma unroll
    for (int i = 0; i < N; i++) {
        float x = a[i] * c[i] - b[i] * s[i];
        b[i] = (b[i] * c[i] + a[i] * s[i]) * scale;
        a[i] = x * scale;
    }
}
