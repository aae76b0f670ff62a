// Numbers with a prefix code for their length (docs/reference/format.md, "prefix32, prefix64"; the
// Rust twin is crates/codec/src/fields/prefix.rs). Differences are those of stride.cuh; a stride of
// 0 leaves words unchanged.
#pragma once
#include "stride.cuh"

namespace buddy {

template <u32 N>
struct Prefix {
    static constexpr u32 COUNT = N;
    static constexpr u32 WORD_BITS = 1024 / COUNT;
    static constexpr u32 RAW_BITS = 1025;
    static constexpr u32 LONGEST = 10;
    typedef typename WordOf<COUNT>::Type Word;

    // Offsets in the block (`block.rs` of the twin). Codes have two words per length; tables of
    // lengths have one for each value of the next bits.
    enum : u32 { STRIDE = 0, ORDER = 1, FIRST_WORDS = 2, FIRST_CODES = 4, REST_CODES = 140, FIRST_LENGTHS = 276, REST_LENGTHS = 1300 };

    // Set if a number and its code exceed 32 bits.
    static constexpr u32 LONG = 32;

    static BUDDY_FN bool is_zero(const u32 (&words)[32], u32) { return all_zero(words); }

    // Returns true if word i uses the code of the first `firsts` words. The compiler knows that
    // words of the second half do not.
    static BUDDY_FN bool is_first(u32 i, u32 firsts) { return i < COUNT / 2 && i < firsts; }

    // Returns the length of a number with its code.
    static BUDDY_FN u32 bits_with(const u32* block, bool first, Word number) {
        return learned_word(block, (first ? FIRST_CODES : REST_CODES) + 2 * length_of(number) + 1) >> 24;
    }

    static BUDDY_FN void split_apart(const u32* block, const u32 (&entry)[32], Word (&numbers)[COUNT]) {
        split(entry, numbers);
        Stride<COUNT>::template at_stride<1, true>(learned_word(block, STRIDE), learned_word(block, ORDER), numbers);
    }

    static BUDDY_FN u32 bits_of(const u32* block, const Word (&numbers)[COUNT]) {
        u32 firsts = learned_word(block, FIRST_WORDS);
        u32 bits = 1 + (firsts != 0 ? WORD_BITS : bits_with(block, false, numbers[0]));
        BUDDY_UNROLL
        for (u32 i = 1; i < COUNT; i++) {
            bits += bits_with(block, is_first(i, firsts), numbers[i]);
        }
        return bits < RAW_BITS ? bits : RAW_BITS;
    }

    static BUDDY_FN u32 size_bits(const u32 (&entry)[32], const Params& params) {
        Word numbers[COUNT];
        split_apart(params.learned, entry, numbers);
        return bits_of(params.learned, numbers);
    }

    template <class Sink>
    static BUDDY_FN void put_bits(Sink& sink, Word word, u32 bits) {
        u32 low = low_part(bits);
        sink.put((u32)word & low_ones(low), low);
        if (COUNT == 16) sink.put((u32)((u64)word >> 32) & low_ones(bits - low), bits - low);
    }

    template <class Sink>
    static BUDDY_FN void put_number(Sink& sink, const u32* block, bool first, Word number) {
        u64 pair = learned_pair(block, (first ? FIRST_CODES : REST_CODES) + 2 * length_again(number));
        u32 code = (u32)pair, rest = (u32)(pair >> 32);
        // The block's code includes the number's top bit in position; the XOR removes it from the
        // stream.
        sink.put(code ^ funnel_left(0, (u32)number, rest), byte_of<1>(rest));
        if (rest & LONG) put_rest(sink, shift_right(number, 32 - rest % LONG), byte_of<2>(rest));
    }

