// The tight layout of a bf16 matrix (docs/reference/format.md, "Tight matrices"; the Rust twin is
// crates/codec/src/tight): 11 bits for every value, and two bytes for each sixteen whose exponents
// need them. Decodes what one lane has of a column: sixteen values of each of two rows. Plain C++,
// so that a machine without a GPU proves it.
#pragma once
#include "bits.cuh"

namespace buddy {

struct Tight {
    // Bytes of a column without its extra words, and where its codes and signs begin.
    static constexpr u32 COLUMN = 1408, CODES = 1024, SIGNS = 1280;
    // Shared memory for the extra words of a column: all of its groups have one.
    static constexpr u32 RESERVE = 128;
    // Bytes of a tile's row bytes.
    static constexpr u32 ROWS = 16;
    // The row byte of a row whose exponents are stored one higher, and the most of the other bits.
    static constexpr u32 RAISED = 0x80, MOST_LOWEST = 120;
    static constexpr u32 HIGH = 0x87878787u;

    static BUDDY_FN u32 rotate_left(u32 word, u32 by) { return funnel_left(word, word, by); }

    // The row byte of two rows, twice each: what `high_bytes` adds.
    static BUDDY_FN u32 lowest(u32 two) { return permute_bytes(two & 0x7f7f, 0, 0x1100); }

    // The high bytes of a lane's pairs of values: bytes 0 and 1 of `out[i]` are of pair i of the
    // upper row, bytes 2 and 3 of the lower one.
    static BUDDY_FN void high_bytes(const u32 (&codes)[2], u32 signs, u32 extra, u32 lowest, u32 (&out)[8]) {
        BUDDY_UNROLL
        for (u32 k = 0; k < 2; k++) {
            u32 c = codes[k], x = k == 0 ? extra : extra >> 1, s = k == 0 ? signs : signs << 1;
            // Even bits: the third bits of the codes; odd bits: signs.
            u32 both = choose_bits(0x55555555u, ~(x ^ (c & c >> 1)), s);
            // Bits 0 to 2 of a byte and its bit 7 are the code and the sign of one pair; after a
            // rotation by 4, of another.
            u32 first = choose_bits(0x33333333u, c, rotate_left(both, 2)), second = choose_bits(0x33333333u, c >> 2, both);
            out[4 * k] = (first & HIGH) + lowest, out[4 * k + 1] = (second & HIGH) + lowest;
            out[4 * k + 2] = (rotate_left(first, 28) & HIGH) + lowest, out[4 * k + 3] = (rotate_left(second, 28) & HIGH) + lowest;
        }
    }

    // Pair i of the upper and of the lower row, from the low bytes and the high ones.
    static BUDDY_FN u32 upper_pair(u32 low, u32 i, u32 high) { return permute_bytes(low, high, i % 2 == 0 ? 0x5140 : 0x5342); }
    static BUDDY_FN u32 lower_pair(u32 low, u32 i, u32 high) { return permute_bytes(low, high, i % 2 == 0 ? 0x7160 : 0x7362); }

    // A pair of a row that may be raised (`raised` is not 0), as it was.
    static BUDDY_FN u32 as_plain(u32 pair, u32 raised) {
        u32 by = raised != 0 ? 0x80 : 0;
        return ((pair - by) & 0xffff) | ((pair >> 16) - by) << 16;
    }

    // Replaces the high byte that an exception names, if it is this lane's; `odd` is 1 in the
    // second column of a pair.
    static BUDDY_FN void patch(u32 exception, u32 lane, u32 odd, u32 (&high)[8]) {
        if ((exception >> 13 & 63) != (odd << 5 | lane)) return;
        u32 byte = exception >> 8 & 3, pair = exception >> 10 & 7, selector = 0x3210 + ((4 - byte) << 4 * byte);
        BUDDY_UNROLL
        for (u32 i = 0; i < 8; i++) high[i] = i == pair ? permute_bytes(high[i], exception, selector) : high[i];
    }

    // The place of a row's byte among a tile's: rows r and r + 8 side by side, in the order of lanes.
    static BUDDY_FN u32 row_byte(u32 row) { return 2 * ((row & 4) | (row & 1) << 1 | (row >> 1 & 1)) + row / 8; }
};

}  // namespace buddy
