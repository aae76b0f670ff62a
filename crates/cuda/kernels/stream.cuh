// Bit streams in the words of an entry's row. A row has `load(k)` and `store(k, word)` over 32
// words. `load_if(condition, k, otherwise)` and `store_if(condition, k, word)` are predicated, for
// threads that need the next word at different times: a branch costs more there. A condition is any
// nonzero number. `load_quad(c)` and `store_quad(c, quad)` move four words, and `clear(c)` zeroes
// the quads from c on.
#pragma once
#include "bits.cuh"

namespace buddy {

// Sixteen bytes, moved at once.
struct alignas(16) Quad {
    u32 words[4];
};

// `VALUE` is true if zero entries are detected before encoding instead of after it, since detection
// after it would keep all words in registers.
template <class Codec>
struct AsksFirst {
    static constexpr bool VALUE = false;
};

// Appends codes, most significant bit first. Words are stored as soon as they are full.
template <class Row>
struct BitSink {
    Row& row;
    u32 pending = 0;  // the low `held` bits are not stored yet; the bits above them are
    u32 held = 0;
    u32 words = 0;

    BUDDY_FN explicit BitSink(Row& row) : row(row) {}

    // Appends a code of exactly 32 bits; `held` stays the same.
    BUDDY_FN void put_word(u32 code) {
        row.store(words++, big_endian(funnel_right(code, pending, held)));
        pending = code;
    }

    // Appends a code of 1 to 31 bits.
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

// A window on the next 32 bits. Past the end of the stream its content is arbitrary: readers
// compare `taken` with the stream's length before they trust it.
template <class Row>
struct BitSource {
    const Row& row;
    u32 high, low;
    u32 words = 2;
    u32 at = 0;  // start of the window in `high`, modulo 32

    BUDDY_FN explicit BitSource(const Row& row)
        : row(row), high(big_endian(row.load(0))), low(big_endian(row.load(1))) {}

    BUDDY_FN u32 peek() const { return funnel_left(low, high, at); }

    // Returns the bits taken so far.
    BUDDY_FN u32 taken() const { return (words - 2) * 32 + at % 32; }

    // Skips 32 bits.
    BUDDY_FN void skip_word() {
        high = low;
        low = big_endian(row.load(words++ % WORDS));
    }

    // Skips fewer than 32 bits.
    BUDDY_FN void skip(u32 bits) {
        u32 before = at;
        at += bits;
        if ((at ^ before) & 32) skip_word();
    }
};

// Appends fields, least significant bit first: the order of this project's own formats, whose
// streams are little-endian words.
template <class Row>
struct LsbSink {
    Row& row;
    u32 words;
    u32 pending = 0;
    u32 held = 0;

    // Begins at word `start` of the row.
    BUDDY_FN LsbSink(Row& row, u32 start) : row(row), words(start) {}

    // Appends a field of 0 to 32 bits; the bits above it are zero.
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

// A window on the next 32 bits of an LSB-first stream; past the end its content is arbitrary.
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
