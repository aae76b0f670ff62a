// Bits into the words of an entry's row and out of them. A row has `load(k)` and `store(k, word)`
// over 32 words, and `load_if(condition, k, otherwise)` and `store_if(condition, k, word)` for
// threads that need the next word at different times: there a branch costs more than the word. A
// condition is a number that is not zero. `load_quad(c)` and `store_quad(c, quad)` move four words
// at once, and `clear(c)` makes zeros of the quads from c on.
#pragma once
#include "bits.cuh"

namespace buddy {

// Sixteen bytes, moved at once.
struct alignas(16) Quad {
    u32 words[4];
};

// Whether a codec is asked before it encodes, and not after, if an entry is zeros: after, its words
// would have to be kept.
template <class Codec>
struct AsksFirst {
    static constexpr bool VALUE = false;
};

// Appends codes, most significant bit first. Words are stored as soon as they are full.
template <class Row>
struct BitSink {
    Row& row;
    u32 pending = 0;  // its low `held` bits are not stored yet; the bits above them already are
    u32 held = 0;
    u32 words = 0;

    BUDDY_FN explicit BitSink(Row& row) : row(row) {}

    // A code of exactly 32 bits: the number of bits held stays as it is.
    BUDDY_FN void put_word(u32 code) {
        row.store(words++, big_endian(funnel_right(code, pending, held)));
        pending = code;
    }

    // A code of 1 to 31 bits.
    BUDDY_FN void put(u32 code, u32 bits) {
        u32 high = funnel_left(pending, 0, bits);
        pending = (pending << bits) | code;
        held += bits;
        if (held >= 32) {
            held -= 32;
            row.store(words++, big_endian(funnel_right(pending, high, held)));
        }
    }

    BUDDY_FN void finish() {
        if (held > 0) row.store(words, big_endian(pending << (32 - held)));
    }
};

// A window on the next 32 bits. It may look past the end of the stream, where it sees anything:
// whoever reads compares `taken` with the stream's length before it trusts what it saw.
template <class Row>
struct BitSource {
    const Row& row;
    u32 high, low;
    u32 words = 2;
    u32 at = 0;  // modulo 32, how far into `high` the window begins

    BUDDY_FN explicit BitSource(const Row& row)
        : row(row), high(big_endian(row.load(0))), low(big_endian(row.load(1))) {}

    BUDDY_FN u32 peek() const { return funnel_left(low, high, at); }

    // Bits taken so far.
    BUDDY_FN u32 taken() const { return (words - 2) * 32 + at % 32; }

    // Skips 32 bits.
    BUDDY_FN void skip_word() {
        high = low;
        low = big_endian(row.load(words++ % WORDS));
    }

    // Skips fewer.
    BUDDY_FN void skip(u32 bits) {
        u32 before = at;
        at += bits;
        if ((at ^ before) & 32) skip_word();
    }
};

// Appends fields, least significant bit first: the order of our own formats, in which a stream is
// little-endian words.
template <class Row>
struct LsbSink {
    Row& row;
    u32 words;
    u32 pending = 0;
    u32 held = 0;

    // Begins at word `start` of the row.
    BUDDY_FN LsbSink(Row& row, u32 start) : row(row), words(start) {}

    // A field of 0 to 32 bits, with no bits set above them.
    BUDDY_FN void put(u32 field, u32 bits) {
        u32 low = pending | field << held, high = funnel_left(field, 0, held);
        held += bits;
        bool full = held >= 32;
        row.store_if(full, words, low);
        words += full;
        held -= full ? 32 : 0;
        pending = full ? high : low;
    }

    BUDDY_FN void finish() {
        if (held > 0) row.store(words, pending);
    }
};

// A window on the next 32 bits of such a stream; it may look past the end, as the other one does.
template <class Row>
struct LsbSource {
    const Row& row;
    u32 low, high;
    u32 words;
    u32 at;

    // Begins at bit `start` of the row.
    BUDDY_FN LsbSource(const Row& row, u32 start)
        : row(row), low(row.load(start / 32)), high(row.load(start / 32 + 1)), words(start / 32 + 2), at(start) {}

    BUDDY_FN u32 peek() const { return funnel_right(low, high, at); }

    // Skips 0 to 32 bits.
    BUDDY_FN void skip(u32 bits) {
        u32 before = at;
        at += bits;
        if ((at ^ before) & 32) {
            low = high;
            high = row.load(words++ % WORDS);
        }
    }
};

}  // namespace buddy
