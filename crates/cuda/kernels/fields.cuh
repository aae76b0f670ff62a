// Numbers in fields of fixed widths (docs/reference/format.md, "table32, table64, stride32, stride64,
// scaled64"; the Rust twin is crates/codec/src/fields). The allocation's trained
// parameters are a block of words, made by `Codec::block` of the twin: two words for each form,
// then those of `Numbers`.
//
// `Numbers` converts words to numbers and back: Table or Scaled.
#pragma once
#include "stream.cuh"

namespace buddy {

// Loads a word of the block, which many threads share.
BUDDY_FN u32 learned_word(const u32* block, u32 at) {
#ifdef __CUDA_ARCH__
    return __ldg(block + at);
#else
    return block[at];
#endif
}

// Loads half a word of the block.
BUDDY_FN u32 learned_half(const u32* block, u32 at) {
#ifdef __CUDA_ARCH__
    return __ldg((const unsigned short*)block + at);
#else
    return block[at / 2] >> at % 2 * 16 & 0xffff;
#endif
}

BUDDY_FN u64 learned_pair(const u32* block, u32 at) {
#ifdef __CUDA_ARCH__
    return __ldg((const u64*)(block + at));
#else
    return (u64)block[at + 1] << 32 | block[at];
#endif
}

// Loads four words, aligned to 16 bytes.
BUDDY_FN Quad learned_quad(const u32* block, u32 at) {
#ifdef __CUDA_ARCH__
    uint4 v = __ldg((const uint4*)(block + at));
    return {{v.x, v.y, v.z, v.w}};
#else
    return {{block[at], block[at + 1], block[at + 2], block[at + 3]}};
#endif
}

// Keeps the compiler from reading the block before `number` is known.
BUDDY_FN const u32* keep_after(const u32* block, u32 number) {
#ifdef __CUDA_ARCH__
    asm volatile("" : "+l"(block) : "r"(number));
#else
    (void)number;
#endif
    return block;
}

// Keeps the compiler from computing with a word before this point.
BUDDY_FN u32 keep_here(u32 word) {
#ifdef __CUDA_ARCH__
    asm volatile("" : "+r"(word));
#endif
    return word;
}

// The low `bits` bits set; for a pair of words, the low and the high part.
BUDDY_FN u32 low_ones(u32 bits) { return bits == 0 ? 0 : 0xffffffffu >> (32 - bits); }
BUDDY_FN u32 low_part(u32 bits) { return bits < 32 ? bits : 32; }

// Shifts by any number of bits, also 32 and more.
BUDDY_FN u32 shift_right(u32 word, u32 bits) { return bits > 31 ? 0 : word >> bits; }
BUDDY_FN u64 shift_right(u64 word, u32 bits) { return bits > 63 ? 0 : word >> bits; }
BUDDY_FN u32 shift_left(u32 word, u32 bits) { return bits > 31 ? 0 : word << bits; }
BUDDY_FN u64 shift_left(u64 word, u32 bits) { return bits > 63 ? 0 : word << bits; }

BUDDY_FN u32 length_of(u32 word) { return 32 - leading_zeros(word); }
BUDDY_FN u32 length_of(u64 word) {
    u32 high = (u32)(word >> 32);
    return high != 0 ? 64 - leading_zeros(high) : 32 - leading_zeros((u32)word);
}

// The same length by another instruction, so that the compiler recomputes it instead of holding the
// first result in a register.
BUDDY_FN u32 length_again(u32 word) {
#ifdef __CUDA_ARCH__
    u32 top;
    asm("bfind.u32 %0, %1;" : "=r"(top) : "r"(word));
    return top + 1;
#else
    return length_of(word);
#endif
}
BUDDY_FN u32 length_again(u64 word) { return length_of(word); }

// Folds signed differences: 0, -1, 1, -2, 2 become 0, 1, 2, 3, 4; and unfolds them.
BUDDY_FN u32 fold(u32 difference) { return difference << 1 ^ (0u - (difference >> 31)); }
BUDDY_FN u64 fold(u64 difference) { return difference << 1 ^ (0ull - (difference >> 63)); }
BUDDY_FN u32 unfold(u32 number) { return number >> 1 ^ (0u - (number & 1)); }
BUDDY_FN u64 unfold(u64 number) { return number >> 1 ^ (0ull - (number & 1)); }

template <u32 COUNT>
struct WordOf {
    typedef u32 Type;
};
template <>
struct WordOf<16> {
    typedef u64 Type;
};

// Splits an entry into words of 32 or 64 bits, and joins them.
BUDDY_FN void split(const u32 (&entry)[32], u32 (&words)[32]) {
    BUDDY_UNROLL
    for (u32 i = 0; i < 32; i++) words[i] = entry[i];
}
BUDDY_FN void split(const u32 (&entry)[32], u64 (&words)[16]) {
    BUDDY_UNROLL
    for (u32 i = 0; i < 16; i++) words[i] = (u64)entry[2 * i + 1] << 32 | entry[2 * i];
}
BUDDY_FN void join(const u32 (&words)[32], u32 (&entry)[32]) { split(words, entry); }
BUDDY_FN void join(const u64 (&words)[16], u32 (&entry)[32]) {
    BUDDY_UNROLL
    for (u32 i = 0; i < 16; i++) entry[2 * i] = (u32)words[i], entry[2 * i + 1] = (u32)(words[i] >> 32);
}

// Selects a word by an index known at run time: a tree of selects, since registers cannot be
// indexed.
template <u32 COUNT, class Word>
BUDDY_FN Word pick(const Word* words, u32 place) {
    if constexpr (COUNT == 1) {
        return words[0];
    } else {
        Word low = pick<COUNT / 2>(words, place), high = pick<COUNT / 2>(words + COUNT / 2, place);
        return place & COUNT / 2 ? high : low;
    }
}

// Reads fields of a row: a window of two words, and the next word, loaded ahead.
template <class Row>
struct FieldSource {
    const Row& row;
    u32 low, high, after;
    u32 at;  // two words ahead, so that it gives the index of the word after the window

