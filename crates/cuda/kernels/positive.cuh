// bf16 values after a ReLU (docs/reference/format.md, "Floats"): no signs, many zeros. Streams
// equal those of `Bf16`. Entries for which `Bf16` always takes layout A, nearly all, are encoded
// here in half the instructions: both values of a word at once, zeros as masks, and one position
// for word and bit.
#pragma once
#include "bf16.cuh"

namespace buddy {

// Fills the halves whose highest bit is set with ones.
BUDDY_FN u32 spread_signs(u32 pair) {
#ifdef __CUDA_ARCH__
    u32 out;
    asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(out) : "r"(pair));
    return out;
#else
    return (pair >> 15 & 0x00010001u) * 0xffffu;
#endif
}

// Returns the smaller of each pair of signed halves.
BUDDY_FN u32 min_signed_halves(u32 a, u32 b) {
#ifdef __CUDA_ARCH__
    return __vmins2(a, b);
#else
    return min_halves(a ^ 0x80008000u, b ^ 0x80008000u) ^ 0x80008000u;
#endif
}

// Adds both halves of `pair` to `sum`.
BUDDY_FN u32 add_halves(u32 pair, u32 sum) {
#ifdef __CUDA_ARCH__
    return __dp2a_lo(pair, 0x0101u, sum);
#else
    return sum + (pair & 0xffff) + (pair >> 16);
#endif
}

// Interleaves halves: bit i of the low half becomes bit 2i, bit i of the high half bit 2i + 1.
BUDDY_FN u32 interleave_halves(u32 x) {
    x = permute_bytes(x, 0, 0x3120);
    x = choose_bits(0xf00ff00fu, x, choose_bits(0x0f000f00u, x << 4, x >> 4));
    x = choose_bits(0xc3c3c3c3u, x, choose_bits(0x30303030u, x << 2, x >> 2));
    return choose_bits(0x99999999u, x, choose_bits(0x44444444u, x << 1, x >> 1));
}
// Undoes `interleave_halves`.
BUDDY_FN u32 separate_halves(u32 x) {
    x = choose_bits(0x99999999u, x, choose_bits(0x44444444u, x << 1, x >> 1));
    x = choose_bits(0xc3c3c3c3u, x, choose_bits(0x30303030u, x << 2, x >> 2));
    x = choose_bits(0xf00ff00fu, x, choose_bits(0x0f000f00u, x << 4, x >> 4));
    return permute_bytes(x, 0, 0x3120);
}

struct Positive {
    // The most nonzero values for which layout A is certain, since seven zeros can be escapes.
    static constexpr u32 MOST = 64 - Bf16::ESCAPES - 1, LEAST_EXPONENT = Bf16::WINDOW;
    static constexpr u32 HEADER_BITS = Bf16::Loose::HEADER_BITS, FIRST = HEADER_BITS + 64, MANTISSAS = 0x007f007fu;

    // An entry's analysis: masks of its nonzero values in words 0 to 15 and 16 to 31, as
    // `separate_halves` returns them, and shared parameters.
    struct Analysis {
        u32 masks[2], any, base, code_bits, trimmed;

        BUDDY_FN u32 values() const { return ones_in(masks[0]) + ones_in(masks[1]); }
        BUDDY_FN u32 field_bits() const { return code_bits + 7 - trimmed; }
        BUDDY_FN u32 bits() const { return FIRST + values() * field_bits(); }
        // Returns true if no value has a sign and `Bf16` would choose layout A.
        BUDDY_FN bool is_layout_a() const { return (any & 0x80008000u) == 0 && values() <= MOST && base >= LEAST_EXPONENT; }
    };

    static BUDDY_FN Analysis analyse(const u32 (&words)[32]) {
        u32 any = 0, high = 0, low = 0x7fff7fffu;
        Analysis entry = {};
        BUDDY_UNROLL
        for (u32 i = 0; i < WORDS; i++) {
            // The sum's sign bit is set, unless the value is zero.
            u32 tested = words[i] + 0x7fff7fffu, &masks = entry.masks[i / 16];
            masks = masks >> 1 | (tested & 0x80008000u);
            any |= words[i];
            low = min_signed_halves(low, tested);
            high = max_halves(high, words[i]);
        }
        low = (min_signed_halves(low, low >> 16) + 0x8001u) & 0xffff, high = max_halves(high, high >> 16) & 0xffff;
        entry.any = any, entry.base = high >> 7, entry.code_bits = 32 - leading_zeros((high >> 7) - (low >> 7));
        entry.trimmed = trailing_zeros(any | any >> 16 | 1u << 7);
        return entry;
    }

