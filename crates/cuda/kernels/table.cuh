// Words as indices into a table of frequent values (docs/reference/format.md, "table32, table64";
// the Rust twins are crates/codec/src/fields/table.rs and hash.rs).
#pragma once
#include "fields.cuh"

namespace buddy {

template <u32 N>
struct Table {
    static constexpr u32 COUNT = N;
    typedef typename WordOf<COUNT>::Type Word;

    // Offsets in the block, after the forms.
    enum : u32 { VALUES = 32, SEED = 33, BUCKET_MASK = 34, SLOT_MASK = 35, BUCKETS = 36, SLOTS = 37, FIRST_VALUE = 40 };

    // Words looked up together; all at once would take too many registers.
    static constexpr u32 AT_ONCE = COUNT == 32 ? 8 : 4;

    static BUDDY_FN u32 hash(u32 seed, Word word) {
        u32 high = COUNT == 16 ? (u32)((u64)word >> 32) * (seed * 0x85ebca6bu) : 0;
        u32 hash = (u32)word * seed ^ funnel_left(high, high, 15);
        return (hash ^ hash >> 15) * 0x2c1b3c6du;
    }

    // Returns the index in the low half and its length above it; length 127 for a word not in the
    // table.
    static BUDDY_FN u32 find(const u32* block, u32 seed, Word word) {
        u32 key = hash(seed, word);
        u32 mixed = learned_word(block, learned_word(block, BUCKETS) + (key & learned_word(block, BUCKET_MASK)));
        // Slots are addressed by a word offset from the block: a 32-bit sum and one multiplication
        // give the address, where a pointer takes four instructions.
        u32 slot = (key ^ mixed) * 0x9e3779b1u >> 13 & learned_word(block, SLOT_MASK), slots = learned_word(block, SLOTS);
        if (COUNT == 32) {
            u64 pair = learned_pair(block, slots + 2 * slot);
            return (u32)pair == (u32)word ? (u32)(pair >> 32) : 127u << 16;
        }
        Quad quad = learned_quad(block, slots + 4 * slot);
        bool found = quad.words[0] == (u32)word && quad.words[1] == (u32)((u64)word >> 32);
        return found ? quad.words[2] : 127u << 16;
    }

    // Returns the words that are not in the table; they become exceptions. For a size alone the
    // first words may suffice: where a table does not suit the allocation, they already exceed the
    // exceptions of every form. Encoding skips this test, since written data mostly suits its
    // table.
    template <bool SIZE>
    static BUDDY_FN u32 from_words(const u32* block, Word (&words)[COUNT], Lengths<COUNT>& lengths) {
        u32 seed = learned_word(block, SEED), absent = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < COUNT; i++) {
            if (SIZE && (i == 8 || i == 16) && all_hopeless(lengths, i)) return absent;
            if (i % AT_ONCE == 0) block = keep_after(block, absent);
            u32 found = find(block, seed, words[i]), length = found >> 16;
            lengths.set(i, length);
            absent |= length == 127 ? 1u << i : 0;
            words[i] = keep(length != 127 ? (Word)(found & 0xffff) : words[i]);
        }
        return absent;
    }

    static BUDDY_FN Word word_of(const u32* block, Word number) {
        if (COUNT == 32) return (Word)learned_word(block, FIRST_VALUE + (u32)number);
        return (Word)learned_pair(block, FIRST_VALUE + 2 * (u32)number);
    }

    static BUDDY_FN u32 to_words(const u32* block, Word (&words)[COUNT]) {
        u32 last = learned_word(block, VALUES) - 1, past = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < COUNT; i++) {
            u32 number = (u32)words[i];
            past |= number > last;
            words[i] = word_of(block, number > last ? last : number);
        }
        return past ? INVALID : OK;
    }
};

typedef Fields<Table<32>> Table32;
typedef Fields<Table<16>> Table64;

}  // namespace buddy
