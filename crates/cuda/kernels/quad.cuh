// Encodes a bf16 entry with four lanes, a quarter each: 16 values in eight words
// (docs/reference/format.md, "bf16 in layouts B and C"). Lanes exchange a few words in between.
// Plain C++, so that it is tested without a GPU. Decoding by quarters is in bf16.cuh.
#pragma once
#include "bf16.cuh"
#include "map.cuh"

namespace buddy {

// The values that decide an entry's layout, for a quarter or for joined quarters.
struct QuadRange {
    u32 any, low, high;  // the OR of all values, the smallest exponent and the largest

    static BUDDY_FN QuadRange of(const u32 (&words)[8]) {
        u32 any = 0, low = Bf16::EXPONENTS, high = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < 8; i++) {
            u32 exponents = words[i] & Bf16::EXPONENTS;
            any |= words[i], low = min_halves(low, exponents), high = max_halves(high, exponents);
        }
        return {(any | any >> 16) & 0xffff, (min_halves(low, low >> 16) & 0xffff) >> 7,
                (max_halves(high, high >> 16) & 0xffff) >> 7};
    }
    BUDDY_FN void join(const QuadRange& other) {
        any |= other.any, low = low < other.low ? low : other.low, high = high > other.high ? high : other.high;
    }
    // Returns the bits of layout A. Not for entries with a zero exponent, whose values may be
    // zeros.
    BUDDY_FN u32 loose_bits() const {
        Bf16::Loose::Shape shape = {0xffffffffu, 0xffffffffu, 0, 0, 0, 0};
        return Bf16::Loose::measure(shape, Bf16::Loose::COUNT, any, low, high).bits();
    }
    // Returns the entry's nibble for a number of escapes; NIBBLES if the decision needs the whole
    // entry.
    BUDDY_FN u32 nibble(u32 window, u32 escapes) const {
        if (low == 0 || loose_bits() <= 2 * SECTOR * 8) return NIBBLES;
        if (low >= window && high < window + Bf16::WINDOW) return RAW + 1;
        if (escapes <= Bf16::ESCAPES) return RAW + 2;
        return loose_bits() <= STREAM_BITS ? (u32)NIBBLES : (u32)RAW;
    }
};

struct Quad4 {
    u32 words[4];
};

// Returns signs and mantissas: stream words from 4 * quarter on.
BUDDY_FN Quad4 quad_bytes(const u32 (&words)[8]) {
    Quad4 out;
    BUDDY_UNROLL
    for (u32 i = 0; i < 4; i++) out.words[i] = Bf16::narrow(words[2 * i], words[2 * i + 1]);
    return out;
}

// Returns layout B's codes: stream words from 16 + 2 * quarter on.
BUDDY_FN void quad_codes(const u32 (&words)[8], u32 window, u32 (&out)[2]) {
    BUDDY_UNROLL
    for (u32 group = 0; group < 2; group++) {
        u32 codes = 0;
        BUDDY_UNROLL
        for (u32 k = 0; k < 4; k++) codes += (words[4 * group + k] >> 7 & 0x00ff00ffu) << 4 * k;
        out[group] = codes - window * 0x11111111u;
    }
}

// Returns a mask of a quarter's values that need an escape.
BUDDY_FN u32 quad_escapes(const u32 (&words)[8], u32 high) {
    u32 out = 0;
    BUDDY_UNROLL
    for (u32 i = 0; i < 8; i++) {
        u32 two = Bf16::escape_flags(words[i], high);
        out |= ((two | two >> 15) & 3) << 2 * i;
    }
    return out;
}

// Returns layout C's three code planes: half `quarter` of words 16, 18 and 20.
BUDDY_FN void quad_planes(const u32 (&words)[8], u32 high, u32 (&planes)[3]) {
    planes[0] = planes[1] = planes[2] = 0;
    BUDDY_UNROLL
    for (u32 i = 0; i < 8; i++) {
        u32 codes = Bf16::distances(words[i], high) | Bf16::escape_flags(words[i], high) * Bf16::ESCAPE;
        BUDDY_UNROLL
        for (u32 bit = 0; bit < 3; bit++) {
            u32 two = codes >> bit & 0x00010001u;
            planes[bit] |= ((two | two >> 15) & 3) << 2 * i;
        }
    }
}

// Returns a quarter's part of words 22 and 23: its escapes, after the `before` escapes of earlier
// quarters. The parts are joined by OR; the largest exponent is the lowest byte.
BUDDY_FN u64 quad_tail(const u32 (&words)[8], u32 escapes, u32 before) {
    u64 tail = 0;
    u32 at = 8 * (1 + before);
    BUDDY_UNROLL
    for (u32 i = 0; i < 8; i++) {
        if (escapes >> 2 * i & 1) tail |= (u64)(words[i] >> 7 & 0xff) << at, at += 8;
        if (escapes >> 2 * i & 2) tail |= (u64)(words[i] >> 23 & 0xff) << at, at += 8;
    }
    return tail;
}

}  // namespace buddy
