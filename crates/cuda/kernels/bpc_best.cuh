// BPC with or without its transform, the shorter of the two (docs/reference/format.md, "bpc-best";
// the Rust twin is crates/codec/src/bpc/best).
#pragma once
#include "bpc.cuh"

namespace buddy {

// Returns true for a word with one bit set or two adjacent ones, and for zero.
BUDDY_FN bool bpc_short_word(u32 word) {
    u32 lowest = word & (0u - word);
    return word == lowest || word == lowest * 3;
}

// Returns the bitmap of zero words.
BUDDY_FN u32 bpc_zero_words(const u32 (&words)[32]) {
    u32 zero = 0;
    BUDDY_UNROLL
    for (u32 i = 0; i < 32; i++) zero |= (u32)(words[i] == 0) << i;
    return zero;
}

// Returns the length of the untransformed form, without the flag.
BUDDY_FN u32 bpc_word_bits(const u32 (&words)[32]) {
    u32 zero = bpc_zero_words(words), starts = zero & ~(zero << 1), lone = starts & ~(zero >> 1);
    u32 bits = 7 * ones_in(starts) - 4 * ones_in(lone);
    BUDDY_UNROLL
    for (u32 i = 0; i < 32; i++) {
        u32 word = words[i];
        bits += word == 0 ? 0 : word == 0xffffffffu ? 5 : bpc_short_word(word) ? 10 : 33;
    }
    return bits;
}

struct BpcBest {
    // An entry of zeros takes eight bits: the flag, and one run of all words.
    static BUDDY_FN bool is_zero(const u32 (&)[32], u32 bits) { return bits == 8; }

    static BUDDY_FN u32 size_bits(const u32 (&words)[32], const Params& params) {
        u32 plain = bpc_word_bits(words), transformed = Bpc::size_bits(words, params);
        return 1 + (plain < transformed ? plain : transformed);
    }

    // Writes the stream into `row`, zero-padded, if it is short enough to be stored; returns its
    // length in any case.
    template <class Row>
    static BUDDY_FN u32 encode(u32 (&words)[32], Row& row, u32& layout, const Params& params) {
        u32 plain = bpc_word_bits(words);
        if (plain >= Bpc::size_bits(words, params)) return Bpc::encode_after<1>(words, row, layout);
        layout = 0;
        if (1 + plain > STREAM_BITS) return 1 + plain;
        u32 zero = bpc_zero_words(words), starts = zero & ~(zero << 1);
        row.clear();
        BitSink<Row> sink(row);
        sink.put(1, 1);
        BUDDY_UNROLL
        for (u32 i = 0; i < 32; i++) {
            u32 word = words[i];
            if (word != 0) {
                put_word(sink, word);
            } else if (starts >> i & 1) {
                Code code = bpc_run(trailing_zeros(~(zero >> i)));
                sink.put(code.code, code.bits);
            }
        }
        sink.finish();
        return 1 + plain;
    }

    // Rebuilds the words from a stream of at most `limit` bits.
    template <class Row>
    static BUDDY_FN u32 decode(const Row& row, u32 limit, u32 layout, u32 (&words)[32], const Params&) {
        if (layout != 0) return LAYOUT;
        BitSource<Row> source(row);
        bool plain = source.peek() >> 31;
        source.skip(1);
        if (!plain) return Bpc::decode_from(source, limit, words);
        u32 word = 0;
        // The next word to decode; above 32 after an invalid code.
        u32 next = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < 32; i++) {
            if (next == i) {
                u32 window = source.peek();
                next = i + 1;
                if ((int)window >= 0) {
                    take_small(source, window, word, next);
                } else {
                    source.skip(1);
                    word = source.peek();
                    source.skip_word();
                }
            }
            words[i] = word;
        }
        return source.taken() > limit ? TRUNCATED : next > 32 ? INVALID : OK;
    }

    // Writes the code of a nonzero word.
    template <class Row>
    static BUDDY_FN void put_word(BitSink<Row>& sink, u32 word) {
        u32 lowest = word & (0u - word), index = 31 - leading_zeros(lowest);
        if (word == 0xffffffffu) {
            sink.put(0, 5);
        } else if (bpc_short_word(word)) {
            sink.put((word == lowest ? 3u << 5 : 2u << 5) | index, 10);
        } else {
            sink.put(1, 1);
            sink.put_word(word);
        }
    }

    // Takes a code of fewer than 33 bits. A run moves `next` past its words.
    template <class Row>
    static BUDDY_FN void take_small(BitSource<Row>& source, u32 window, u32& word, u32& next) {
        bool run = window >> 30, zero = window >> 29, ten = window >> 28, one = window >> 27 & 1;
        source.skip(run ? 7 : zero ? 3 : ten ? 10 : 5);
        if (run) next += (window >> 25 & 31) + 1;
        u32 index = window >> 22 & 31;
        if (!zero && (ten ? !one && index == 31 : one)) next = 64;
        word = zero ? 0 : ten ? (one ? 1u : 3u) << index : 0xffffffffu;
    }
};

}  // namespace buddy
