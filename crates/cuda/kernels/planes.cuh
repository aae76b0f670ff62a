// Bit planes over 64-bit lanes (docs/format.md, "planes"; the Rust twin is crates/codec/src/planes.rs).
//
// Two neighbouring planes are moved at a time, each 15 bits or absent: where the second lies follows from one bit
// of the mask, without a branch.
#pragma once
#include "stream.cuh"

namespace buddy {

struct Planes64 {
    static constexpr u32 LANES = 16;
    static constexpr u32 PLANE_BITS = LANES - 1;
    static constexpr u32 PLANE = (1u << PLANE_BITS) - 1;
    static constexpr u32 HEADER_WORDS = 4;  // mask and base
    // The highest plane: signs of the differences. Where neighbours are close it is alone in its half, and that half
    // needs no transposition: a sixth of a stencil's instructions.
    static constexpr u32 SIGNS = 1u << 31;

    // No plane, and a zero base.
    static BUDDY_FN bool is_zero(const u32 (&words)[32], u32 bits) {
        return bits == HEADER_WORDS * 32 && (words[0] | words[1]) == 0;
    }

    static BUDDY_FN u32 bits_of(u32 mask_low, u32 mask_high) {
        return HEADER_WORDS * 32 + PLANE_BITS * (ones_in(mask_low) + ones_in(mask_high));
    }

    // Differences XORed with themselves one bit higher, as low and high halves, and the mask of planes in use.
    static BUDDY_FN void cross(const u32 (&words)[32], u32 (&low)[LANES], u32 (&high)[LANES], u32& mask_low,
                               u32& mask_high) {
        mask_low = 0, mask_high = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < PLANE_BITS; i++) {
            u64 from = (u64)words[2 * i + 1] << 32 | words[2 * i];
            u64 to = (u64)words[2 * i + 3] << 32 | words[2 * i + 2];
            u64 delta = to - from, crossed = delta ^ delta >> 1;
            low[i] = (u32)crossed, high[i] = (u32)(crossed >> 32);
            mask_low |= low[i], mask_high |= high[i];
        }
        low[PLANE_BITS] = 0, high[PLANE_BITS] = 0;
    }

    static BUDDY_FN u32 size_bits(const u32 (&words)[32], const Params&) {
        u32 low[LANES], high[LANES], mask_low, mask_high;
        cross(words, low, high, mask_low, mask_high);
        return bits_of(mask_low, mask_high);
    }

    // Appends planes 31 to 0 of one half.
    template <class Row>
    static BUDDY_FN void put_half(LsbSink<Row>& sink, const u32 (&planes)[LANES], u32 mask, u32 needed) {
        BUDDY_UNROLL
        for (int j = 31; j > 0; j -= 2) {
            if ((needed >> (j - 1) & 3) == 0) continue;
            u32 first = planes[j % 16], second = planes[j % 16 - 1];
            first = j < 16 ? first & 0xffff : first >> 16;
            second = j < 16 ? second & 0xffff : second >> 16;
            bool has_first = mask >> j & 1, has_second = mask >> (j - 1) & 1;
            sink.put(first | second << (has_first ? PLANE_BITS : 0),
                     (has_first ? PLANE_BITS : 0) + (has_second ? PLANE_BITS : 0));
        }
    }

    // Appends the plane of signs, if it is there, from words that are not transposed.
    template <class Row>
    static BUDDY_FN void put_signs(LsbSink<Row>& sink, const u32 (&high)[LANES], u32 mask) {
        u32 signs = 0;
        BUDDY_UNROLL
        for (u32 i = PLANE_BITS; i > 0; i--) signs = funnel_left(high[i - 1], signs, 1);
        sink.put(signs, mask & SIGNS ? PLANE_BITS : 0);
    }

    template <class Row>
    static BUDDY_FN u32 encode(u32 (&words)[32], Row& row, u32& layout, const Params&) {
        u32 low[LANES], high[LANES], mask_low, mask_high;
        cross(words, low, high, mask_low, mask_high);
        u32 bits = bits_of(mask_low, mask_high);
        bool stored = bits <= STREAM_BITS;
        layout = 0;
        u32 needed_low = warp_or(stored ? mask_low : 0), needed_high = warp_or(stored ? mask_high : 0);
        if (!stored) return bits;
        bool close = (needed_high & ~SIGNS) == 0;
        transpose_halves(low);
        if (!close) transpose_halves(high);
        row.clear();
        row.store(0, mask_low), row.store(1, mask_high);
        row.store(2, words[0]), row.store(3, words[1]);
        LsbSink<Row> sink(row, HEADER_WORDS);
        if (close) {
            put_signs(sink, high, mask_high);
        } else {
            put_half(sink, high, mask_high, needed_high);
        }
        put_half(sink, low, mask_low, needed_low);
        sink.finish();
        return bits;
    }

    // Takes planes 31 to 0 of one half; `above` is the plane above them, and the lowest one after. `needed` are the planes
    // that any thread of the warp has.
    template <class Row>
    static BUDDY_FN void take_half(LsbSource<Row>& source, u32 mask, u32 needed, u32& above, u32 (&planes)[LANES]) {
        BUDDY_UNROLL
        for (int j = 31; j > 0; j -= 2) {
            u32 first = above;
            if (needed >> (j - 1) & 3) {
                u32 window = source.peek();
                bool has_first = mask >> j & 1, has_second = mask >> (j - 1) & 1;
                if (has_first) first ^= window & PLANE;
                above = first;
                if (has_second) above ^= window >> (has_first ? PLANE_BITS : 0) & PLANE;
                source.skip_apart((has_first ? PLANE_BITS : 0) + (has_second ? PLANE_BITS : 0));
            }
            u32 at = j % 16;
            planes[at] = j >= 16 ? first << 16 : planes[at] | first;
            planes[at - 1] = j >= 16 ? above << 16 : planes[at - 1] | above;
        }
    }

    template <class Row>
    static BUDDY_FN u32 decode(const Row& row, u32 limit, u32 layout, u32 (&words)[32], const Params&) {
        if (layout != 0) return LAYOUT;
        u32 mask_low = row.load(0), mask_high = row.load(1);
        u64 word = (u64)row.load(3) << 32 | row.load(2);
        if (bits_of(mask_low, mask_high) > limit) return TRUNCATED;
        u32 low[LANES], high[LANES], above = 0;
        LsbSource<Row> source(row, HEADER_WORDS * 32);
        u32 needed_low = warp_or(mask_low), needed_high = warp_or(mask_high);
        if ((needed_high & ~SIGNS) == 0) {
            if (mask_high != 0) above = source.peek() & PLANE, source.skip(PLANE_BITS);
            BUDDY_UNROLL
            for (u32 i = 0; i < LANES; i++) high[i] = (u32)((int)(above << (31 - i)) >> 31);
        } else {
            take_half(source, mask_high, needed_high, above, high);
            transpose_halves(high);
        }
        take_half(source, mask_low, needed_low, above, low);
        transpose_halves(low);
        BUDDY_UNROLL
        for (u32 i = 0; i < LANES; i++) {
            words[2 * i] = (u32)word, words[2 * i + 1] = (u32)(word >> 32);
            word += (u64)high[i] << 32 | low[i];
        }
        return OK;
    }
};

}  // namespace buddy
