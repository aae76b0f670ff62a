// A tight matrix in global memory (docs/reference/format.md, "Tight matrices"): its extra words and
// exceptions, and a lane's values of a column. Safe for any bytes: words that are not there are 0.
#pragma once
#include "tight.cuh"

namespace buddy {

struct TightView {
    const u8* columns;
    const u8* flags;
    const u8* words;
    const u32* index;
    const u8* rows;
    u32 count;  // extra words
    u32 per_row;

    BUDDY_FN u32 word(u32 at) const { return at < count ? __ldg((const unsigned short*)words + at) : 0; }
    BUDDY_FN uint2 flags_of(u32 tile, u32 k) const { return __ldg((const uint2*)flags + (u64)tile * per_row + k); }
    static BUDDY_FN u32 ones(uint2 flags) { return ones_in(flags.x) + ones_in(flags.y); }
    // The row bytes of a lane's two rows.
    BUDDY_FN u32 row_bytes(u32 tile, u32 lane) const { return __ldg((const unsigned short*)rows + tile * (Tight::ROWS / 2) + lane / 4); }

    // The high bytes of a lane, with extra words and exceptions.
    BUDDY_FN void high_bytes(u32 tile, u32 k, u32 lane, const u32 (&codes)[2], u32 signs, u32 lowest, u32 (&high)[8]) const {
        uint2 own = flags_of(tile, k), other = (k ^ 1) < per_row ? flags_of(tile, k ^ 1) : make_uint2(0, 0);
        const u32* pair = index + (u64)tile * ((per_row + 1) / 2) + k / 2;
        u32 begin = __ldg(pair), end = min(__ldg(pair + 1), count), mine = 1u << lane, before = mine - 1;
        u32 first = begin + (k % 2 ? ones(other) : 0);
        u32 upper = own.x & mine ? word(first + ones_in(own.x & before)) : 0;
        u32 lower = own.y & mine ? word(first + ones_in(own.x) + ones_in(own.y & before)) : 0;
        Tight::high_bytes(codes, signs, upper | lower << 16, lowest, high);
        // At most one exception for each value of the pair.
        u32 at = begin + ones(own) + ones(other);
        BUDDY_ROLLED
        for (u32 i = 0; i < 2048 && at + 1 < end && at >= begin; i++, at += 2) Tight::patch(word(at) | word(at + 1) << 16, lane, k % 2, high);
    }

    // A lane's pairs of values of a column, of its upper row and of its lower one.
    BUDDY_FN void load(u32 tile, u32 k, u32 lane, u32 (&upper)[8], u32 (&lower)[8]) const {
        const u8* column = columns + ((u64)tile * per_row + k) * Tight::COLUMN;
        uint4 a = __ldcs((const uint4*)column + lane), b = __ldcs((const uint4*)(column + Tight::CODES / 2) + lane);
        uint2 c = __ldcs((const uint2*)(column + Tight::CODES) + lane);
        const u32 up[4] = {a.x, a.y, a.z, a.w}, low[4] = {b.x, b.y, b.z, b.w}, codes[2] = {c.x, c.y};
        u32 two = row_bytes(tile, lane), high[8];
        high_bytes(tile, k, lane, codes, __ldcs((const u32*)(column + Tight::SIGNS) + lane), Tight::lowest(two), high);
        u32 raised_upper = two & Tight::RAISED, raised_lower = two >> 8 & Tight::RAISED;
        BUDDY_UNROLL
        for (u32 i = 0; i < 8; i++) {
            upper[i] = Tight::as_plain(Tight::upper_pair(up[i / 2], i, high[i]), raised_upper);
            lower[i] = Tight::as_plain(Tight::lower_pair(low[i / 2], i, high[i]), raised_lower);
        }
    }
};

}  // namespace buddy
