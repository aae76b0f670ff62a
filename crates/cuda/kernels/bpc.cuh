// Bit-Plane Compression over 32-bit words (docs/reference/format.md, "BPC"; the Rust twin is
// crates/codec/src/bpc).
//
// Planes are classified before they are transposed: in the XORed differences, bit j of word i is
// bit i of plane j, so that one logic operation works on all planes at once. A size needs no
// transposition at all, and the encoder emits planes of known kinds.
#pragma once
#include "stream.cuh"

namespace buddy {

constexpr u32 BPC_ONES = 0x7fffffffu;

// Masks of planes 31 to 0 by kind; a plane in no mask is written uncompressed. Plane 32 is `signs`.
struct BpcKinds {
    u32 zero;   // a plane of zeros
    u32 flat;  // nonzero, but its DBP is zero: 5 bits
    u32 ones;   // all ones: 5 bits
    u32 one;    // a single one: 10 bits
    u32 two;    // two neighbouring ones: 10 bits
    u32 signs;  // plane 32
};

// Computes the differences, XORed with themselves shifted (bit j of word i is bit i of DBX[j]), and
// the kinds of planes.
BUDDY_FN BpcKinds bpc_planes(const u32 (&words)[32], u32 (&dbx)[32]) {
    BpcKinds kinds;
    u32 signs = 0, any = 0;
    BUDDY_UNROLL
    for (int i = 30; i >= 0; i--) {
        u32 to = words[i + 1], from = words[i];
        u32 delta = to - from;
        // Bit 31 is the sign of the 33-bit difference: that of `delta`, unless the words' signs
        // differ.
        u32 sign = ((to ^ from) & to) | (~(to ^ from) & delta);
        signs = funnel_left(sign, signs, 1);
        dbx[i] = delta ^ (delta >> 1) ^ (sign & 0x80000000u);
        any |= delta;
    }
    // Counts the ones of each plane, as five bits in five words.
    u32 count[5], carry[15];
    count[0] = dbx[0];
    BUDDY_UNROLL
    for (u32 i = 0; i < 15; i++) carry[i] = add_columns(count[0], dbx[2 * i + 1], dbx[2 * i + 2]);
    BUDDY_UNROLL
    for (u32 level = 1; level < 5; level++) {
        count[level] = carry[0];
        BUDDY_UNROLL
        for (u32 i = 0; i + 1 < (16u >> level); i++) {
            carry[i] = add_columns(count[level], carry[2 * i + 1], carry[2 * i + 2]);
        }
    }
    u32 neighbours = 0;
    BUDDY_UNROLL
    for (u32 i = 1; i < 30; i += 2) neighbours |= dbx[i] & (dbx[i - 1] | dbx[i + 1]);
    u32 many = count[2] | count[3] | count[4];
    kinds.zero = ~(count[0] | count[1] | many);
    kinds.flat = ~any & ~kinds.zero;
    kinds.ones = count[0] & count[1] & count[2] & count[3] & count[4] & ~kinds.flat;
    kinds.one = count[0] & ~count[1] & ~many & ~kinds.flat;
    kinds.two = ~count[0] & count[1] & ~many & neighbours & ~kinds.flat;
    kinds.signs = signs;
    return kinds;
}

// A code in the low `bits` bits.
struct Code {
    u32 code, bits;
};

BUDDY_FN bool fits_signed(u32 word, u32 bits) {
    return (u32)((int)(word << (32 - bits)) >> (32 - bits)) == word;
}

// Returns the base word's code. Its 33-bit form, a one and the word, has `bits` of 33 and no code.
BUDDY_FN Code bpc_base(u32 word) {
    if (word == 0) return {0, 3};
    if (fits_signed(word, 4)) return {1u << 4 | (word & 0xf), 7};
    if (fits_signed(word, 8)) return {2u << 8 | (word & 0xff), 11};
    if (fits_signed(word, 16)) return {3u << 16 | (word & 0xffff), 19};
    return {word, 33};
}

// Returns the code of a nonzero plane 32; `bits` is 32 if it is written uncompressed.
BUDDY_FN Code bpc_top(u32 plane) {
    u32 lowest = plane & (0u - plane);
    u32 index = 31 - leading_zeros(lowest);
    if (plane == BPC_ONES) return {0, 5};
    if (plane == lowest) return {3u << 5 | index, 10};
    if (plane == lowest * 3) return {2u << 5 | index, 10};
    return {plane | 0x80000000u, 32};
}

// Returns the zero planes that begin a run, which carry its code.
BUDDY_FN u32 bpc_runs(const BpcKinds& kinds) {
    return kinds.zero & ~funnel_right(kinds.zero, kinds.signs == 0, 1);
}

// Returns the stream's length.
BUDDY_FN u32 bpc_bits(u32 base, const BpcKinds& kinds) {
    u32 top_zero = kinds.signs == 0;
    u32 runs = bpc_runs(kinds), single = runs & ~(kinds.zero << 1);
    u32 five = kinds.flat | kinds.ones, ten = kinds.one | kinds.two;
    u32 bits = bpc_base(base).bits + 7 * ones_in(runs) - 4 * ones_in(single) + 5 * ones_in(five) +
               10 * ones_in(ten) + 32 * ones_in(~(kinds.zero | five | ten));
    if (!top_zero) return bits + bpc_top(kinds.signs).bits;
    return bits + (kinds.zero >> 31 ? 7 : 3);
}

// Returns the code of a run of zero planes.
BUDDY_FN Code bpc_run(u32 length) { return length == 1 ? Code{1, 3} : Code{1u << 5 | (length - 2), 7}; }

// Returns the code of plane `j`, which is in one of the masks.
BUDDY_FN Code bpc_small(const BpcKinds& kinds, u32 j, u32 plane) {
    u32 bit = 1u << j;
    if (kinds.zero & bit) return bpc_run(leading_zeros(~(kinds.zero << (31 - j))));
    if ((kinds.flat | kinds.ones) & bit) return {kinds.flat >> j & 1, 5};
    return {(kinds.one & bit ? 3u << 5 : 2u << 5) | (31 - leading_zeros(plane & (0u - plane))), 10};
}

template <class Row>
BUDDY_FN void bpc_put_head(BitSink<Row>& sink, u32 base, const BpcKinds& kinds) {
    Code code = bpc_base(base);
    if (code.bits == 33) {
        sink.put(1, 1);
        sink.put_word(base);
    } else {
        sink.put(code.code, code.bits);
    }
    code = bpc_top(kinds.signs);
    if (kinds.signs == 0) code = bpc_run(1 + leading_zeros(~kinds.zero));
    if (code.bits == 32) {
        sink.put_word(code.code);
    } else {
        sink.put(code.code, code.bits);
    }
}

struct Bpc {
    // An entry of zeros takes ten bits: a zero base and one run of all planes.
    static BUDDY_FN bool is_zero(const u32 (&)[32], u32 bits) { return bits == 10; }

