// Table indices with a prefix code for their length (docs/reference/format.md, "rank32, rank64";
// the Rust twin is crates/codec/src/fields/rank.rs). The table is that of table.cuh, the code that
// of prefix.cuh.
#pragma once
#include "prefix.cuh"
#include "table.cuh"

namespace buddy {

template <u32 N>
struct Rank {
    static constexpr u32 COUNT = N;
    static constexpr u32 WORD_BITS = 1024 / COUNT;
    static constexpr u32 RAW_BITS = 1024;
    static constexpr u32 LONGEST = 10;
    // ABSENT stands for a word that is not in the table; NEVER is the length of an index without
    // a code.
    static constexpr u32 ABSENT = 16, NEVER = 255;
    typedef Table<COUNT> Values;
    typedef Prefix<COUNT> Coded;
    typedef typename WordOf<COUNT>::Type Word;

    // Offsets in the block, after the table: two words per length, then one for each value of the
    // next bits, both as in prefix.cuh. A word that is not in the table has the mark of a long one.
    enum : u32 { CODES = 38, LENGTHS = 2 * 17 };

    static BUDDY_FN bool is_zero(const u32 (&words)[32], u32) { return all_zero(words); }

    // Returns the bits of an index of a length; more than a stream holds if it has no code.
    static BUDDY_FN u32 bits_of(const u32* block, u32 codes, u32 length) {
        u32 bits = learned_word(block, codes + 1 + 2 * (length < ABSENT ? length : ABSENT)) >> 24;
        return bits == NEVER ? RAW_BITS : bits;
    }

    static BUDDY_FN u32 size_bits(const u32 (&entry)[32], const Params& params) {
        const u32* block = params.learned;
        Word words[COUNT];
        split(entry, words);
        u32 seed = learned_word(block, Values::SEED), codes = learned_word(block, CODES), bits = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < COUNT; i++) {
            // If words outside the table have no code, the first ones already show that an entry
            // has no stream.
            if (i % 8 == 0 && i > 0 && warp_or(bits <= STREAM_BITS) == 0) return RAW_BITS;
            if (i % Values::AT_ONCE == 0) block = keep_after(block, bits);
            u32 length = Values::find(block, seed, words[i]) >> 16;
            bits += bits_of(block, codes, length);
        }
        return bits > STREAM_BITS ? RAW_BITS : bits;
    }

    template <class Row>
    static BUDDY_FN u32 encode(u32 (&entry)[32], Row& row, u32& layout, const Params& params) {
        const u32* block = params.learned;
        Word words[COUNT];
        layout = 0;
        split(entry, words);
        u32 seed = learned_word(block, Values::SEED), codes = learned_word(block, CODES), bits = 0, absent = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < COUNT; i++) {
            if (i % Values::AT_ONCE == 0) block = keep_after(block, absent);
            u32 found = Values::find(block, seed, words[i]), length = found >> 16;
            absent |= length < ABSENT ? 0 : 1u << i;
            bits += bits_of(block, codes, length);
            words[i] = keep(length < ABSENT ? (Word)(found & 0xffff) : words[i]);
        }
        if (bits > STREAM_BITS) return RAW_BITS;
        row.clear();
        FieldSink<Row> sink(row);
        bool spare = warp_or(absent) != 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < COUNT; i++) {
            bool out = spare && (absent >> i & 1) != 0;
            u64 pair = learned_pair(block, codes + 2 * (out ? ABSENT : length_of((u32)words[i])));
            u32 code = (u32)pair, rest = (u32)(pair >> 32);
            sink.put(code ^ (out ? 0 : funnel_left(0, (u32)words[i], rest)), byte_of<1>(rest));
            if (spare && out) Coded::put_bits(sink, words[i], WORD_BITS);
        }
        sink.finish();
        return bits;
    }

    template <class Row>
    static BUDDY_FN u32 decode(const Row& row, u32 limit, u32 layout, u32 (&entry)[32], const Params& params) {
        const u32* block = params.learned;
        u32 lengths = learned_word(block, CODES) + LENGTHS;
        if (layout != 0) {
            fill_zeros(entry);
            // The second layout is the raw entry, which is never stored.
            return layout == 1 ? TRUNCATED : LAYOUT;
        }
        Word words[COUNT];
        FieldSource<Row> source(row, 0);
        u32 absent = 0, last = learned_word(block, Values::VALUES) - 1, past = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < COUNT; i++) {
            u32 next = source.peek(), found = learned_word(block, lengths + next % (1 << LONGEST));
            source.skip(byte_of<1>(found));
            u32 place = funnel_right_to(funnel_left(0, next, found), found >> 31, byte_of<2>(found));
            words[i] = place;
            bool out = found & Coded::LONG;
            if (out) {
                absent |= 1u << i;
                words[i] = Coded::take_bits(source, WORD_BITS);
            }
            past |= !out && place > last;
        }
        if (source.taken() > limit || past) {
            fill_zeros(entry);
            return source.taken() > limit ? TRUNCATED : INVALID;
        }
        BUDDY_UNROLL
        for (u32 i = 0; i < COUNT; i++) {
            if ((absent >> i & 1) == 0) words[i] = Values::word_of(block, words[i]);
        }
        join(words, entry);
        return OK;
    }
};

template <u32 N>
struct AsksFirst<Rank<N>> {
    static constexpr bool VALUE = true;
};

typedef Rank<32> Rank32;
typedef Rank<16> Rank64;

}  // namespace buddy
