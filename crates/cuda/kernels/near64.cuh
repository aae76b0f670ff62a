// Doubles close to each other: 28-bit differences from one base (docs/reference/format.md,
// "near64"; the Rust twin is crates/codec/src/near64.rs). Four lanes share an entry, each a quarter
// of it: 4 values in 16 bytes. An entry takes two sectors, or is stored raw.
#pragma once
#include "map.cuh"
#include "stream.cuh"

namespace buddy {

struct Near64 {
    static constexpr u32 WIDTH = 28, MASK = (1u << WIDTH) - 1, BITS = 512, RAW_BITS = 128 + 1024;
    // Eight nibbles of entries in two sectors each.
    static constexpr u32 ALL_NEAR = 0x11111111u * S2;

    // Returns the base for value 8.
    static BUDDY_FN u64 base_of(u64 middle) { return (middle - (1u << (WIDTH - 1))) & ~0xffffull; }

    // Computes the differences of a quarter's values; the result is nonzero if one does not fit.
    static BUDDY_FN u32 differences(const u64 (&values)[4], u64 base, u32 (&to)[4]) {
        u32 over = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < 4; i++) {
            u64 difference = values[i] - base;
            to[i] = (u32)difference;
            over |= (u32)(difference >> 32) | (to[i] & ~MASK);
        }
        return over;
    }

    // Returns the 16 bits of the base that quarter `q` stores, above sixteen zeros; the base's
    // lowest byte is one.
    static BUDDY_FN u32 piece_of(u64 base, u32 q) { return permute_bytes((u32)base, (u32)(base >> 32), 0x1000u + 0x2200u * q); }

    // Packs a quarter into its 16 bytes.
    static BUDDY_FN Quad pack(const u32 (&d)[4], u64 base, u32 q) {
        return {{shift_add(d[1], 28, d[0]), shift_add(d[2], 24, d[1] >> 4), shift_add(d[3], 20, d[2] >> 8),
                 d[3] >> 12 | piece_of(base, q)}};
    }

    // Unpacks a quarter's values.
    static BUDDY_FN void unpack(const Quad& chunk, u64 base, u64 (&values)[4]) {
        const u32(&w)[4] = chunk.words;
        values[0] = base + (w[0] & MASK);
        values[1] = base + (funnel_right(w[0], w[1], 28) & MASK);
        values[2] = base + (funnel_right(w[1], w[2], 24) & MASK);
        values[3] = base + (funnel_right(w[2], w[3], 20) & MASK);
    }

    static BUDDY_FN u64 value(const u32 (&words)[32], u32 i) { return (u64)words[2 * i + 1] << 32 | words[2 * i]; }
    static BUDDY_FN void quarter(const u32 (&words)[32], u32 q, u64 (&values)[4]) {
        BUDDY_UNROLL
        for (u32 i = 0; i < 4; i++) values[i] = value(words, 4 * q + i);
    }

    // The interface of a codec, for a thread with a whole entry.
    static BUDDY_FN bool is_zero(const u32 (&words)[32], u32) { return all_zero(words); }

    static BUDDY_FN u32 size_bits(const u32 (&words)[32], const Params&) {
        u64 base = base_of(value(words, 8)), values[4];
        u32 over = 0, d[4];
        BUDDY_UNROLL
        for (u32 q = 0; q < 4; q++) {
            quarter(words, q, values);
            over |= differences(values, base, d);
        }
        return over == 0 ? BITS : RAW_BITS;
    }

    template <class Row>
    static BUDDY_FN u32 encode(u32 (&words)[32], Row& row, u32& layout, const Params& params) {
        layout = 0;
        u32 bits = size_bits(words, params), d[4];
        if (bits != BITS) return bits;
        u64 base = base_of(value(words, 8)), values[4];
        BUDDY_UNROLL
        for (u32 q = 0; q < 4; q++) {
            quarter(words, q, values);
            differences(values, base, d);
            row.store_quad(q, pack(d, base, q));
        }
        return bits;
    }

    template <class Row>
    static BUDDY_FN u32 decode(const Row& row, u32 limit, u32 layout, u32 (&words)[32], const Params&) {
        if (layout != 0) return LAYOUT;
        if (limit < 128) return TRUNCATED;
        u32 form = row.load(3) >> 16;
        if (form > 1) return INVALID;
        if (form == 1 || limit < BITS) return TRUNCATED;
        u64 base = 0, values[4];
        BUDDY_UNROLL
        for (u32 q = 1; q < 4; q++) base |= (u64)(row.load(4 * q + 3) >> 16) << 16 * q;
        BUDDY_UNROLL
        for (u32 q = 0; q < 4; q++) {
            unpack(row.load_quad(q), base, values);
            BUDDY_UNROLL
            for (u32 i = 0; i < 4; i++) words[8 * q + 2 * i] = (u32)values[i], words[8 * q + 2 * i + 1] = (u32)(values[i] >> 32);
        }
        return OK;
    }
};

}  // namespace buddy