    // Appends at most 41 bits of a number.
    template <class Sink>
    static BUDDY_FN void put_rest(Sink& sink, Word rest, u32 bits) {
        u32 low = low_part(bits);
        sink.put((u32)rest & low_ones(low), low);
        if (COUNT == 16 && bits > 32) sink.put((u32)((u64)rest >> 32) & low_ones(bits - low), bits - low);
    }

    template <class Row>
    static BUDDY_FN u32 encode(u32 (&entry)[32], Row& row, u32& layout, const Params& params) {
        const u32* block = params.learned;
        Word numbers[COUNT];
        layout = 0;
        split_apart(block, entry, numbers);
        u32 bits = bits_of(block, numbers), firsts = learned_word(block, FIRST_WORDS);
        if (bits > STREAM_BITS) return bits;
        row.clear();
        FieldSink<Row> sink(row);
        sink.put(0, 1);
        if (firsts != 0) put_bits(sink, numbers[0], WORD_BITS);
        else put_number(sink, block, false, numbers[0]);
        BUDDY_UNROLL
        for (u32 i = 1; i < COUNT; i++) {
            put_number(sink, block, is_first(i, firsts), numbers[i]);
        }
        sink.finish();
        return bits;
    }

    template <class Source>
    static BUDDY_FN Word take_bits(Source& source, u32 bits) {
        u32 low = low_part(bits);
        Word word = source.take(low, low_ones(low));
        if (COUNT == 16) word |= (Word)((u64)source.take(bits - low, low_ones(bits - low)) << 32);
        return word;
    }

    template <class Source>
    static BUDDY_FN Word take_number(Source& source, const u32* block, bool first) {
        u32 next = source.peek();
        u32 found = learned_word(block, (first ? FIRST_LENGTHS : REST_LENGTHS) + next % (1 << LONGEST));
        source.skip(byte_of<1>(found));
        // Shifts out the code below the number, and shifts in the number's top bit, which the
        // stream omits.
        Word number = funnel_right_to(funnel_left(0, next, found), found >> 31, byte_of<2>(found));
        if (found & LONG) {
            u32 bits = byte_of<2>(found), length = found >> 24 & 127;
            Word rest = take_rest(source, bits + length - 33);
            number = next >> bits | shift_left(rest, 32 - bits) | shift_left((Word)1, length - 1);
        }
        return number;
    }

    // Takes at most 41 bits of a number.
    template <class Source>
    static BUDDY_FN Word take_rest(Source& source, u32 bits) {
        u32 low = low_part(bits);
        Word rest = source.take(low, low_ones(low));
        if (COUNT == 16 && bits > 32) rest |= (Word)((u64)source.take(bits - low, low_ones(bits - low)) << 32);
        return rest;
    }

    template <class Row>
    static BUDDY_FN u32 decode(const Row& row, u32 limit, u32 layout, u32 (&entry)[32], const Params& params) {
        const u32* block = params.learned;
        // The raw form has 1025 bits, which are never stored.
        if (layout != 0 || (row.load(0) & 1) != 0) {
            fill_zeros(entry);
            return layout != 0 ? LAYOUT : TRUNCATED;
        }
        Word numbers[COUNT];
        FieldSource<Row> source(row, 1);
        u32 firsts = learned_word(block, FIRST_WORDS);
        numbers[0] = firsts != 0 ? take_bits(source, WORD_BITS) : take_number(source, block, false);
        BUDDY_UNROLL
        for (u32 i = 1; i < COUNT; i++) numbers[i] = take_number(source, block, is_first(i, firsts));
        if (source.taken() > limit) {
            fill_zeros(entry);
            return TRUNCATED;
        }
        Stride<COUNT>::template at_stride<1, false>(learned_word(block, STRIDE), learned_word(block, ORDER), numbers);
        join(numbers, entry);
        return OK;
    }
};

template <u32 N>
struct AsksFirst<Prefix<N>> {
    static constexpr bool VALUE = true;
};

typedef Prefix<32> Prefix32;
typedef Prefix<16> Prefix64;

}  // namespace buddy
