// Places in a table behind a prefix code of their length (docs/format.md, "rank32, rank64"; the Rust twin is
// crates/codec/src/fields/rank.rs). The table is that of table.cuh, the code that of prefix.cuh.
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
    // What stands for a word that is not in the table, and the bits of what has no code.
    static constexpr u32 NO_PLACE = 16, NEVER = 255;
    typedef Table<COUNT> Values;
    typedef Prefix<COUNT> Coded;
    typedef typename WordOf<COUNT>::Type Word;

    // In the block, after the table: a word for each length, then one for each two of the next bits.
    enum : u32 { CODES = 38, LENGTHS = 17 };

    static BUDDY_FN bool is_zero(const u32 (&words)[32], u32) { return all_zero(words); }

    // What the code says of a length: the code, its bits, and all bits of such a place. Bits of what has no code are too many for a stream.
    static BUDDY_FN u32 bits_of(u32 code) { return code >> 24 == NEVER ? RAW_BITS : code >> 24; }

    static BUDDY_FN u32 size_bits(const u32 (&entry)[32], const Params& params) {
        const u32* block = params.learned;
        const u32* codes = block + learned_word(block, CODES);
        Word words[COUNT];
        split(entry, words);
        u32 seed = learned_word(block, Values::SEED), bits = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < COUNT; i++) {
            if (i % 8 == 0) block = keep_after(block, bits);
            u32 length = Values::find(block, seed, words[i]) >> 16;
            bits += bits_of(learned_word(codes, length < NO_PLACE ? length : NO_PLACE));
        }
        return bits > STREAM_BITS ? RAW_BITS : bits;
    }

    template <class Row>
    static BUDDY_FN u32 encode(u32 (&entry)[32], Row& row, u32& layout, const Params& params) {
        const u32* block = params.learned;
        const u32* codes = block + learned_word(block, CODES);
        Word words[COUNT];
        layout = 0;
        split(entry, words);
        u32 seed = learned_word(block, Values::SEED), bits = 0, absent = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < COUNT; i++) {
            if (i % 8 == 0) block = keep_after(block, absent);
            u32 found = Values::find(block, seed, words[i]), length = found >> 16;
            absent |= length < NO_PLACE ? 0 : 1u << i;
            bits += bits_of(learned_word(codes, length < NO_PLACE ? length : NO_PLACE));
            words[i] = keep(length < NO_PLACE ? (Word)(found & 0xffff) : words[i]);
        }
        if (bits > STREAM_BITS) return RAW_BITS;
        row.clear();
        FieldSink<Row> sink(row);
        bool spare = warp_or(absent) != 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < COUNT; i++) {
            bool out = spare && (absent >> i & 1) != 0;
            u32 place = (u32)words[i], length = length_of(place);
            u32 code = learned_word(codes, out ? NO_PLACE : length), after = out ? 0 : length > 1 ? length - 1 : 0, of_code = code >> 16 & 0xff;
            // Ten bits of a code and fourteen of a place are one field.
            sink.put((code & 0xffff) | (place & low_ones(after)) << of_code, of_code + after);
            if (spare) Coded::put_bits(sink, out ? words[i] : 0, out ? WORD_BITS : 0);
        }
        sink.finish();
        return bits;
    }

    template <class Row>
    static BUDDY_FN u32 decode(const Row& row, u32 limit, u32 layout, u32 (&entry)[32], const Params& params) {
        const u32* block = params.learned;
        const u32* lengths = block + learned_word(block, CODES) + LENGTHS;
        if (layout != 0) {
            fill_zeros(entry);
            // The second layout is the entry as it is, which is never stored.
            return layout == 1 ? TRUNCATED : LAYOUT;
        }
        Word words[COUNT];
        FieldSource<Row> source(row, 0);
        u32 absent = 0, last = learned_word(block, Values::VALUES) - 1, past = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < COUNT; i++) {
            u32 next = source.take(0, low_ones(LONGEST));
            u32 found = learned_word(lengths, next / 2) >> next % 2 * 16, length = found & 0xff;
            bool out = length == NO_PLACE;
            u32 after = out || length == 0 ? 0 : length - 1;
            source.take(found >> 8 & 0xff, 0);
            u32 place = source.take(after, low_ones(after)) | (out || length == 0 ? 0 : 1u << after);
            absent |= out ? 1u << i : 0;
            past |= !out && place > last;
            words[i] = place;
            if (warp_or(out) != 0) {
                Word word = Coded::take_bits(source, out ? WORD_BITS : 0);
                words[i] = out ? word : words[i];
            }
        }
        if (source.at > limit || past) {
            fill_zeros(entry);
            return source.at > limit ? TRUNCATED : INVALID;
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