    static BUDDY_FN u32 size_bits(const u32 (&words)[32], const Params&) {
        u32 dbx[32];
        return bpc_bits(words[0], bpc_planes(words, dbx));
    }

    // Writes the stream into `row`, zero-padded, if it is short enough to be stored; returns its
    // length in any case. Overwrites `words`.
    template <class Row>
    static BUDDY_FN u32 encode(u32 (&words)[32], Row& row, u32& layout, const Params&) {
        return encode_after<0>(words, row, layout);
    }

    // The same after FLAG (0 or 1) zero bits, which count towards the length.
    template <u32 FLAG, class Row>
    static BUDDY_FN u32 encode_after(u32 (&words)[32], Row& row, u32& layout) {
        u32 base = words[0];
        u32 dbx[32];
        BpcKinds kinds = bpc_planes(words, dbx);
        u32 bits = FLAG + bpc_bits(base, kinds);
        bool stored = bits <= STREAM_BITS;
        layout = 0;
        u32 small = bpc_runs(kinds) | kinds.flat | kinds.ones | kinds.one | kinds.two;
        u32 whole = ~(kinds.zero | small);
        // Below `tail`, every entry of the warp writes its planes uncompressed.
        u32 mixed = warp_or(stored ? ~whole : 0), tail = trailing_zeros(mixed);
        u32 needed = warp_or(stored ? small | whole : 0) & ~((mixed & (0u - mixed)) - 1);
        // The bit above a plane's 31 bits is the first of its 32-bit code.
        dbx[31] = 0xffffffffu;
        transpose(dbx);
        if (!stored) return bits;
        row.clear();
        BitSink<Row> sink(row);
        if (FLAG != 0) sink.put(0, FLAG);
        bpc_put_head(sink, base, kinds);
        BUDDY_UNROLL
        for (int j = 31; j >= 0; j--) {
            if (!(needed >> j & 1)) continue;
            if (whole >> j & 1) sink.put_word(dbx[j]);
            if (small >> j & 1) {
                Code code = bpc_small(kinds, j, dbx[j] & BPC_ONES);
                sink.put(code.code, code.bits);
            }
        }
        bpc_put_tail(sink, dbx, tail);
        sink.finish();
        return bits;
    }