    // Begins at bit `start` of the row.
    BUDDY_FN FieldSource(const Row& row, u32 start)
        : row(row), low(row.load(start / 32)), high(row.load(start / 32 + 1)), after(row.load(start / 32 + 2)), at(start + 2 * 32) {}

    // Returns the position in the row, in bits.
    BUDDY_FN u32 taken() const { return at - 2 * 32; }

    // Takes a field of 0 to 32 bits; `ones` is its mask.
    BUDDY_FN u32 take(u32 bits, u32 ones) {
        u32 field = peek() & ones;
        skip(bits);
        return field;
    }

    // Returns the next 32 bits.
    BUDDY_FN u32 peek() const { return funnel_right(low, high, at); }

    // Moves on by 0 to 32 bits.
    BUDDY_FN void skip(u32 bits) {
        u32 next = at + bits, crossed = (next ^ at) & 32;
        low = crossed ? high : low, high = crossed ? after : high;
        after = row.load_if(crossed, next / 32 % WORDS, after);
        at = next;
    }
};

// Writes fields to a row of zeros.
template <class Row>
struct FieldSink {
    Row& row;
    u32 pending = 0, at = 0;

    BUDDY_FN explicit FieldSink(Row& row) : row(row) {}

    // Appends a field of 0 to 32 bits; the bits above it are zero.
    BUDDY_FN void put(u32 field, u32 bits) {
        u32 low = shift_add(field, at, pending), high = funnel_left(field, 0, at), next = at + bits, full = (next ^ at) & 32;
        row.store_if(full, at / 32 % WORDS, low);
        pending = full ? high : low;
        at = next;
    }

    BUDDY_FN void finish() { row.store_if(at & 31, at / 32 % WORDS, pending); }
};

// A field width. Fields of 64-bit words move in two parts, the second only if a thread of the warp
// has one.
template <class Word>
struct Width {
    u32 bits, low, high, low_mask, high_mask;
    bool wide;

    BUDDY_FN explicit Width(u32 bits) : bits(bits), low(low_part(bits)), high(bits - low), low_mask(low_ones(low)), high_mask(low_ones(high)) {
        wide = sizeof(Word) == 8 && warp_or(high) != 0;
    }

    template <class Sink>
    BUDDY_FN void put(Sink& sink, Word word) const {
        sink.put((u32)word & low_mask, low);
        if (wide) sink.put((u32)((u64)word >> 32) & high_mask, high);
    }
    template <class Source>
    BUDDY_FN Word take(Source& source) const {
        Word word = source.take(low, low_mask);
        if (wide) word |= (Word)((u64)source.take(high, high_mask) << 32);
        return word;
    }
};

// Bit lengths of numbers, four per word; 127, longer than any field, for a word without a number.
template <u32 COUNT>
struct Lengths {
    u32 words[COUNT / 4] = {};

