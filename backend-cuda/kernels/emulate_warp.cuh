// Collectives of a warp and barriers of a block. Part of `emulate.cuh`.
//
// Each lane's operands lie in its own frame; the last lane to arrive computes for all of them, then all go on.
#pragma once

namespace emu {
using namespace tl;


// `finish` gets the operands of all lanes of `mask` (its template argument keeps the call direct).
template <class T, class Finish> static void collect(unsigned mask, Site at, T *mine, Finish finish) {
    unsigned w = cur->warp, bit = 1u << cur->lane, left = blockDim.x - w * 32;
    if (left < 32) mask &= (1u << left) - 1u;
    if (!(mask & bit)) fail(at, "lane %u is not in its own mask %#x", cur->lane, mask);
    Group &g = groups[w][__builtin_ctz(mask)];
    if (!g.arrived) {
        g.mask = mask;
        g.site = at;
    } else if (g.mask != mask || !same(g.site, at)) {
        fail(at, "lanes of a warp meet at different collectives: this one (mask %#x) and %s:%d (mask %#x)", mask,
             g.site.file, g.site.line, g.mask);
    }
    g.arrived |= bit;
    g.slot[cur->lane] = mine;
    if (g.arrived != mask) {
        block(AT_COLLECTIVE, at);
        return;
    }
    g.arrived = 0;
    finish((T **)g.slot, mask);
    for (unsigned m = mask & ~bit; m; m &= m - 1) fibers[w * 32 + __builtin_ctz(m)].wait = READY;
    set_ready(w, mask);
}

#define TL_LANES(lane, mask) for (unsigned tl_m = mask, lane; tl_m && (lane = __builtin_ctz(tl_m), true); tl_m &= tl_m - 1)

template <class T> struct Shuffle {
    T in, out;
    unsigned from;
    Site at;
};

template <class T> static T shuffle(unsigned mask, T value, unsigned from, Site at) {
    Shuffle<T> mine{value, value, from, at};
    collect(mask, at, &mine, [](Shuffle<T> **all, unsigned lanes) {
        TL_LANES(lane, lanes) {
            unsigned source = all[lane]->from;
            if (!(lanes >> source & 1u)) fail(all[lane]->at, "lane %u shuffles from lane %u, which is not there", lane, source);
            all[lane]->out = all[source]->in;
        }
    });
    return mine.out;
}

struct Vote {
    unsigned in, out;
};
static unsigned ballot(unsigned mask, bool in, Site at) {
    Vote mine{in, 0};
    collect(mask, at, &mine, [](Vote **all, unsigned lanes) {
        unsigned votes = 0;
        TL_LANES(lane, lanes) votes |= all[lane]->in << lane;
        TL_LANES(lane, lanes) all[lane]->out = votes;
    });
    return mine.out;
}

template <class T, class Fold> static T reduce(unsigned mask, T in, Site at, Fold fold) {
    Shuffle<T> mine{in, in, 0, at};
    collect(mask, at, &mine, [fold](Shuffle<T> **all, unsigned lanes) {
        T total = all[__builtin_ctz(lanes)]->in;
        TL_LANES(lane, lanes & (lanes - 1)) total = fold(total, all[lane]->in);
        TL_LANES(lane, lanes) all[lane]->out = total;
    });
    return mine.out;
}

} // namespace emu

template <class T>
inline T __shfl_sync(unsigned mask, T value, int from, int width = 32, tl::Site at = tl::here()) {
    unsigned lane = tl::cur->lane, base = lane & ~(unsigned)(width - 1);
    return emu::shuffle(mask, value, base | ((unsigned)from & (unsigned)(width - 1)), at);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, tl::Site at = tl::here()) {
    unsigned lane = tl::cur->lane, base = lane & ~(unsigned)(width - 1);
    return emu::shuffle(mask, value, lane - base < by ? lane : lane - by, at);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, tl::Site at = tl::here()) {
    unsigned lane = tl::cur->lane, base = lane & ~(unsigned)(width - 1);
    return emu::shuffle(mask, value, lane - base + by >= (unsigned)width ? lane : lane + by, at);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32, tl::Site at = tl::here()) {
    unsigned lane = tl::cur->lane, base = lane & ~(unsigned)(width - 1), from = lane ^ (unsigned)with;
    return emu::shuffle(mask, value, from >= base + (unsigned)width ? lane : from, at);
}

inline u32 __ballot_sync(unsigned mask, int vote, tl::Site at = tl::here()) { return emu::ballot(mask, vote != 0, at); }
inline int __any_sync(unsigned mask, int vote, tl::Site at = tl::here()) { return emu::ballot(mask, vote != 0, at) != 0; }
inline int __all_sync(unsigned mask, int vote, tl::Site at = tl::here()) { return emu::ballot(mask, vote == 0, at) == 0; }
// Only the existing lanes: the emulator has no notion of lanes that happen to be together.
inline u32 __activemask() {
    unsigned left = blockDim.x - tl::cur->warp * 32;
    return left < 32 ? (1u << left) - 1u : 0xffffffffu;
}

template <class T> inline u32 __match_any_sync(unsigned mask, T value, tl::Site at = tl::here()) {
    struct Match {
        T in;
        unsigned out;
    } mine{value, 0};
    emu::collect(mask, at, &mine, [](Match **all, unsigned lanes) {
        TL_LANES(lane, lanes) {
            all[lane]->out = 0;
            TL_LANES(other, lanes) all[lane]->out |= (unsigned)(all[other]->in == all[lane]->in) << other;
        }
    });
    return mine.out;
}

#define TL_REDUCE(name, T, result)                                                                                     \
    inline T name(unsigned mask, T value, tl::Site at = tl::here()) {                                                  \
        return emu::reduce(mask, value, at, [](T a, T b) { return result; });                                           \
    }
TL_REDUCE(__reduce_add_sync, int, a + b)
TL_REDUCE(__reduce_add_sync, u32, a + b)
TL_REDUCE(__reduce_min_sync, int, b < a ? b : a)
TL_REDUCE(__reduce_min_sync, u32, b < a ? b : a)
TL_REDUCE(__reduce_max_sync, int, a < b ? b : a)
TL_REDUCE(__reduce_max_sync, u32, a < b ? b : a)
TL_REDUCE(__reduce_and_sync, u32, a & b)
TL_REDUCE(__reduce_or_sync, u32, a | b)
TL_REDUCE(__reduce_xor_sync, u32, a ^ b)

inline void __syncwarp(unsigned mask = 0xffffffffu, tl::Site at = tl::here()) {
    char nothing;
    emu::collect(mask, at, &nothing, [](char **, unsigned) {});
}
inline void __syncthreads(tl::Site at = tl::here()) { tl::barrier(0, at); }
inline int __syncthreads_count(int vote, tl::Site at = tl::here()) { return (int)tl::barrier(vote != 0, at); }
inline int __syncthreads_or(int vote, tl::Site at = tl::here()) { return tl::barrier(vote != 0, at) != 0; }
inline int __syncthreads_and(int vote, tl::Site at = tl::here()) { return tl::barrier(vote == 0, at) == 0; }
