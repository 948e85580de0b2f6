// The functions of `wgmma.cuh` for the host. Each warp computes its 16 rows.
//
// Products run only in the wait that covers them; by then their operands in shared memory must be what they were when the product
// was issued, since the device may read them at any time between.
#pragma once

namespace emu {
using namespace tl;

struct Product {
    u64 a, b;
    u32 words[4];
    float *d;
    unsigned columns, group;
    bool in_registers, trans_a, trans_b, accumulate;
    u64 seen; // what the operands in shared memory were; lane 0 has it for the warp
    Site at;
};

constexpr unsigned MOST_PRODUCTS = 192;
struct Products {
    Product list[MOST_PRODUCTS];
    unsigned count, groups;
    unsigned long of_block;
    bool fenced;
};
static Products products[MOST_THREADS];

inline Products &own_products() {
    Products &p = products[cur->thread];
    if (p.of_block != blocks_begun) {
        p.count = p.groups = 0;
        p.of_block = blocks_begun;
        p.fenced = false;
    }
    return p;
}

// An element of an operand, by its row (of A or of B transposed) and k.
inline float operand_at(u64 op, bool trans, unsigned row, unsigned k, Site at) {
    u32 start = (u32)(op & 0x3fff) << 4, lead = (u32)(op >> 16 & 0x3fff) << 4, stride = (u32)(op >> 32 & 0x3fff) << 4, addr;
    u32 swizzle = (u32)(op >> 62);
    if (swizzle == 0) {
        addr = row / 8 * stride + k / 8 * lead + (trans ? k % 8 * 16 + row % 8 * 2 : row % 8 * 16 + k % 8 * 2);
    } else if (trans) {
        if (swizzle != 1) fail(at, "rows behind each other are emulated plain and swizzled by 128 bytes only");
        addr = row / 64 * lead + row % 64 * 2 + k / 8 * stride + k % 8 * 128;
    } else {
        addr = row / 8 * stride + row % 8 * (256u >> swizzle) + k * 2;
    }
    addr += start;
    addr ^= (addr >> 7 & (swizzle ? (16u >> swizzle) - 1u : 0u)) << 4;
    const u8 *p = shared_at(addr);
    check_shared(p, 2, 2, at);
    return __uint_as_float((u32)*(const u16 *)p << 16);
}

// The operands of a warp's rows; returns a hash of those in shared memory.
inline u64 gather(const Product &p, unsigned warp, float (*a)[16], float (*b)[256]) {
    u64 hash = 14695981039346656037ull;
    auto mix = [&](float x) { hash = (hash ^ __float_as_uint(x)) * 1099511628211ull; };
    for (unsigned i = 0; i < 16 && !p.in_registers; i++) {
        for (unsigned k = 0; k < 16; k++) mix(a[i][k] = operand_at(p.a, p.trans_a, warp % 4 * 16 + i, k, p.at));
    }
    for (unsigned k = 0; k < 16; k++) {
        for (unsigned j = 0; j < p.columns; j++) mix(b[k][j] = operand_at(p.b, p.trans_b, j, k, p.at));
    }
    return hash;
}

inline void issue_product(Product p) {
    Products &all = own_products();
    if (blockDim.x % 128) fail(p.at, "wgmma in a block whose warps do not form whole warpgroups");
    if (!all.fenced) fail(p.at, "wgmma without a wgmma_fence before");
    if (all.count == MOST_PRODUCTS) fail(p.at, "more than %u products without a wait", MOST_PRODUCTS);
    p.group = all.groups;
    if (cur->lane == 0) {
        static float a[16][16], b[16][256];
        p.seen = gather(p, cur->warp, a, b);
    }
    all.list[all.count++] = p;
}

// One product of a warp, on the accumulators of its lanes.
inline void multiply(Products **lanes, unsigned index, unsigned warp) {
    static float a[16][16], b[16][256];
    const Product &first = lanes[0]->list[index];
    if (gather(first, warp, a, b) != first.seen) fail(first.at, "an operand changed before this product was waited for");
    for (unsigned lane = 0; lane < 32 && first.in_registers; lane++) {
        const u32 *w = lanes[lane]->list[index].words;
        for (unsigned r = 0; r < 4; r++) {
            for (unsigned odd = 0; odd < 2; odd++) a[lane / 4 + r % 2 * 8][lane % 4 * 2 + r / 2 * 8 + odd] = half_of(w[r], odd);
        }
    }
    static float sums[16][256];
    for (unsigned i = 0; i < 16; i++) {
        for (unsigned j = 0; j < first.columns; j++) sums[i][j] = 0.0f;
        for (unsigned k = 0; k < 16; k++) {
            for (unsigned j = 0; j < first.columns; j++) sums[i][j] += a[i][k] * b[k][j];
        }
    }
    for (unsigned lane = 0; lane < 32; lane++) {
        const Product &p = lanes[lane]->list[index];
        for (unsigned j = 0; j < first.columns / 8; j++) {
            for (unsigned e = 0; e < 4; e++) {
                float sum = sums[lane / 4 + e / 2 * 8][j * 8 + lane % 4 * 2 + e % 2];
                p.d[j * 4 + e] = p.accumulate ? p.d[j * 4 + e] + sum : sum;
            }
        }
    }
}

inline void finish_products(unsigned left, Site at) {
    Products &mine = own_products();
    collect(~0u, at, &mine, [left, at](Products **all, unsigned lanes) {
        if (lanes != ~0u) fail(at, "wgmma in a warp that is not whole");
        unsigned done = 0;
        for (unsigned lane = 1; lane < 32; lane++) {
            if (all[lane]->count != all[0]->count) fail(at, "lanes of a warp issued different numbers of products");
        }
        while (done < all[0]->count && all[0]->list[done].group + left < all[0]->groups) multiply(all, done++, cur->warp);
        for (unsigned lane = 0; lane < 32; lane++) {
            Products &p = *all[lane];
            memmove(p.list, p.list + done, (p.count - done) * sizeof(Product));
            p.count -= done;
        }
    });
}
} // namespace emu

inline void wgmma_fence() { emu::own_products().fenced = true; }
inline void wgmma_commit() { emu::own_products().groups++; }
template <int tl_n> inline void wgmma_wait(tl::Site at = tl::here()) { emu::finish_products(tl_n, at); }
template <int tl_m> inline void wgmma_keep(float (&)[tl_m]) {}
template <int tl_n> inline void registers_more() {}
template <int tl_n> inline void registers_less() {}

template <int TRANS_A, int TRANS_B, int tl_m>
inline void wgmma_ss(float (&d)[tl_m], u64 a, u64 b, bool accumulate, tl::Site at = tl::here()) {
    emu::issue_product({a, b, {}, d, tl_m * 2, 0, false, TRANS_A != 0, TRANS_B != 0, accumulate, 0, at});
}
template <int TRANS_B, int tl_m>
inline void wgmma_rs(float (&d)[tl_m], const u32 (&a)[4], u64 b, bool accumulate, tl::Site at = tl::here()) {
    emu::issue_product({0, b, {a[0], a[1], a[2], a[3]}, d, tl_m * 2, 0, true, false, TRANS_B != 0, accumulate, 0, at});
}