    BUDDY_FN void set(u32 i, u32 length) { words[i / 4] += length << 8 * (i % 4); }
};

// Counts the lengths above a width: the top bit of a byte is set where its sum exceeds 127.
template <u32 COUNT>
BUDDY_FN u32 count_above(const u32 (&lengths)[COUNT], u32 width) {
    u32 add = (127 - width) * 0x01010101u, found = 0;
    BUDDY_UNROLL
    for (u32 k = 0; k < COUNT; k++) found = found >> 1 | ((lengths[k] + add) & 0x80808080u);
    return ones_in(found);
}

// The most exceptions of a form.
constexpr u32 MOST_EXCEPTIONS = 6;

// Returns true if every entry of the warp already has more words without a number, among those
// examined, than any form has exceptions; the other words need no test.
template <u32 COUNT>
BUDDY_FN bool all_hopeless(const Lengths<COUNT>& lengths, u32 looked_at) {
    u32 found = 0;
    BUDDY_UNROLL
    for (u32 k = 0; k < looked_at / 4; k++) found = found >> 1 | ((lengths.words[k] + 0x01010101u) & 0x80808080u);
    return warp_or(ones_in(found) <= MOST_EXCEPTIONS) == 0;
}

template <class Numbers>
struct Fields {
    static constexpr u32 COUNT = Numbers::COUNT;
    static constexpr u32 PLACE_BITS = COUNT == 32 ? 5 : 4;
    static constexpr u32 NAME_BITS = 4;
    static constexpr u32 FORMS = 15;
    static constexpr u32 RAW_BITS = NAME_BITS + 1024;
    typedef typename WordOf<COUNT>::Type Word;

    static BUDDY_FN bool is_zero(const u32 (&words)[32], u32) { return all_zero(words); }

    // A form as the block describes it. `limit` is the smallest number of exceptions that does not
    // fit; zero for an absent form.
    struct Form {
        u32 index, width, rest, limit, bits;

        BUDDY_FN Form(const u32* block, u32 index) : index(index) {
            u64 pair = learned_pair(block, 2 * index);
            u32 parts = (u32)pair;
            width = parts & 0xff, rest = parts >> 16 & 0xff, limit = parts >> 24;
            bits = (u32)(pair >> 32);
        }
    };

    // Chooses the first form that holds numbers of these lengths and returns the length of its
    // stream; FORMS if none does.
    static BUDDY_FN u32 choose(const u32* block, const Lengths<COUNT>& lengths, u32& bits) {
        u32 chosen = FORMS;
        bits = RAW_BITS;
        choose_in<0, 1, 0>(block, lengths, chosen, bits);
        choose_in<1, 5, 3>(block, lengths, chosen, bits);
        choose_in<5, 10, 6>(block, lengths, chosen, bits);
        choose_in<10, 15, 6>(block, lengths, chosen, bits);
        return chosen;
    }

    // Chooses among the forms of one class, with at most `MOST` exceptions. The first form has the
    // widest fields: an entry with too many exceptions there has too many in all.
    template <u32 BEGIN, u32 END, u32 MOST>
    static BUDDY_FN void choose_in(const u32* block, const Lengths<COUNT>& lengths, u32& chosen, u32& bits) {
        if (warp_or(chosen == FORMS) == 0) return;
        Form form(block, BEGIN);
        u32 above = count_above(lengths.words, form.width);
        bool open = chosen == FORMS && form.limit != 0 && above <= MOST;
        if (open && above == 0) chosen = BEGIN, bits = form.bits, open = false;
        BUDDY_ROLLED
        for (u32 index = BEGIN + 1; index < END; index++) {
            if (warp_or(open) == 0) break;
            Form narrower(block, index);
            if (open && count_above(lengths.words, narrower.width) < narrower.limit) chosen = index, bits = narrower.bits, open = false;
        }
    }

    static BUDDY_FN u32 size_bits(const u32 (&entry)[32], const Params& params) {
        Word numbers[COUNT];
        Lengths<COUNT> lengths;
        split(entry, numbers);
        Numbers::template from_words<true>(params.learned, numbers, lengths);
        u32 bits;
        choose(params.learned, lengths, bits);
        return bits;
    }

