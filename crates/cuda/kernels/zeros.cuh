// A bitmap of the nonzero words, then those words (docs/reference/format.md, "zeros"; the Rust twin
// is crates/codec/src/zeros.rs).
#pragma once
#include "stream.cuh"

namespace buddy {

// Sets bit 15 and bit 31 for nonzero halves.
BUDDY_FN u32 nonzero_halves(u32 word) { return (((word & 0x7fff7fffu) + 0x7fff7fffu) | word) & 0x80008000u; }

template <u32 WIDTH>
struct Zeros {
    static constexpr u32 COUNT = BUDDY_ENTRY_BYTES * 8 / WIDTH;

    // An entry of zeros is a bitmap without words.
    static BUDDY_FN bool is_zero(const u32 (&)[32], u32 bits) { return bits == COUNT; }

    // Sets bit i of (high:low) if word i is nonzero.
    static BUDDY_FN void map(const u32 (&words)[32], u32& low, u32& high) {
        low = 0, high = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < WORDS; i++) {
            if (WIDTH == 16) {
                u32 flags = nonzero_halves(words[i]);
                u32 two = (flags >> 15 & 1) | (flags >> 30 & 2);
                (i < 16 ? low : high) |= two << 2 * (i % 16);
            } else if (WIDTH == 32) {
                low |= words[i] != 0 ? 1u << i : 0;
            } else if (i % 2 == 0) {
                low |= (words[i] | words[i + 1]) != 0 ? 1u << i / 2 : 0;
            }
        }
    }

    static BUDDY_FN u32 bits_of(u32 low, u32 high) { return COUNT + WIDTH * (ones_in(low) + ones_in(high)); }

    // Counts nonzero words without the bitmap, in a third of the instructions.
    static BUDDY_FN u32 count(const u32 (&words)[32]) {
        u32 count = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < WORDS; i += WIDTH == 64 ? 2 : 1) {
            u32 word = WIDTH == 64 ? words[i] | words[i + 1] : words[i];
            count += WIDTH == 16 ? min_halves(word, 0x00010001u) : one_unless_zero(word);
        }
        return WIDTH == 16 ? (count & 0xffff) + (count >> 16) : count;
    }

    static BUDDY_FN u32 size_bits(const u32 (&words)[32], const Params&) { return COUNT + WIDTH * count(words); }

    template <class Row>
    static BUDDY_FN u32 encode(u32 (&words)[32], Row& row, u32& layout, const Params&) {
        u32 low, high;
        map(words, low, high);
        u32 bits = bits_of(low, high);
        layout = 0;
        if (bits > STREAM_BITS) return bits;
        row.clear();
        LsbSink<Row> sink(row, 0);
        sink.put(low, COUNT < 32 ? COUNT : 32);
        if (COUNT > 32) sink.put(high, 32);
        BUDDY_UNROLL
        for (u32 i = 0; i < WORDS; i++) {
            if (WIDTH == 16) {
                u32 has_first = (i < 16 ? low : high) >> 2 * (i % 16) & 1;
                u32 has_second = (i < 16 ? low : high) >> (2 * (i % 16) + 1) & 1;
                sink.put(has_first ? words[i] : words[i] >> 16, 16 * (has_first + has_second));
            } else {
                sink.put(words[i], low >> i * 32 / WIDTH & 1 ? 32 : 0);
            }
        }
        sink.finish();
        return bits;
    }

    template <class Row>
    static BUDDY_FN u32 decode(const Row& row, u32 limit, u32 layout, u32 (&words)[32], const Params&) {
        if (layout != 0) return LAYOUT;
        u32 low = row.load(0), high = COUNT > 32 ? row.load(1) : 0;
        if (COUNT < 32) low &= (1u << COUNT % 32) - 1;
        if (bits_of(low, high) > limit) return TRUNCATED;
        LsbSource<Row> source(row, COUNT);
        BUDDY_UNROLL
        for (u32 i = 0; i < WORDS; i++) {
            u32 window = source.peek();
            if (WIDTH == 16) {
                u32 has_first = (i < 16 ? low : high) >> 2 * (i % 16) & 1;
                u32 has_second = (i < 16 ? low : high) >> (2 * (i % 16) + 1) & 1;
                words[i] = (has_first ? window & 0xffff : 0) | (has_second ? (has_first ? window & 0xffff0000u : window << 16) : 0);
                source.skip(16 * (has_first + has_second));
            } else {
                bool has = low >> i * 32 / WIDTH & 1;
                words[i] = has ? window : 0;
                source.skip(has ? 32 : 0);
            }
        }
        return OK;
    }
};

}  // namespace buddy
