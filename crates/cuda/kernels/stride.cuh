// Words as differences at a stride, for prefix.cuh (docs/reference/format.md, "prefix32, prefix64";
// the Rust twin is crates/codec/src/fields/predictor.rs). Each stride has its own code, so
// that words stay in registers.
#pragma once
#include "fields.cuh"

namespace buddy {

template <u32 N>
struct Stride {
    static constexpr u32 COUNT = N;
    typedef typename WordOf<COUNT>::Type Word;

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
};

}  // namespace buddy