    template <class Row>
    static BUDDY_FN u32 encode(u32 (&entry)[32], Row& row, u32& layout, const Params& params) {
        const u32* block = params.learned;
        Word numbers[COUNT];
        Lengths<COUNT> lengths;
        layout = 0;
        split(entry, numbers);
        u32 absent = Numbers::template from_words<false>(block, numbers, lengths), bits;
        Form form(block, choose(block, lengths, bits));
        if (bits > STREAM_BITS) return bits;
        bool spare = warp_or(form.limit > 1) != 0;
        u32 over = spare ? places_above(form, lengths) : 0;
        row.clear();
        FieldSink<Row> sink(row);
        sink.put(form.index, NAME_BITS);
        Width<Word> width(form.width);
        BUDDY_UNROLL
        for (u32 i = 0; i < COUNT; i++) {
            // Selected here, not earlier: fields and numbers together would exceed the registers.
            absent = keep_here(absent);
            width.put(sink, (absent >> i & 1) == 0 ? numbers[i] : 0);
        }
        if (spare) put_exceptions(sink, block, form, numbers, over, absent);
        sink.finish();
        return bits;
    }

    // Returns a mask of the numbers that are longer than their field.
    static BUDDY_FN u32 places_above(const Form& form, const Lengths<COUNT>& lengths) {
        u32 over = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < COUNT; i++) {
            bool above = (lengths.words[i / 4] >> 8 * (i % 4) & 127) > form.width;
            over |= above ? 1u << i : 0;
        }
        return over;
    }

    // Appends the exceptions' positions and words; if there are fewer than the form holds, the
    // last one repeats.
    template <class Sink>
    static BUDDY_FN void put_exceptions(Sink& sink, const u32* block, const Form& form, const Word (&numbers)[COUNT], u32 over, u32 absent) {
        BUDDY_ROLLED
        for (u32 e = 1; e <= MOST_EXCEPTIONS; e++) {
            bool has = e < form.limit;
            if (warp_or(has) == 0) break;
            u32 place = over == 0 ? 0 : trailing_zeros(over), others = over & (over - 1);
            over = others != 0 ? others : over;
            Word rest = pick<COUNT>(numbers, place);
            if ((absent >> place & 1) == 0) rest = Numbers::word_of(block, rest);
            sink.put(has ? place : 0, has ? PLACE_BITS : 0);
            Width<Word>(has ? form.rest : 0).put(sink, rest);
        }
    }

    template <class Row>
    static BUDDY_FN u32 decode(const Row& row, u32 limit, u32 layout, u32 (&entry)[32], const Params& params) {
        const u32* block = params.learned;
        u32 index = row.load(0) & 15;
        Form form(block, index);
        if (layout != 0 || form.limit == 0 || form.bits > limit) {
            fill_zeros(entry);  // as in planes.cuh
            // The raw form has 1028 bits, which are never stored.
            return layout != 0 ? LAYOUT : form.limit == 0 && index != FORMS ? INVALID : TRUNCATED;
        }
        Word numbers[COUNT];
        FieldSource<Row> source(row, NAME_BITS);
        Width<Word> width(form.width);
        BUDDY_UNROLL
        for (u32 i = 0; i < COUNT; i++) numbers[i] = width.take(source);
        u32 status = Numbers::to_words(block, numbers);
        take_exceptions(source, form, numbers);
        join(numbers, entry);
        return status;
    }

    // Applies the exceptions, which are whole words.
    template <class Source>
    static BUDDY_FN void take_exceptions(Source& source, const Form& form, Word (&words)[COUNT]) {
        BUDDY_ROLLED
        for (u32 e = 1; e <= MOST_EXCEPTIONS; e++) {
            bool has = e < form.limit;
            if (warp_or(has) == 0) break;
            u32 place = source.take(has ? PLACE_BITS : 0, low_ones(PLACE_BITS));
            Word rest = Width<Word>(has ? form.rest : 0).take(source);
            BUDDY_UNROLL
            for (u32 i = 0; i < COUNT; i++) {
                if (has && i == place) words[i] = rest;
            }
        }
    }
};

template <class Numbers>
struct AsksFirst<Fields<Numbers>> {
    static constexpr bool VALUE = true;
};

}  // namespace buddy
