// Bit planes over 64-bit lanes (docs/reference/format.md, "planes"; the Rust twin is
// crates/codec/src/planes.rs).
//
// Two neighbouring planes move at a time, each 15 bits or absent: a mask bit gives the position of
// the second without a branch. If all differences of an entry fit 32 bits, as in smooth fields, its
// 64 planes are 32: the sign plane replaces plane 31, which is then not stored.
#pragma once
#include "stream.cuh"

namespace buddy {

struct Planes64 {
    static constexpr u32 LANES = 16;
    static constexpr u32 PLANE_BITS = LANES - 1;
    static constexpr u32 PLANE = (1u << PLANE_BITS) - 1;
    static constexpr u32 HEADER_WORDS = 4;  // mask and base
    static constexpr u32 HEADER_BITS = HEADER_WORDS * 32;
    // Planes that are skipped together if no thread of the warp has one of them.
    static constexpr int GROUP = 4;
    // The highest plane of a half of the mask; in the high half it holds the differences' signs.
    static constexpr u32 TOP = 1u << 31;

    // No plane is present, and the base is zero.
    static BUDDY_FN bool is_zero(const u32 (&words)[32], u32 bits) {
        return bits == HEADER_BITS && (words[0] | words[1]) == 0;
    }

    static BUDDY_FN u32 bits_of(u32 planes) { return HEADER_BITS + PLANE_BITS * planes; }

    // XORs differences with themselves shifted up by one bit, as low and high halves, and returns
    // the mask of present planes.
    static BUDDY_FN void cross(const u32 (&words)[32], u32 (&low)[LANES], u32 (&high)[LANES], u32& mask_low,
                               u32& mask_high) {
        mask_low = 0, mask_high = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < PLANE_BITS; i++) {
            u64 from = (u64)words[2 * i + 1] << 32 | words[2 * i];
            u64 to = (u64)words[2 * i + 3] << 32 | words[2 * i + 2];
            u64 delta = to - from, crossed = delta ^ delta >> 1;
            low[i] = (u32)crossed, high[i] = (u32)(crossed >> 32);
            mask_low |= low[i], mask_high |= high[i];
        }
        low[PLANE_BITS] = 0, high[PLANE_BITS] = 0;
    }

