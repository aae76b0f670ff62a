// bf16 values (docs/reference/format.md, "Floats"; the Rust twin is
// crates/codec/src/float/bf16.rs). Layout B, relative to the allocation's window of exponents, is
// straight-line code over pairs of values; layouts A and C handle the other entries.
#pragma once
#include "sparse.cuh"

namespace buddy {

struct Bf16 {
    typedef Sparse<8, 7> Loose;
    static constexpr u32 WINDOW = 16, WINDOW_BITS = 768, ESCAPE = 7, ESCAPES = 7;
    static constexpr u32 EXPONENTS = 0x7f807f80u;
    // Words of a stream in layouts B and C: signs and mantissas, then codes.
    static constexpr u32 CODES = 16, BASE_BYTE = 88;

    static BUDDY_FN bool is_zero(const u32 (&words)[32], u32) { return all_zero(words); }

    // The chosen layout, and the values that decide it.
    struct Choice {
        u32 layout, bits, high;
        Loose::Shape shape;
    };

    // Chooses a layout; a size alone does not need the shape.
    template <bool SHAPED>
    static BUDDY_FN Choice choose(const u32 (&words)[32], u32 window) {
        u32 any = 0, low = EXPONENTS, high = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < WORDS; i++) {
            u32 exponent = words[i] & EXPONENTS;
            any |= words[i];
            low = min_halves(low, exponent);
            high = max_halves(high, exponent);
        }
        any = (any | any >> 16) & 0xffff;
        low = (min_halves(low, low >> 16) & 0xffff) >> 7;
        high = (max_halves(high, high >> 16) & 0xffff) >> 7;
        // An exponent of zero is required for a zero value.
        Loose::Shape shape = {0xffffffffu, 0xffffffffu, 0, 0, 0, 0};
        Choice choice = {0, 0, high, Loose::measure(shape, Loose::COUNT, any, low, high)};
        if (SHAPED && low == 0) choice.shape = Loose::look(words);
        choice.bits = SHAPED || low != 0 ? choice.shape.bits() : Loose::size_bits(words);
        if (choice.bits <= 2 * BUDDY_SECTOR_BYTES * 8) return choice;
        if (low >= window && high < window + WINDOW) {
            choice.layout = 1, choice.bits = WINDOW_BITS;
            return choice;
        }
        u32 escapes = 0;
        BUDDY_UNROLL
        for (u32 i = 0; i < WORDS; i++) escapes += escape_flags(words[i], high);
        escapes = (escapes & 0xffff) + (escapes >> 16);
        if (escapes <= ESCAPES) choice.layout = 2, choice.bits = 8 * (BASE_BYTE + 1 + escapes);
        return choice;
    }

    // Returns the distances of two values' exponents below `high`.
    static BUDDY_FN u32 distances(u32 word, u32 high) { return high * 0x00010001u - (word >> 7 & 0x00ff00ffu); }

    // Returns a one in each half whose value needs an escape.
    static BUDDY_FN u32 escape_flags(u32 word, u32 high) {
        return (distances(word, high) + (0x8000 - ESCAPE) * 0x00010001u) >> 15 & 0x00010001u;
    }

    static BUDDY_FN u32 size_bits(const u32 (&words)[32], const Params& params) {
        return choose<false>(words, params.window).bits;
    }

    // Packs signs and mantissas of four values, a byte each.
    static BUDDY_FN u32 narrow(u32 first, u32 second) {
        return choose_bits(0x7f7f7f7fu, permute_bytes(first, second, 0x6420), permute_bytes(first, second, 0x7531));
    }

    // Rebuilds two values from bytes 2k and 2k + 1 of `bytes`, their signs and mantissas, and
    // `exponents`, already in position.
    static BUDDY_FN u32 widen(u32 bytes, u32 k, u32 exponents) {
        return choose_bits(0x807f807fu, permute_bytes(bytes, 0, k == 0 ? 0x1100 : 0x3322), exponents);
    }

    template <class Row>
    static BUDDY_FN void write_window(const u32 (&words)[32], u32 window, Row& row) {
        BUDDY_UNROLL
        for (u32 half = 0; half < 2; half++) {
            Quad codes;
            BUDDY_UNROLL
            for (u32 i = 0; i < 4; i++) {
                u32 sum = 0;
                BUDDY_UNROLL
                for (u32 k = 0; k < 4; k++) sum += (words[16 * half + 4 * i + k] >> 7 & 0x00ff00ffu) << 4 * k;
                codes.words[i] = sum - window * 0x11111111u;
            }
            row.store_quad(CODES / 4 + half, codes);
        }
    }

