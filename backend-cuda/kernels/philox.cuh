// The counter-based random stream of `treeline_core::stream`, bit for bit: Philox4x32-10 and Gumbel noise.
#pragma once
#include "ptx.cuh"

struct Words4 {
    u32 w[4];
    // Word i, without an array in memory.
    TL_DEVICE u32 at(u32 i) const { return i < 2 ? (i < 1 ? w[0] : w[1]) : (i < 3 ? w[2] : w[3]); }
};

TL_DEVICE Words4 philox4x32(u32 c0, u32 c1, u32 c2, u32 c3, u32 k0, u32 k1) {
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u64 a = (u64)c0 * 0xD2511F53u;
        u64 b = (u64)c2 * 0xCD9E8D57u;
        u32 n0 = (u32)(b >> 32) ^ c1 ^ k0;
        u32 n2 = (u32)(a >> 32) ^ c3 ^ k1;
        c1 = (u32)b;
        c3 = (u32)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return Words4{{c0, c1, c2, c3}};
}

// What the target's own sample at a position is drawn from: `Key::target(seed, request, position).stream()`.
struct TargetStream {
    u32 k0, k1, position, request;
};

TL_DEVICE TargetStream target_stream(u64 seed, u64 request, u32 position) {
    // Purpose, round and node are 0.
    Words4 key = philox4x32(0, 0, 0, (u32)(request >> 32), (u32)seed, (u32)(seed >> 32));
    return TargetStream{key.w[0], key.w[1], position, (u32)request};
}

// The numbers of tokens 4 block .. 4 block + 3.
TL_DEVICE Words4 noise_of(const TargetStream &s, u32 block) { return philox4x32(block, s.position, s.request, 0, s.k0, s.k1); }

// Standard Gumbel noise: -ln(-ln u), u = (bits + 1/2) 2^-32.
TL_DEVICE double gumbel(u32 bits) {
    double u = ((double)bits + 0.5) * (1.0 / 4294967296.0);
    return -log(-log(u));
}

// Bounds of `gumbel` over all bits: -ln(33 ln 2) and -ln(-ln(1 - 2^-33)).
#define GUMBEL_LEAST -3.2f
#define GUMBEL_MOST 22.9f
// How far `gumbel_near` may be off, with room to spare.
#define GUMBEL_NEAR 1e-3f

// `gumbel` in f32: good enough to tell who cannot win.
TL_DEVICE float gumbel_near(u32 bits) {
    const float ln2 = 0.69314718f;
    float t; // -ln u
    if (bits < 0x80000000u) {
        t = -ln2 * log2_approx(((float)bits + 0.5f) * 2.3283064e-10f);
    } else {
        // u = 1 - v, of which f32 would keep too little near 1.
        float v = ((float)~bits + 0.5f) * 2.3283064e-10f;
        t = v < 0.0078125f ? v + v * v * (0.5f + 0.33333334f * v) : -ln2 * log2_approx(1.0f - v);
    }
    return -ln2 * log2_approx(t);
}
