// Replaces `Row` of tile.cuh for emu.h, and the other primitives of tile kernels.
#pragma once
#include <algorithm>

#define BUDDY_EMULATED // warps exist, too
#include "emu.h"
#include "../kernels/tile.cuh"

using std::min;

template <class T>
inline void __stcg(T* at, T value) { *at = value; }
inline float __uint_as_float(unsigned bits) {
    float value;
    return memcpy(&value, &bits, 4), value;
}
inline unsigned __reduce_add_sync(unsigned, unsigned value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    return value;
}
inline unsigned atomicInc(unsigned* at, unsigned most) {
    unsigned old = *at;
    return *at = old >= most ? 0 : old + 1, old;
}

namespace buddy {

inline void cp_async_wait_warp() {
    cp_async_commit();
    cp_async_wait<0>();
    __syncwarp();
}

// Rows start at multiples of 128 bytes, so that the swizzle is an XOR of the address.
struct Row {
    u64 start;

    explicit Row(const Tile& tile) : start((u64)tile.at(tile.lane, 0)) {}

    u32& word(u32 k) const { return *(u32*)(start ^ k * 4); }
    Quad& quad(u32 c) const { return *(Quad*)(start ^ c * CHUNK); }
    u32 load(u32 k) const { return word(k); }
    void store(u32 k, u32 value) { word(k) = value; }
    u32 load_if(u32 condition, u32 k, u32 otherwise) const { return condition ? word(k) : otherwise; }
    void store_if(u32 condition, u32 k, u32 value) {
        if (condition) word(k) = value;
    }
    Quad load_quad(u32 c) const { return quad(c); }
    void store_quad(u32 c, const Quad& value) { quad(c) = value; }
    void store_chunk(u32 c, u32 x, u32 y, u32 z, u32 w) { quad(c) = {{x, y, z, w}}; }
    void clear(u32 first = 0) {
        for (u32 c = first; c < STREAM_WORDS / 4; c++) quad(c) = {};
    }
    void load_all(u32 (&out)[WORDS]) const {
        for (u32 k = 0; k < WORDS; k++) out[k] = word(k);
    }
    void store_all(const u32 (&in)[WORDS]) {
        for (u32 k = 0; k < WORDS; k++) word(k) = in[k];
    }
};

}  // namespace buddy