    // Appends layout C's three code planes, the base and the escapes.
    template <class Row>
    static BUDDY_FN void write_own(const u32 (&words)[32], u32 high, Row& row) {
        u32 planes[6] = {};
        u64 tail = high;
        u32 at = 8;
        BUDDY_UNROLL
        for (u32 i = 0; i < WORDS; i++) {
            u32 escape = escape_flags(words[i], high);
            u32 codes = distances(words[i], high) | escape * ESCAPE;
            BUDDY_UNROLL
            for (u32 bit = 0; bit < 3; bit++) {
                u32 two = codes >> bit & 0x00010001u;
                planes[2 * bit + i / 16] |= (two | two >> 15) << 2 * (i % 16) & 3u << 2 * (i % 16);
            }
            if (escape & 1) tail |= (u64)(words[i] >> 7 & 0xff) << at, at += 8;
            if (escape >> 16) tail |= (u64)(words[i] >> 23 & 0xff) << at, at += 8;
        }
        BUDDY_UNROLL
        for (u32 i = 0; i < 6; i++) row.store(CODES + i, planes[i]);
        row.store(BASE_BYTE / 4, (u32)tail);
        row.store(BASE_BYTE / 4 + 1, (u32)(tail >> 32));
    }

    template <class Row>
    static BUDDY_FN u32 encode(u32 (&words)[32], Row& row, u32& layout, const Params& params) {
        Choice choice = choose<true>(words, params.window);
        layout = choice.layout;
        if (choice.bits > STREAM_BITS) return choice.bits;
        forget(words);
        if (layout == 0) {
            row.clear();
            Loose::write(words, choice.shape, row);
            return choice.bits;
        }
        if (layout == 1) write_window(words, params.window, row);
        if (layout == 2) write_own(words, choice.high, row);
        BUDDY_UNROLL
        for (u32 c = 0; c < CODES / 4; c++) {
            Quad bytes;
            BUDDY_UNROLL
            for (u32 i = 0; i < 4; i++) bytes.words[i] = narrow(words[8 * c + 2 * i], words[8 * c + 2 * i + 1]);
            row.store_quad(c, bytes);
        }
        return choice.bits;
    }

    // Returns the exponents of a pair of values, in position, from codes 4k and 4k + 16 of a word.
    // One mask serves two pairs: the other pair's codes land on signs and mantissas, which `widen`
    // overwrites.
    static BUDDY_FN u32 window_exponents(u32 codes, u32 k, u32 window) {
        u32 two = keep(codes & (k % 2 == 0 ? 0x0f0f0f0fu : 0xf0f0f0f0u)), base = window * 0x00800080u;
        return k == 0 ? two * 128 + base : k == 1 ? two * 8 + base : k == 2 ? (two >> 1) + base : (two >> 5) + base;
    }

    template <class Row>
    static BUDDY_FN u32 read_window(const Row& row, u32 window, u32 (&words)[32]) {
        BUDDY_UNROLL
        for (u32 half = 0; half < 2; half++) {
            Quad codes = row.load_quad(CODES / 4 + half);
            BUDDY_UNROLL
            for (u32 c = 2 * half; c < 2 * half + 2; c++) {
                Quad bytes = row.load_quad(c);
                BUDDY_UNROLL
                for (u32 i = 0; i < 8; i++) {
                    u32 exponents = window_exponents(codes.words[c % 2 * 2 + i / 4], i % 4, window);
                    words[8 * c + i] = widen(bytes.words[i / 2], i % 2, exponents);
                }
            }
        }
        return OK;
    }

