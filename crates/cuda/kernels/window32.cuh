// window32: 32 floats in 112 of 128 bytes, if their exponents lie within 16 of one another. Made
// for kernels: six instructions per value to decode, random access, no stream. A brick is eight
// quads of four values, with one byte for its kind:
// - 0, zero bits only: nothing is stored;
// - 1..254, a window with this largest exponent: a value has 28 bits, sign and mantissa (24) and
//   the distance of its exponent from the largest (4). Quad q has words 3q to 3q + 2 and half-word
//   48 + q;
// - 255, raw: quad q has the four words from 4q on.
// Lossless: zeros or denormals among other values, infinities, NaN or a wider span make a brick
// raw.
#pragma once
#include "bits.cuh"

namespace buddy {
namespace window32 {

typedef unsigned short u16;
constexpr u32 ZERO = 0, RAW = 255, SPAN = 15;

struct Quad {
    u32 v[4];
};
struct Packed {
    u32 w[3];
    u32 codes;  // 16 bits
};

// Selects bytes of two words: nibbles 0 to 3 of the selector are bytes of a, 4 to 7 of b.
BUDDY_FN u32 permute(u32 a, u32 b, u32 selector) {
#ifdef __CUDA_ARCH__
    return __byte_perm(a, b, selector);
#else
    u64 both = (u64)b << 32 | a;
    u32 out = 0;
    for (u32 i = 0; i < 4; i++) out |= (u32)(u8)(both >> 8 * (selector >> 4 * i & 7)) << 8 * i;
    return out;
#endif
}
BUDDY_FN u32 larger(u32 a, u32 b) { return a > b ? a : b; }
BUDDY_FN u32 smaller(u32 a, u32 b) { return a > b ? b : a; }

// The larger of each half.
BUDDY_FN u32 larger_halves(u32 a, u32 b) {
#ifdef __CUDA_ARCH__
    return __vmaxu2(a, b);
#else
    return larger(a >> 16, b >> 16) << 16 | larger(a & 0xffff, b & 0xffff);
#endif
}

// Returns the largest exponent of a quad, and 255 minus the smallest. A brick's are the larger
// halves of its quads'.
BUDDY_FN u32 extent(const Quad& a) {
    const u32 size = 0x7fffffff;
    u32 high = larger(larger(a.v[0] & size, a.v[1] & size), larger(a.v[2] & size, a.v[3] & size));
    u32 low = smaller(smaller(a.v[0] & size, a.v[1] & size), smaller(a.v[2] & size, a.v[3] & size));
    return (high >> 23) << 16 | (255 - (low >> 23));
}

// Returns the byte of a brick from its extent; `any` is true if any of its bits is set.
BUDDY_FN u32 kind_of(u32 extent, bool any) {
    u32 high = extent >> 16, low = 255 - (extent & 0xffff);
    bool window = low > 0 && high < 255 && high - low <= SPAN;
    return !any ? ZERO : window ? high : RAW;
}
BUDDY_FN bool is_window(u32 kind) { return kind - 1 < RAW - 1; }

BUDDY_FN Packed pack(const Quad& a, u32 kind) {
    u32 f[4], e[4];
    BUDDY_UNROLL for (int i = 0; i < 4; i++) {
        f[i] = (a.v[i] >> 8 & 0x800000u) | (a.v[i] & 0x7fffffu);
        e[i] = a.v[i] << 1;  // the exponent in the top byte
    }
    u32 all = permute(permute(e[0], e[1], 0x0073), permute(e[2], e[3], 0x0073), 0x5410);
    u32 c = kind * 0x01010101u - all;  // without a borrow: no exponent is above `kind`
    c |= c >> 4;                       // two codes in the low byte of each half
    u32 codes = permute(c, 0, 0x4420) & 0xffffu;
    return {{permute(f[0], f[1], 0x4210), permute(f[1], f[2], 0x5421), permute(f[2], f[3], 0x6542)}, codes};
}

BUDDY_FN Quad unpack(const Packed& p, u32 kind) {
    u32 t[4] = {permute(p.w[0], 0, 0x2104), permute(p.w[0], p.w[1], 0x5430), permute(p.w[1], p.w[2], 0x4320), p.w[2]};
    Quad a;
    u32 top = kind << 23;
    BUDDY_UNROLL for (int i = 0; i < 4; i++) {
        u32 mantissa = (u32)((int)t[i] >> 8) & 0x807fffffu, below = (p.codes << (23 - 4 * i)) & (15u << 23);
        a.v[i] = mantissa + top - below;
    }
    return a;
}

}  // namespace window32
}  // namespace buddy
