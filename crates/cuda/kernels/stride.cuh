// Words as differences at a stride (docs/reference/format.md, "stride32, stride64"; the Rust twin
// is crates/codec/src/fields/stride.rs). Each stride has its own code, so that words stay in
// registers.
#pragma once
#include "fields.cuh"

namespace buddy {

BUDDY_FN u32 turn_right(u32 word, u32 shift) { return funnel_right(word, word, shift); }
BUDDY_FN u64 turn_right(u64 word, u32 shift) {
    u32 low = (u32)word, high = (u32)(word >> 32);
    bool swap = shift & 32;
    u32 a = swap ? high : low, b = swap ? low : high;
    return (u64)funnel_right(b, a, shift) << 32 | funnel_right(a, b, shift);
}

template <u32 N>
struct Stride {
    static constexpr u32 COUNT = N;
    static constexpr u32 WORD_BITS = 1024 / COUNT;
    static constexpr bool FIRSTS = true;
    typedef typename WordOf<COUNT>::Type Word;

    // Offsets in the block, after the forms.
    enum : u32 { STRIDE = 32, ORDER = 33, SHIFT = 34, FIRST_FIELDS = 35 };

    static BUDDY_FN u32 firsts(const u32* block) { return learned_word(block, FIRST_FIELDS); }

    // Predicts word `i`, which is at least 1.
    template <u32 STEP, u32 ORDERS>
    static BUDDY_FN Word guess(const Word (&words)[COUNT], u32 i) {
        if (i < STEP) return words[i - 1];
        if (ORDERS == 1 || i < 2 * STEP) return words[i - STEP];
        return 2 * words[i - STEP] - words[i - 2 * STEP];
    }

    template <u32 STEP, u32 ORDERS>
    static BUDDY_FN void apart(Word (&words)[COUNT]) {
        BUDDY_UNROLL
        for (u32 i = COUNT - 1; i > 0; i--) words[i] = fold((Word)(words[i] - guess<STEP, ORDERS>(words, i)));
    }

    template <u32 STEP, u32 ORDERS>
    static BUDDY_FN void together(Word (&words)[COUNT]) {
        BUDDY_UNROLL
        for (u32 i = 1; i < COUNT; i++) words[i] = guess<STEP, ORDERS>(words, i) + unfold(words[i]);
    }

    template <u32 STEP, u32 ORDERS, bool FORTH>
    static BUDDY_FN void either(Word (&words)[COUNT]) {
        if constexpr (FORTH) apart<STEP, ORDERS>(words);
        else together<STEP, ORDERS>(words);
    }

    // Calls the code for the stride and the order: differences, or their sums.
    template <u32 STEP, bool FORTH>
    static BUDDY_FN void at_stride(u32 stride, u32 order, Word (&words)[COUNT]) {
        if (stride != STEP) {
            if constexpr (2 * STEP < COUNT) at_stride<STEP + 1, FORTH>(stride, order, words);
        } else if (order == 2) {
            if constexpr (4 * STEP <= COUNT) either<STEP, 2, FORTH>(words);
        } else {
            either<STEP, 1, FORTH>(words);
        }
    }

    // Most allocations have no trailing zeros common to all words.
    static BUDDY_FN void turn_all(Word (&words)[COUNT], u32 shift) {
        if (shift == 0) return;
        BUDDY_UNROLL
        for (u32 i = 0; i < COUNT; i++) words[i] = turn_right(words[i], shift);
    }

    template <bool SIZE>
    static BUDDY_FN u32 from_words(const u32* block, Word (&words)[COUNT], Lengths<COUNT>& lengths) {
        u32 shift = learned_word(block, SHIFT), first = firsts(block);
        turn_all(words, shift);
        at_stride<1, true>(learned_word(block, STRIDE), learned_word(block, ORDER), words);
        BUDDY_UNROLL
        for (u32 i = 1; i < COUNT; i++) lengths.set(i, length_of(words[i]));
        lengths.part(first);
        return 0;
    }

    static BUDDY_FN u32 to_words(const u32* block, Word (&words)[COUNT]) {
        u32 back = (WORD_BITS - learned_word(block, SHIFT)) % WORD_BITS;
        at_stride<1, false>(learned_word(block, STRIDE), learned_word(block, ORDER), words);
        turn_all(words, back);
        return OK;
    }

    static BUDDY_FN Word word_of(const u32*, Word number) { return number; }
};

typedef Fields<Stride<32>> Stride32;
typedef Fields<Stride<16>> Stride64;

}  // namespace buddy
