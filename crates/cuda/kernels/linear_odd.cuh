// Entries from shared memory to the fragments of a warp: a tile of sixteen rows, two rows and a quarter of each entry to a lane.
#pragma once
#include "linear_plan.cuh"
#include "quarter.cuh"

namespace buddy {

BUDDY_FN u32 lds32(u32 at) {
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}

// An entry in shared memory.
struct Staged {
    u32 start;

    BUDDY_FN u32 at(u32 offset) const { return start + offset; }
    BUDDY_FN u32 load(u32 k) const { return lds32(start + 4 * k); }
};

// A quarter of an entry that is not in layout B. `tail` is where its last sector is in shared memory, or 0; `far` where it is else.
template <class Tail, class Far>
BUDDY_FN void load_odd(const Staged& staged, u32 quarter, u32 nibble, Tail tail, Far far, u32 (&out)[8]) {
    auto set = [&](uint4 a, uint4 b) {
        out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
    };
    if (nibble == RAW + 2) {
        uint4 m = lds128(staged.at(16 * quarter)), a = lds128(staged.at(64)), b = lds128(staged.at(80));
        const u32 bytes[4] = {m.x, m.y, m.z, m.w}, rest[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        Bf16::read_own_quarter(bytes, rest, quarter, out);
    } else if (nibble == RAW) {
        u32 near = quarter < 3 ? staged.at(32 * quarter) : tail();
        if (near != 0) {
            u32 next = quarter < 3 ? staged.at(32 * quarter + 16) : near + 16;
            set(lds128(near), lds128(next));
        } else {
            const uint4* from = (const uint4*)far();
            uint4 none = make_uint4(0, 0, 0, 0);
            set(from ? __ldg(from) : none, from ? __ldg(from + 1) : none);
        }
    } else {
        // One at a time, and each to its register: short code for what is rare.
        read_loose_quarter(staged, nibble, quarter, [&](u32 i, u32 pair) {
            BUDDY_UNROLL
            for (u32 k = 0; k < 8; k++) out[k] = i == k ? pair : out[k];
        });
    }
}

// Four bits of each nibble of a column that are zero for layout B.
BUDDY_FN uint2 odd_of(uint2 nibbles) {
    const u32 usual = (RAW + 1) * 0x11111111u;
    return make_uint2(nibbles.x ^ usual, nibbles.y ^ usual);
}

struct Lanes {
    static constexpr u32 BELOW = 8 * Weights::BYTES;
    const Weights& weights;
    u32 quarter, row;

    // The row of a lane: such that lanes of neighbouring rows read from different banks.
    static BUDDY_FN u32 row_of(u32 lane) {
        u32 row = lane / 4;
        return (row & 4) | (row & 1) << 1 | (row >> 1 & 1);
    }

    BUDDY_FN explicit Lanes(const Weights& weights) : weights(weights) {
        quarter = threadIdx.x % 4, row = row_of(threadIdx.x % WARP);
    }

    // A lane's quarters of an entry of two rows, in layout B.
    BUDDY_FN void load(u32 column, u32 (&upper)[8], u32 (&lower)[8]) const {
        u32 at = column + row * Weights::BYTES;
        auto one = [&](u32 below, u32 (&out)[8]) {
            uint4 v = lds128(at + 16 * quarter + below);
            uint2 w = lds64(at + 8 * quarter + 64 + below);
            const u32 bytes[4] = {v.x, v.y, v.z, v.w}, codes[2] = {w.x, w.y};
            Bf16::read_window_quarter(bytes, codes, weights.window, out);
        };
        one(0, upper), one(BELOW, lower);
    }

    // The same of those that are not; `odd` has four bits for each of eight rows, of upper and of lower ones. `first` is the
    // column's first entry in the matrix, `number` its number in the step; `tag` and `near` are where the last sector of one
    // entry may be, and whose.
    BUDDY_FN void load_others(u32 tag, u32 near, u32 number, u32 column, u64 first, uint2 odd, u32 (&upper)[8],
                              u32 (&lower)[8]) const {
        BUDDY_ROLLED
        for (u32 h = 0; h < 2; h++) {
            u32 word = h ? odd.y : odd.x;
            if (word == 0) continue;
            u32 bits = word >> 4 * row & 15, out[8] = {};
            if (bits) {
                u32 of = row + 8 * h;
                auto tail = [&]() -> u32 { return lds32(tag) == number * TILE_ROWS + of ? near : 0; };
                auto far = [&] { return weights.last_sector(first + of); };
                load_odd(Staged{column + of * Weights::BYTES}, quarter, bits ^ (RAW + 1), tail, far, out);
            }
            __syncwarp();
            BUDDY_UNROLL
            for (u32 k = 0; k < 8; k++) {
                upper[k] = bits && h == 0 ? out[k] : upper[k];
                lower[k] = bits && h == 1 ? out[k] : lower[k];
            }
        }
    }
};

// A sum to its place in y, if it has one.
BUDDY_FN void put_sum(const Linear& linear, u32 output, u32 token, float value) {
    if (output >= linear.outputs || token >= linear.tokens) return;
    if (linear.bias) value += __uint_as_float((u32)__ldg((const unsigned short*)linear.bias + output) << 16);
    u64 at = (u64)token * linear.outputs + output;
    if (linear.wide) {
        ((float*)linear.y)[at] = value;
    } else {
        unsigned short narrow;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow) : "f"(value));
        ((unsigned short*)linear.y)[at] = narrow;
    }
}

}  // namespace buddy