    template <class Row>
    static BUDDY_FN u32 read_own(const Row& row, u32 limit, u32 (&words)[32]) {
        u32 planes[6];
        BUDDY_UNROLL
        for (u32 i = 0; i < 6; i++) planes[i] = row.load(CODES + i);
        u32 low = planes[0] & planes[2] & planes[4], high = planes[1] & planes[3] & planes[5];
        u32 escapes = ones_in(low) + ones_in(high);
        if (escapes > ESCAPES) return limit < 8 * (BASE_BYTE + 1) ? TRUNCATED : INVALID;
        if (8 * (BASE_BYTE + 1 + escapes) > limit) return TRUNCATED;
        u64 tail = (u64)row.load(BASE_BYTE / 4 + 1) << 32 | row.load(BASE_BYTE / 4);
        u32 base = (u32)tail & 0xff;
        BUDDY_UNROLL
        for (u32 i = 0; i < WORDS; i++) {
            u32 exponents[2];
            BUDDY_UNROLL
            for (u32 k = 0; k < 2; k++) {
                u32 at = 2 * (i % 16) + k, half = i / 16;
                u32 code = (planes[half] >> at & 1) | (planes[2 + half] >> at & 1) << 1 | (planes[4 + half] >> at & 1) << 2;
                exponents[k] = (base - code) & 0xff;
                if (code == ESCAPE) tail >>= 8, exponents[k] = (u32)tail & 0xff;
            }
            words[i] = widen(row.load(i / 2), i % 2, exponents[0] << 7 | exponents[1] << 23);
        }
        return OK;
    }

    // Decodes a quarter of an entry, 16 values in eight words, for kernels with four lanes per
    // entry. `bytes` are the quarter's signs and mantissas, from word 4 * quarter of the stream.
    // Layout B; `codes` starts at word 16 + 2 * quarter:
    static BUDDY_FN void read_window_quarter(const u32 (&bytes)[4], const u32 (&codes)[2], u32 window, u32 (&out)[8]) {
        BUDDY_UNROLL
        for (u32 i = 0; i < 8; i++) out[i] = widen(bytes[i / 2], i % 2, window_exponents(codes[i / 4], i % 4, window));
    }

    // Shifts left, or right if `by` is negative.
    static BUDDY_FN u32 move_left(u32 word, int by) { return by < 0 ? word >> -by : word << by; }

    // Decodes a quarter in layout C; `rest` is words 16 to 23. Invalid streams give arbitrary
    // values.
    static BUDDY_FN void read_own_quarter(const u32 (&bytes)[4], const u32 (&rest)[8], u32 quarter, u32 (&out)[8]) {
        u32 half = quarter / 2, shift = quarter % 2 * 16;
        u32 low = rest[0] & rest[2] & rest[4], high = rest[1] & rest[3] & rest[5];
        u32 before = half == 0 ? 0 : ones_in(low);
        before += shift == 0 ? 0 : ones_in((half == 0 ? low : high) & 0xffff);
        // Bit 2i of a plane forms a pair with bit 2i + 16; the gaps of one plane hold another.
        u32 planes[3], pairs[3];
        BUDDY_UNROLL
        for (u32 bit = 0; bit < 3; bit++) {
            planes[bit] = (half == 0 ? rest[2 * bit] : rest[2 * bit + 1]) >> shift;
            pairs[bit] = (planes[bit] & 0x5555) | (planes[bit] & 0xaaaa) << 15;
        }
        u32 two = pairs[0] | pairs[1] << 1, third = pairs[2];
        u64 tail = ((u64)rest[7] << 32 | rest[6]) >> 8 * (before & 7);
        // One bit wider than exponents, so that none borrows from its neighbour; the extra bit
        // lands on a sign.
        u32 base = (0x100 | (rest[6] & 0xff)) * 0x00800080u, escaped = planes[0] & planes[1] & planes[2] & 0xffff;
        BUDDY_UNROLL
        for (u32 i = 0; i < 8; i++) {
            u32 codes = (move_left(two, 7 - 2 * (int)i) & 0x01800180u) | (move_left(third, 9 - 2 * (int)i) & 0x02000200u);
            out[i] = widen(bytes[i / 2], i % 2, base - codes);
        }
        for (; escaped != 0; escaped &= escaped - 1) {
            u32 at = trailing_zeros(escaped), place = at % 2 == 0 ? 0x00007f80u : 0x7f800000u;
            tail >>= 8;
            BUDDY_UNROLL
            for (u32 i = 0; i < 8; i++) out[i] = choose_bits(at / 2 == i ? place : 0, ((u32)tail & 0xff) * 0x00800080u, out[i]);
        }
    }

    template <class Row>
    static BUDDY_FN u32 decode(const Row& row, u32 limit, u32 layout, u32 (&words)[32], const Params& params) {
        if (layout == 0) return Loose::read(row, limit, words);
        if (layout == 1) return limit < WINDOW_BITS ? (u32)TRUNCATED : read_window(row, params.window, words);
        return read_own(row, limit, words);
    }
};

}  // namespace buddy
