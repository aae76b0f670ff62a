// The layout of all float codecs: a header, a bitmap of the nonzero values, and one field for each
// of these (docs/reference/format.md, "Floats"; the Rust twin is crates/codec/src/float/sparse.rs).
//
// Sixteen-bit values are processed in pairs, as the halves of a word; no step carries from one half
// to the other.
#pragma once
#include "zeros.cuh"

namespace buddy {

template <u32 EXPONENT_BITS, u32 MANTISSA_BITS>
struct Sparse {
    static constexpr u32 E = EXPONENT_BITS, M = MANTISSA_BITS, WIDTH = 1 + E + M;
    static constexpr u32 COUNT = BUDDY_ENTRY_BYTES * 8 / WIDTH;
    static constexpr u32 HEADER_BITS = 24, SIGNED = 1 << 6, DENSE = 1 << 7;
    static constexpr bool HALVES = WIDTH == 16;
    // A value's lowest bit, in each half or in the word.
    static constexpr u32 LOWEST = HALVES ? 0x00010001u : 1;
    static constexpr u32 EXPONENT = (1u << E) - 1, MANTISSA = (1u << M) - 1;

    // Parameters shared by an entry's values, and a bit for each nonzero value.
    struct Shape {
        u32 map_low, map_high, base, code_bits, is_signed, trimmed;

        BUDDY_FN u32 values() const { return ones_in(map_low) + ones_in(map_high); }
        BUDDY_FN bool dense() const { return values() == COUNT; }
        BUDDY_FN u32 field_bits() const { return is_signed + code_bits + M - trimmed; }
        BUDDY_FN u32 bits(u32 values) const { return HEADER_BITS + (values == COUNT ? 0 : COUNT) + values * field_bits(); }
        BUDDY_FN u32 bits() const { return bits(values()); }

        // Sets all bits of the nonzero values of word i.
        BUDDY_FN u32 present(u32 i) const {
            if (!HALVES) return map_low >> i & 1 ? 0xffffffffu : 0;
            u32 two = (i < 16 ? map_low : map_high) >> 2 * (i % 16);
            return (two & 1 ? 0xffff : 0) | (two & 2 ? 0xffff0000u : 0);
        }
    };

    static BUDDY_FN Shape look(const u32 (&words)[32]) {
        const u32 exponents = EXPONENT * LOWEST << M;
        u32 any = 0, low = exponents, high = 0;
        Shape shape;
        Zeros<WIDTH>::map(words, shape.map_low, shape.map_high);
        BUDDY_UNROLL
        for (u32 i = 0; i < WORDS; i++) {
            u32 exponent = words[i] & exponents, counted = (words[i] | ~shape.present(i)) & exponents;
            any |= words[i];
            low = HALVES ? min_halves(low, counted) : low < counted ? low : counted;
            high = HALVES ? max_halves(high, exponent) : high > exponent ? high : exponent;
        }
        if (HALVES) {
            any = (any | any >> 16) & 0xffff;
            low = min_halves(low, low >> 16) & 0xffff;
            high = max_halves(high, high >> 16) & 0xffff;
        }
        return measure(shape, shape.values(), any, low >> M, high >> M);
    }

    // Computes the size alone, from counts instead of a bitmap. The exponents of zeros must not
    // enter the minimum: zero halves are mapped to the largest value, and a nonzero value that is
    // mapped along shows up in the counts.
    static BUDDY_FN u32 size_bits(const u32 (&words)[32]) {
        const u32 exponents = EXPONENT * LOWEST << M, one = LOWEST << M;
        u32 any = 0, low = exponents, high = 0, below = 0, normal = 0, values = Zeros<WIDTH>::count(words);
        BUDDY_UNROLL
        for (u32 i = 0; i < WORDS; i++) {
            u32 exponent = words[i] & exponents;
            any |= words[i];
            high = HALVES ? max_halves(high, exponent) : high > exponent ? high : exponent;
            if (HALVES) {
                below = max_halves(below, ((exponents & ~words[i]) + one) & exponents);
                normal += min_halves(exponent, one);
            } else {
                u32 counted = words[i] == 0 ? exponents : exponent;
                low = low < counted ? low : counted;
            }
        }
        if (HALVES) {
            any = (any | any >> 16) & 0xffff;
            high = max_halves(high, high >> 16) & 0xffff;
            below = max_halves(below, below >> 16) & 0xffff;
            normal = ((normal & 0xffff) + (normal >> 16)) >> M;
            low = values > normal ? 0 : (1u << (E + M)) - below;
        }
        Shape shape = measure({0, 0, 0, 0, 0, 0}, values, any, low >> M, high >> M);
        return shape.bits(values);
    }

    // Derives the parameters from the OR of all values and their smallest and largest exponents.
    static BUDDY_FN Shape measure(Shape shape, u32 values, u32 any, u32 low, u32 high) {
        shape.base = high;
        shape.code_bits = values == 0 ? 0 : 32 - leading_zeros(high - low);
        shape.is_signed = any >> (E + M);
        shape.trimmed = trailing_zeros(any | 1u << M);
        return shape;
    }

