// bf16 entries in layout B (docs/format.md) at 4/3x, eight lanes to an entry and sixteen bytes to a lane: registers alone, and nearly
// all entries of weights and activations. A warp takes its 32 entries four at a time; those in other layouts are left to the tile.
#pragma once
#include "bf16.cuh"
#include "map.cuh"

namespace buddy {

struct Eighth {
    static constexpr u32 NIBBLE = RAW + 1, DEVICE_BYTES = 3 * SECTOR, TIMES = 8, CODES = 64;  // where an entry's codes begin

    // Whether a lane's four words are in the window, have a sign, have an odd mantissa; and their codes.
    struct Look {
        bool outside, negative, odd;
        u32 codes;
    };

    static BUDDY_FN Look look(const uint4& v, u32 window) {
        u32 words[4] = {v.x, v.y, v.z, v.w}, outside = 0, any = v.x | v.y | v.z | v.w, codes = 0;
        BUDDY_UNROLL
        for (u32 k = 0; k < 4; k++) {
            // A half below the window borrows, and then has its high bits set.
            u32 code = (words[k] >> 7 & 0x00ff00ffu) - window * 0x00010001u;
            outside |= code, codes |= code << 4 * k;
        }
        return {(outside & 0xfff0fff0u) != 0, (any & 0x80008000u) != 0, (any & 0x00010001u) != 0, codes};
    }

    // Which lanes have an entry that an encoder would write in layout B. With a sign and an odd mantissa layout A takes more than
    // two sectors whatever the exponents are; entries without are rare, and left.
    static BUDDY_FN bool fits(const Look& look, u32 lane, u32 window) {
        u32 mine = 0xffu << (lane & 24);
        u32 outside = __ballot_sync(0xffffffffu, look.outside), negative = __ballot_sync(0xffffffffu, look.negative);
        u32 odd = __ballot_sync(0xffffffffu, look.odd);
        return window != 0 && (outside & mine) == 0 && (negative & mine) != 0 && (odd & mine) != 0;
    }

    // Of a ballot over lanes: a bit for each of the four entries.
    static BUDDY_FN u32 entries_of(u32 lanes) { return (lanes & 1) | (lanes >> 7 & 2) | (lanes >> 14 & 4) | (lanes >> 21 & 8); }

    // A lane's part of an entry, written to the entry's place.
    static BUDDY_FN void put(u8* place, u32 eighth, const uint4& v, u32 codes) {
        __stcs((uint2*)place + eighth, make_uint2(Bf16::narrow(v.x, v.y), Bf16::narrow(v.z, v.w)));
        __stcs((u32*)(place + CODES) + eighth, codes);
    }

    // The same read; `decode` makes values of it.
    struct Part {
        uint2 bytes;
        u32 codes;
    };
    static BUDDY_FN Part load(const u8* place, u32 eighth) {
        return {__ldcs((const uint2*)place + eighth), __ldcs((const u32*)(place + CODES) + eighth)};
    }
    static BUDDY_FN uint4 decode(const Part& part, u32 window) {
        u32 words[4];
        BUDDY_UNROLL
        for (u32 k = 0; k < 4; k++) {
            words[k] = Bf16::widen(k < 2 ? part.bytes.x : part.bytes.y, k % 2, Bf16::window_exponents(part.codes, k, window));
        }
        return make_uint4(words[0], words[1], words[2], words[3]);
    }
};

}  // namespace buddy