    // The same for differences of 32 bits; returns false if one does not fit. The top bits are the
    // signs.
    static BUDDY_FN bool cross_narrow(const u32 (&words)[32], u32 (&crossed)[LANES], u32& mask) {
        u32 wide = 0;
        mask = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < PLANE_BITS; i++) {
            u64 from = (u64)words[2 * i + 1] << 32 | words[2 * i];
            u32 delta = words[2 * i + 2] - words[2 * i];
            wide |= words[2 * i + 3] ^ (u32)(add_signed(from, delta) >> 32);
            crossed[i] = delta ^ delta >> 1;
            mask |= crossed[i];
        }
        crossed[PLANE_BITS] = 0;
        return wide == 0;
    }

    static BUDDY_FN u32 size_bits(const u32 (&words)[32], const Params&) {
        u32 low[LANES], high[LANES], mask_low, mask_high;
        cross(words, low, high, mask_low, mask_high);
        return bits_of(ones_in(mask_low) + ones_in(mask_high));
    }

    // Transposes the XORed words into planes: word j holds plane j in its low half and plane 16 + j
    // in its high half, one bit higher if j is odd. The two planes of a pair are then adjacent,
    // which saves an instruction per pair.
    static BUDDY_FN void turn(u32 (&m)[LANES]) {
        exchange_all<8>(m);
        exchange_all<4>(m);
        exchange_all<2>(m);
        BUDDY_UNROLL
        for (u32 i = 0; i < LANES; i += 2) {
            u32 even = m[i], odd = m[i + 1] << 1;
            m[i] = choose_bits(0x55555555, even, odd), m[i + 1] = choose_bits(0x55555555, odd, even);
        }
    }

    // Returns nonzero if a thread of the warp has one of the GROUP planes from `top` down.
    static BUDDY_FN bool any_of(u32 needed, int top) { return needed << (31 - top) >> (32 - GROUP); }

    // Writes an entry's planes to its row. The mask gives each position. A pair comes with a zero
    // bit below it, so that it starts one bit after `origin` and `at`.
    template <class Row>
    struct Sink {
        Row& row;
        u32 pending, origin = HEADER_BITS - 1;

        BUDDY_FN Sink(Row& row, u32 mask_low, u32 mask_high, const u32 (&base)[32]) : row(row), pending(base[1]) {
            row.store_quad(0, {{mask_low, mask_high, base[0], base[1]}});
            row.clear(1);
        }

        // Appends planes 31 to 0 of one half; `needed` is the mask of planes that any thread of the
        // warp has.
        BUDDY_FN void put_half(const u32 (&planes)[LANES], u32 mask, u32 needed) {
            u32 at = origin;
            BUDDY_UNROLL
            for (int top = 31; top > 0; top -= GROUP) {
                if (!any_of(needed, top)) continue;
                BUDDY_UNROLL
                for (int j = top; j > top - GROUP; j -= 2) {
                    u32 pair = permute_bytes(planes[j % 16], planes[j % 16 - 1], j < 16 ? 0x5410 : 0x7632);
                    if ((mask & 1u << j) == 0) pair >>= PLANE_BITS;
                    u32 low = shift_add(pair, at, pending), high = funnel_left(pair, 0, at);
                    u32 next = origin + PLANE_BITS * ones_in(mask >> (j - 1)), full = (next ^ at) & 32;
                    row.store_if(full, at / 32 % WORDS, low);
                    pending = full ? high : low;
                    at = next;
                }
            }
            origin = at;
        }

        BUDDY_FN void finish() { row.store(origin / 32 % WORDS, pending); }
    };

    // Reads planes from a row: a window of two words, and the next word, loaded ahead. `origin` and
    // `at` are two words ahead, so that they give the index of that word.
    template <class Row>
    struct Source {
        const Row& row;
        u32 low, high, after, origin = HEADER_BITS + 2 * 32;

        BUDDY_FN explicit Source(const Row& row) : row(row) {
            Quad first = row.load_quad(HEADER_WORDS / 4);
            low = first.words[0], high = first.words[1], after = first.words[2];
        }

        // Takes planes 31 to 0 of one half; `above` is the plane above them, and afterwards the
        // lowest one.
        BUDDY_FN void take_half(u32 mask, u32 needed, u32& above, u32 (&planes)[LANES]) {
            u32 at = origin, taken[2 * LANES];
            BUDDY_UNROLL
            for (int top = 31; top > 0; top -= GROUP) {
                BUDDY_UNROLL
                for (int j = top; j > top - GROUP; j--) taken[j] = above;
                BUDDY_UNROLL
                for (int j = top; any_of(needed, top) && j > top - GROUP; j -= 2) {
                    taken[j] = above;
                    take_pair(mask & 1u << j, mask & 1u << (j - 1), funnel_right(low, high, at), taken[j], above);
                    taken[j - 1] = above;
                    u32 next = origin + PLANE_BITS * ones_in(mask >> (j - 1)), crossed = (next ^ at) & 32;
                    low = crossed ? high : low, high = crossed ? after : high;
                    after = row.load_if(crossed, next / 32 % WORDS, after);
                    at = next;
                }
                BUDDY_UNROLL
                for (int j = top; top < 16 && j > top - GROUP; j--) planes[j] = permute_bytes(taken[j], taken[j + 16], 0x5410);
            }
            origin = at;
        }
    };

    // XORs the planes in the window into those above them. Written as inline PTX: the compiler
    // makes twice as many instructions of the conditions.
    static BUDDY_FN void take_pair(u32 has_first, u32 has_second, u32 window, u32& first, u32& second) {
#ifdef __CUDA_ARCH__
        asm("{\n.reg .pred p, q;\n.reg .u32 w;\nsetp.ne.u32 p, %2, 0;\nsetp.ne.u32 q, %3, 0;\nmov.u32 w, %4;\n"
            "@p lop3.b32 %0, w, 0x7fff, %0, 0x78;\n@p shr.u32 w, w, 15;\nmov.u32 %1, %0;\n@q lop3.b32 %1, w, 0x7fff, %0, 0x78;\n}"
            : "+&r"(first), "=&r"(second)
            : "r"(has_first), "r"(has_second), "r"(window));
#else
        if (has_first) first ^= window & PLANE, window >>= PLANE_BITS;
        second = first;
        if (has_second) second ^= window & PLANE;
#endif
    }

    template <class Row>
    static BUDDY_FN u32 encode(u32 (&words)[32], Row& row, u32& layout, const Params&) {
        layout = 0;
        u32 low[LANES], mask;
        if (!cross_narrow(words, low, mask)) return encode_wide(words, row);
        u32 bits = bits_of(ones_in(mask));
        if (bits > STREAM_BITS) return bits;
        turn(low);
        Sink<Row> sink(row, mask & ~TOP, mask & TOP, words);
        sink.put_half(low, mask, warp_or(mask));
        sink.finish();
        return bits;
    }

    template <class Row>
    static BUDDY_FN u32 encode_wide(const u32 (&words)[32], Row& row) {
        u32 low[LANES], high[LANES], mask_low, mask_high;
        cross(words, low, high, mask_low, mask_high);
        u32 bits = bits_of(ones_in(mask_low) + ones_in(mask_high));
        if (bits > STREAM_BITS) return bits;
        Sink<Row> sink(row, mask_low, mask_high, words);
        turn(high);
        sink.put_half(high, mask_high, warp_or(mask_high));
        turn(low);
        sink.put_half(low, mask_low, warp_or(mask_low));
        sink.finish();
        return bits;
    }

    template <class Row>
    static BUDDY_FN u32 decode(const Row& row, u32 limit, u32 layout, u32 (&words)[32], const Params&) {
        Quad header = row.load_quad(0);
        u32 mask_low = header.words[0], mask_high = header.words[1];
        u64 word = (u64)header.words[3] << 32 | header.words[2];
        if (layout != 0 || bits_of(ones_in(mask_low) + ones_in(mask_high)) > limit) {
            fill_zeros(words);  // assigns on every path; otherwise old values would stay in registers
            return layout != 0 ? LAYOUT : TRUNCATED;
        }
        u32 low[LANES], above = 0;
        Source<Row> source(row);
        if (((mask_high & ~TOP) | (mask_low & TOP)) == 0) {
            u32 mask = mask_low | mask_high;
            source.take_half(mask, warp_or(mask), above, low);
            transpose_halves(low);
            BUDDY_UNROLL
            for (u32 i = 0; i < LANES; i++) {
                words[2 * i] = (u32)word, words[2 * i + 1] = (u32)(word >> 32);
                word = add_signed(word, low[i]);
            }
            return OK;
        }
        u32 high[LANES];
        source.take_half(mask_high, warp_or(mask_high), above, high);
        transpose_halves(high);
        source.take_half(mask_low, warp_or(mask_low), above, low);
        transpose_halves(low);
        BUDDY_UNROLL
        for (u32 i = 0; i < LANES; i++) {
            words[2 * i] = (u32)word, words[2 * i + 1] = (u32)(word >> 32);
            word += (u64)high[i] << 32 | low[i];
        }
        return OK;
    }
};

}  // namespace buddy
