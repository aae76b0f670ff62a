// Entries from shared memory to the fragments of a warp: a tile of sixteen rows, two rows and a quarter of each entry to a lane.
#pragma once
#include "linear_plan.cuh"
#include "quarter.cuh"

namespace buddy {

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

// Which entries of a step have slots: the first few that are not in layout B. By the warp that has their nibbles, so that all is said
// before weights come.
template <class S>
struct TakeSlots {
    const Room<S>& room;
    u32 lane;

    // Gives slots to the odd entries of this lane's column, from `next` on, and says so in its map.
    BUDDY_FN u32 take(u32 place, u32 column, u32 word, u32 half, u32& next) const {
        u32 map = 0;
        for (u32 odd = (word | word >> 1 | word >> 2 | word >> 3) & 0x11111111u; odd != 0; odd &= odd - 1, next++) {
            u32 at = trailing_zeros(odd);
            map |= (next < SLOTS ? next + 1 : 15) << at;
            if (next < SLOTS) sts32(room.owner(place, next), column * TILE_ROWS + half * 8 + at / 4);
        }
        return map;
    }
    BUDDY_FN static u32 count(uint2 odd) {
        auto one = [](u32 word) { return ones_in((word | word >> 1 | word >> 2 | word >> 3) & 0x11111111u); };
        return one(odd.x) + one(odd.y);
    }
    // The maps of a step whose nibbles these are, a column of each WARP to a lane.
    template <u32 EACH>
    BUDDY_FN void all(u32 place, const uint2 (&nibbles)[EACH]) const {
        u32 taken = 0;
        if (lane < SLOTS) sts32(room.owner(place, lane), NOBODY);
        __syncwarp();
        BUDDY_UNROLL
        for (u32 k = 0; k < EACH; k++) {
            u32 column = k * WARP + lane;
            uint2 odd = odd_of(nibbles[k]), map = make_uint2(0, 0);
            if (__any_sync(ALL, (odd.x | odd.y) != 0)) {
                u32 mine = count(odd), sum = mine;
                for (u32 step = 1; step < WARP; step *= 2) {
                    u32 other = __shfl_up_sync(ALL, sum, step);
                    sum += lane >= step ? other : 0;
                }
                u32 next = taken + sum - mine;
                map.x = take(place, column, odd.x, 0, next), map.y = take(place, column, odd.y, 1, next);
                taken += __shfl_sync(ALL, sum, WARP - 1);
            }
            if (column < S::COLUMNS) sts64(room.map(place, column), map);
        }
    }
};

// Fills the slots of all steps, by one warp, four lanes to each. Warps that multiply go in step with three others: what one of them
// decoded by itself, all would wait for.
template <class S>
struct FillSlots {
    const Linear& linear;
    const Line<S>& line;
    const Room<S>& room;
    u32 lane;

