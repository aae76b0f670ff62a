// Doubles as multiples of a unit (docs/reference/format.md, "scaled64"; the Rust twin is
// crates/codec/src/fields/scaled.rs).
#pragma once
#include "fields.cuh"

namespace buddy {

// Each operation rounds once: multiplication and addition are not fused.
BUDDY_FN double multiply(double a, double b) {
#ifdef __CUDA_ARCH__
    return __dmul_rn(a, b);
#else
    return a * b;
#endif
}
BUDDY_FN double add(double a, double b) {
#ifdef __CUDA_ARCH__
    return __dadd_rn(a, b);
#else
    return a + b;
#endif
}

BUDDY_FN double multiply_add(double a, double b, double c) {
#ifdef __CUDA_ARCH__
    return __fma_rn(a, b, c);
#else
    return __builtin_fma(a, b, c);
#endif
}

union DoubleBits {
    u64 bits;
    double value;
};
BUDDY_FN double double_of(u64 bits) {
    DoubleBits both = {bits};
    return both.value;
}
BUDDY_FN u64 bits_of(double value) {
    DoubleBits both;
    both.value = value;
    return both.bits;
}

struct Scaled {
    static constexpr u32 COUNT = 16;
    // 1.5 times 2^52; adding and subtracting it rounds to an integer.
    static constexpr u64 ROUNDS = 0x4338000000000000ull;

    // Offsets in the block, after the forms. `INVERSE` is the rounded reciprocal of the divisor.
    enum : u32 { DIVISOR = 32, LEAST = 34, INVERSE = 36 };

    // Returns the correctly rounded quotient: the product with the rounded reciprocal is within two
    // units in the last place, the first correction brings it within one, and the second is exact
    // (Markstein). No multiple in range overflows or is subnormal.
    static BUDDY_FN double divide(const u32* block, double count) {
        double divisor = double_of(learned_pair(block, DIVISOR)), inverse = double_of(learned_pair(block, INVERSE));
        double near = multiply(count, inverse);
        near = multiply_add(multiply_add(-near, divisor, count), inverse, near);
        return multiply_add(multiply_add(-near, divisor, count), inverse, near);
    }

    // Returns the words that are no multiples; they become exceptions. Half of the words may
    // suffice to rule out every form.
    template <bool SIZE>
    static BUDDY_FN u32 from_words(const u32* block, u64 (&words)[COUNT], Lengths<COUNT>& lengths) {
        double divisor = double_of(learned_pair(block, DIVISOR));
        u64 least = learned_pair(block, LEAST);
        u32 absent = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < COUNT; i++) {
            if (i == COUNT / 2 && all_hopeless(lengths, i)) return absent;
            u64 word = words[i], normal = (word >> 52 & 0x7ff) == 0 ? 0 : word;
            double rounded = add(multiply(double_of(normal), divisor), double_of(ROUNDS));
            u64 bits = bits_of(rounded);
            double count = add(rounded, -double_of(ROUNDS));
            bool whole = bits >> 52 == ROUNDS >> 52 && bits_of(divide(block, count)) == word;
            u64 number = bits - ROUNDS - least;
            lengths.set(i, whole ? length_of(number) : 127);
            absent |= whole ? 0 : 1u << i;
            words[i] = keep(whole ? number : word);
        }
        return absent;
    }

    static BUDDY_FN u64 word_of(const u32* block, u64 number) {
        return bits_of(divide(block, (double)(long long)(number + learned_pair(block, LEAST))));
    }

    static BUDDY_FN u32 to_words(const u32* block, u64 (&words)[COUNT]) {
        BUDDY_UNROLL
        for (u32 i = 0; i < COUNT; i++) words[i] = word_of(block, words[i]);
        return OK;
    }
};

typedef Fields<Scaled> Scaled64;

}  // namespace buddy