    // Returns the fields of the values in a word.
    static BUDDY_FN u32 fields(u32 word, const Shape& shape) {
        u32 mantissa_bits = M - shape.trimmed;
        u32 code = shape.base * LOWEST - (word >> M & EXPONENT * LOWEST);
        u32 sign = word >> (E + M) & LOWEST;
        return (word & MANTISSA * LOWEST) >> shape.trimmed | code << mantissa_bits |
               sign << (mantissa_bits + shape.code_bits);
    }

    template <class Row>
    static BUDDY_FN void write(const u32 (&words)[32], const Shape& shape, Row& row) {
        LsbSink<Row> sink(row, 0);
        u32 field_bits = shape.field_bits();
        u32 flags = (shape.is_signed ? SIGNED : 0) | (shape.dense() ? DENSE : 0);
        sink.put(shape.base | (shape.code_bits | flags) << 8 | shape.trimmed << 16, HEADER_BITS);
        if (!shape.dense()) {
            sink.put(shape.map_low, 32);
            if (HALVES) sink.put(shape.map_high, 32);
        }
        BUDDY_UNROLL
        for (u32 i = 0; i < WORDS; i++) {
            u32 present = shape.present(i), field = fields(words[i], shape) & present;
            if (HALVES) {
                u32 first_bits = present & 0xffff ? field_bits : 0, second_bits = present >> 16 ? field_bits : 0;
                sink.put((field & 0xffff) | field >> 16 << first_bits, first_bits + second_bits);
            } else {
                sink.put(field, present ? field_bits : 0);
            }
        }
        sink.finish();
    }

    template <class Row>
    static BUDDY_FN u32 read(const Row& row, u32 limit, u32 (&words)[32]) {
        u32 header = row.load(0);
        u32 base = header & 0xff, code_bits = header >> 8 & 0x3f, trimmed = header >> 16 & 0xff;
        u32 is_signed = header >> 14 & 1, dense = header >> 15 & 1;
        if (code_bits > E || trimmed > M || base > EXPONENT) return INVALID;
        LsbSource<Row> source(row, HEADER_BITS);
        u32 low = 0xffffffffu, high = HALVES ? 0xffffffffu : 0;
        if (!dense) {
            low = source.peek();
            source.skip(32);
            if (HALVES) {
                high = source.peek();
                source.skip(32);
            }
        }
        u32 mantissa_bits = M - trimmed, field_bits = is_signed + code_bits + mantissa_bits;
        u32 total = HEADER_BITS + (dense ? 0 : COUNT) + (ones_in(low) + ones_in(high)) * field_bits;
        if (total > limit) return TRUNCATED;
        const u32 field_mask = (u32)((1ull << field_bits) - 1), mantissa_mask = ((1u << mantissa_bits) - 1) * LOWEST;
        const u32 code_mask = ((1u << code_bits) - 1) * LOWEST;
        // The bit above an exponent absorbs the borrow of a distance below zero.
        const u32 bases = HALVES ? (base | 0x8000) * LOWEST : base;
        BUDDY_UNROLL
        for (u32 i = 0; i < WORDS; i++) {
            u32 window = source.peek(), present, field;
            if (HALVES) {
                u32 two = (i < 16 ? low : high) >> 2 * (i % 16) & 3;
                u32 first_bits = two & 1 ? field_bits : 0, second_bits = two & 2 ? field_bits : 0;
                field = (window & field_mask) | (window >> first_bits & field_mask) << 16;
                present = (two & 1 ? 0xffff : 0) | (two & 2 ? 0xffff0000u : 0);
                source.skip(first_bits + second_bits);
            } else {
                bool has = low >> i & 1;
                field = window & field_mask;
                present = has ? 0xffffffffu : 0;
                source.skip(has ? field_bits : 0);
            }
            u32 exponent = (bases - (field >> mantissa_bits & code_mask)) & EXPONENT * LOWEST;
            // Two shifts, since their sum may be 32.
            u32 sign = field >> mantissa_bits >> code_bits & LOWEST;
            words[i] = ((field & mantissa_mask) << trimmed | exponent << M | sign << (E + M)) & present;
        }
        return OK;
    }
};

// A codec with this layout only.
template <u32 E, u32 M>
struct SparseOnly {
    typedef Sparse<E, M> Layout;

    static BUDDY_FN bool is_zero(const u32 (&words)[32], u32) { return all_zero(words); }

    static BUDDY_FN u32 size_bits(const u32 (&words)[32], const Params&) { return Layout::size_bits(words); }

    template <class Row>
    static BUDDY_FN u32 encode(u32 (&words)[32], Row& row, u32& layout, const Params&) {
        typename Layout::Shape shape = Layout::look(words);
        u32 bits = shape.bits();
        layout = 0;
        if (bits > STREAM_BITS) return bits;
        forget(words);
        row.clear();
        Layout::write(words, shape, row);
        return bits;
    }

    template <class Row>
    static BUDDY_FN u32 decode(const Row& row, u32 limit, u32 layout, u32 (&words)[32], const Params&) {
        return layout == 0 ? Layout::read(row, limit, words) : (u32)LAYOUT;
    }
};

typedef SparseOnly<5, 10> Fp16;
typedef SparseOnly<8, 23> Fp32;

}  // namespace buddy