    // A quarter of the entry of a slot.
    BUDDY_FN void fill(u32 place, const Step<S>& step, u32 slot, u32 owner) const {
        u32 column = owner / TILE_ROWS, row = owner % TILE_ROWS, quarter = lane % 4, out[8] = {};
        u32 tile = column / S::ENTRIES, e = column % S::ENTRIES, word = lds32(room.nibbles(place, column) + row / 8 * 4);
        auto tail = [&]() -> u32 { return lds32(room.tag(place, column % WARP)) == owner ? room.near(place, column % WARP) : 0; };
        auto far = [&] {
            u64 at = (u64)(step.row_tile(line) + tile) * line.per_row + step.at * S::ENTRIES + e;
            return linear.weights.last_sector(at * TILE_ROWS + row);
        };
        load_odd(Staged{room.column(place, tile, e) + row * Weights::BYTES}, quarter, word >> row % 8 * 4 & 15, tail, far, out);
        u32 to = room.slots(place) + slot * ENTRY + quarter * (ENTRY / 4);
        sts128(to, make_uint4(out[0], out[1], out[2], out[3])), sts128(to + CHUNK, make_uint4(out[4], out[5], out[6], out[7]));
    }
    BUDDY_FN void all() const {
        u32 begin = line.begin(), end = line.end(), slot = lane / 4;
        Step<S> step(line, begin);
        Turn<S::STAGES> turn;
#pragma unroll 1
        for (u32 i = begin; i < end; i++, step.next(line), turn.next()) {
            room.come(turn.place).wait(turn.round);
            u32 owner = lds32(room.owner(turn.place, slot));
            if (owner != NOBODY) fill(turn.place, step, slot, owner);
            room.full(turn.place).arrive();
        }
    }
};

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

#if BUDDY_LINEAR_PLAIN
    // A quarter's two halves lie 64 bytes apart, the second first in every other two rows: lanes then read from different banks.
    struct Stored {
        uint4 first[2], second[2];
    };
    BUDDY_FN Stored fetch(u32 column) const {
        u32 at = column + row * Weights::BYTES + 16 * quarter, swap = row / 2 % 2 * 64;
        u32 first = at + swap, second = at + (64 - swap);
        return {{lds128(first), lds128(first + BELOW)}, {lds128(second), lds128(second + BELOW)}};
    }
    BUDDY_FN void decode(const Stored& stored, u32 (&upper)[8], u32 (&lower)[8]) const {
        auto one = [](uint4 v, uint4 w, u32 (&out)[8]) {
            out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w, out[4] = w.x, out[5] = w.y, out[6] = w.z, out[7] = w.w;
        };
        one(stored.first[0], stored.second[0], upper), one(stored.first[1], stored.second[1], lower);
    }
#else
    // A lane's quarters of an entry of two rows, as they are stored in layout B.
    struct Stored {
        uint4 bytes[2];
        uint2 codes[2];
    };
    BUDDY_FN Stored fetch(u32 column) const {
        u32 at = column + row * Weights::BYTES, bytes = at + 16 * quarter, codes = at + 8 * quarter + 64;
        return {{lds128(bytes), lds128(bytes + BELOW)}, {lds64(codes), lds64(codes + BELOW)}};
    }
    BUDDY_FN void decode(const Stored& stored, u32 (&upper)[8], u32 (&lower)[8]) const {
        auto one = [&](uint4 v, uint2 w, u32 (&out)[8]) {
            const u32 bytes[4] = {v.x, v.y, v.z, v.w}, codes[2] = {w.x, w.y};
            Bf16::read_window_quarter(bytes, codes, weights.window, out);
        };
        one(stored.bytes[0], stored.codes[0], upper), one(stored.bytes[1], stored.codes[1], lower);
    }
#endif
    BUDDY_FN void load(u32 column, u32 (&upper)[8], u32 (&lower)[8]) const { decode(fetch(column), upper, lower); }

    // The same of those in slots, as their column's map says.
    BUDDY_FN void load_slots(u32 slots, uint2 map, u32 (&upper)[8], u32 (&lower)[8]) const {
        auto one = [&](u32 word, u32 (&out)[8]) {
            u32 slot = word >> 4 * row & 15;
            if (slot == 0 || slot > SLOTS) return;
            u32 at = slots + (slot - 1) * ENTRY + quarter * (ENTRY / 4);
            uint4 v = lds128(at), w = lds128(at + CHUNK);
            out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w, out[4] = w.x, out[5] = w.y, out[6] = w.z, out[7] = w.w;
        };
        one(map.x, upper), one(map.y, lower);
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

// A value to its place in y.
BUDDY_FN void put_value(const Linear& linear, u64 at, float value) {
    if (linear.output == Linear::FP32) {
        ((float*)linear.y)[at] = value;
    } else {
        ((unsigned short*)linear.y)[at] = narrow_bf16(value);
    }
}

BUDDY_FN float bias_of(const Linear& linear, u32 row) {
    return linear.bias && row < linear.outputs ? from_bf16(__ldg((const unsigned short*)linear.bias + row)) : 0.0f;
}

// The sums of a row and of the eighth below to their places in y, if they have any.
BUDDY_FN void put_sums(const Linear& linear, u32 row, u32 token, float upper, float lower) {
    if (token >= linear.tokens) return;
    upper += bias_of(linear, row), lower += bias_of(linear, row + 8);
    u64 at = (u64)token * linear.outputs;
    if (linear.output == Linear::GATED) {
        if (row < linear.outputs) put_value(linear, at / 2 + row / TILE_ROWS * 8 + row % 8, gated(upper, lower));
        return;
    }
    if (row < linear.outputs) put_value(linear, at + row, upper);
    if (row + 8 < linear.outputs) put_value(linear, at + row + 8, lower);
}

}  // namespace buddy