    // Emits the planes below `tail`, all uncompressed: one jump into straight-line code. A stored
    // stream has at most 23 such planes.
    template <class Row>
    static BUDDY_FN void bpc_put_tail(BitSink<Row>& sink, const u32 (&dbx)[32], u32 tail) {
#define BUDDY_WHOLE(j)          \
    case j + 1:                 \
        sink.put_word(dbx[j]);  \
        [[fallthrough]];
        switch (tail) {
            BUDDY_WHOLE(22) BUDDY_WHOLE(21) BUDDY_WHOLE(20) BUDDY_WHOLE(19) BUDDY_WHOLE(18) BUDDY_WHOLE(17)
            BUDDY_WHOLE(16) BUDDY_WHOLE(15) BUDDY_WHOLE(14) BUDDY_WHOLE(13) BUDDY_WHOLE(12) BUDDY_WHOLE(11)
            BUDDY_WHOLE(10) BUDDY_WHOLE(9) BUDDY_WHOLE(8) BUDDY_WHOLE(7) BUDDY_WHOLE(6) BUDDY_WHOLE(5)
            BUDDY_WHOLE(4) BUDDY_WHOLE(3) BUDDY_WHOLE(2) BUDDY_WHOLE(1) BUDDY_WHOLE(0)
            default: break;
        }
#undef BUDDY_WHOLE
    }

    // Rebuilds the words from a stream of at most `limit` bits.
    template <class Row>
    static BUDDY_FN u32 decode(const Row& row, u32 limit, u32 layout, u32 (&words)[32], const Params&) {
        if (layout != 0) return LAYOUT;
        BitSource<Row> source(row);
        return decode_from(source, limit, words);
    }

    template <class Row>
    static BUDDY_FN u32 decode_from(BitSource<Row>& source, u32 limit, u32 (&words)[32]) {
        u32 base = bpc_take_base(source);
        u32 plane = 0;
        // The next plane to decode; below -1 after an invalid code.
        int next = 32;
        BUDDY_UNROLL
        for (int j = 32; j >= 0; j--) {
            if (next == j) {
                u32 window = source.peek();
                next = j - 1;
                // Most codes are uncompressed planes; the hint saves a move per plane.
                if (__builtin_expect((int)window >= 0, 0)) {
                    bpc_take_small(source, window, plane, next);
                } else {
                    plane ^= window;
                    source.skip_word();
                }
            }
            if (j < 32) words[j] = plane;
        }
        u32 status = source.taken() > limit ? TRUNCATED : next < -1 ? INVALID : OK;
        transpose(words);
        u32 word = base;
        BUDDY_UNROLL
        for (u32 i = 0; i < 32; i++) {
            u32 delta = words[i];
            words[i] = word;
            word += delta;
        }
        return status;
    }

    template <class Row>
    static BUDDY_FN u32 bpc_take_base(BitSource<Row>& source) {
        u32 window = source.peek();
        if ((int)window < 0) {
            source.skip(1);
            window = source.peek();
            source.skip_word();
            return window;
        }
        u32 kind = window >> 29;
        u32 bits = kind == 0 ? 0 : 2u << kind;
        source.skip(3 + bits);
        return kind == 0 ? 0 : (u32)((int)(window << 3) >> (32 - bits));
    }

    // Takes a code of fewer than 32 bits. A run moves `next` below its planes. Bit 31 of a plane is
    // ignored: an uncompressed plane keeps the first bit of its code there.
    template <class Row>
    static BUDDY_FN void bpc_take_small(BitSource<Row>& source, u32 window, u32& plane, int& next) {
        bool run = window >> 30, zero = window >> 29, ten = window >> 28, one = window >> 27 & 1;
        source.skip(run ? 7 : zero ? 3 : ten ? 10 : 5);
        if (run) next -= (window >> 25 & 31) + 1;
        if (zero) return;
        u32 pattern = (one ? 1u : 3u) << (window >> 22 & 31);
        if (ten && (int)pattern < 0) next = -2;
        plane ^= ten ? pattern : one ? plane : BPC_ONES;
    }
};

}  // namespace buddy