    // Fills the nonzero halves of a word with ones.
    static BUDDY_FN u32 nonzero(u32 pair) { return spread_signs(pair + 0x7fff7fffu); }

    // Converts between a word's two values and their fields, a code above each mantissa.
    static BUDDY_FN u32 exchange_fields(u32 pair, u32 base) { return (base << 7 | 0x7f) * 0x00010001u - (pair ^ MANTISSAS); }

    template <class Row>
    static BUDDY_FN void write(const u32 (&words)[32], const Analysis& entry, Row& row) {
        u32 low = interleave_halves(entry.masks[0]), high = interleave_halves(entry.masks[1]);
        row.clear();
        row.store(0, entry.base | entry.code_bits << 8 | entry.trimmed << 16 | low << 24);
        row.store(1, funnel_right(low, high, 8));
        u32 pending = high >> 8, at = FIRST, field_bits = entry.field_bits(), two_bits = field_bits * 0x00010001u;
        u32 closer = (1u << field_bits) - 1;
        BUDDY_UNROLL
        for (u32 i = 0; i < WORDS; i++) {
            u32 present = nonzero(words[i]), bits = present & two_bits;
            u32 fields = exchange_fields(words[i], entry.base) & present;
            // Multiplications, whose pipe is idle: one moves the high half down to the end of the
            // low one's field, one moves both up to the position in the stream.
            u32 second = fields >> 16, both = (second * (present & closer) + (fields - second * 0xffff)) >> entry.trimmed;
            u64 placed = (u64)both * (1u << at % 32) + pending;
            u32 next = add_halves(bits, at), full = (at ^ next) & 32;
            row.store_if(full, at / 32, (u32)placed);
            pending = full ? (u32)(placed >> 32) : (u32)placed, at = next;
        }
        if (at % 32 != 0) row.store(at / 32, pending);
    }

    // Zeros have an empty stream.
    static BUDDY_FN bool is_zero(const u32 (&)[32], u32 bits) { return bits == 0; }

    template <class Row>
    static BUDDY_FN u32 encode(u32 (&words)[32], Row& row, u32& layout, const Params& params) {
        Analysis entry = Positive::analyse(words);
        layout = 0;
        if (entry.any == 0) return 0;
        if (!entry.is_layout_a()) return Bf16::encode(words, row, layout, params);
        u32 bits = entry.bits();
        if (bits > STREAM_BITS) return bits;
        forget(words);
        write(words, entry, row);
        return bits;
    }

    template <class Row>
    static BUDDY_FN void read(const Row& row, u32 header, u32 low, u32 high, u32 field_bits, u32 (&words)[32]) {
        u32 base = header & 0xff, trimmed = header >> 16 & 0xff;
        u32 masks[2] = {separate_halves(low), separate_halves(high)};
        u32 two_bits = field_bits * 0x00010001u, mask = (((1u << field_bits) - 1) << trimmed) * 0x00010001u;
        // `at` is one word ahead: when it crosses into the next word, that word is loaded.
        u32 first = row.load(2), second = row.load(3), at = FIRST + 32;
        BUDDY_UNROLL
        for (u32 i = 0; i < WORDS; i++) {
            u32 window = funnel_right(first, second, at), present = spread_signs(masks[i / 16] << (15 - i % 16));
            u32 bits = present & two_bits, next = add_halves(bits, at);
            u32 fields = permute_bytes(window, window >> (bits & 0xffff), 0x5410) << trimmed & mask;
            words[i] = exchange_fields(fields, base) & present;
            u32 crossed = (at ^ next) & 32;
            first = crossed ? second : first;
            second = row.load_if(crossed, next / 32 % WORDS, second);
            at = next;
        }
    }

    template <class Row>
    static BUDDY_FN u32 decode(const Row& row, u32 limit, u32 layout, u32 (&words)[32], const Params& params) {
        u32 header = row.load(0), code_bits = header >> 8 & 0xff, trimmed = header >> 16 & 0xff;
        // All other streams: those with signs, those without zeros, and invalid ones.
        if (layout != 0 || code_bits > 8 || trimmed > 7) return Bf16::decode(row, limit, layout, words, params);
        u32 middle = row.load(1), low = funnel_right(header, middle, 24), high = funnel_right(middle, row.load(2), 24);
        u32 field_bits = code_bits + 7 - trimmed;
        if (FIRST + (ones_in(low) + ones_in(high)) * field_bits > limit) return TRUNCATED;
        read(row, header, low, high, field_bits, words);
        return OK;
    }
};

}  // namespace buddy
