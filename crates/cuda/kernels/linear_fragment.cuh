// Decodes packed entries from shared memory into a warp's mma fragments: a tile of sixteen rows,
// two rows and a quarter of each entry per lane. Entries in layout B (docs/reference/format.md)
// take the fast path; all others are called irregular.
#pragma once
#include "linear_pipeline.cuh"
#include "linear_tight.cuh"
#include "quarter.cuh"

namespace buddy {

// A packed entry in shared memory.
struct StagedEntry {
    u32 start;

    BUDDY_FN u32 at(u32 offset) const { return start + offset; }
    BUDDY_FN u32 load(u32 k) const { return lds32(start + 4 * k); }
};

// Decodes a quarter of an irregular entry. `tail` returns the shared address of its last sector, or
// 0 if that was not prefetched; `overflow` then returns its global address.
template <class Tail, class Overflow>
BUDDY_FN void load_irregular(const StagedEntry& staged, u32 quarter, u32 nibble, Tail tail, Overflow overflow, u32 (&out)[8]) {
    auto set = [&](uint4 a, uint4 b) {
        out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
    };
    if (nibble == RAW + 2) {
        uint4 m = lds128(staged.at(16 * quarter)), a = lds128(staged.at(64)), b = lds128(staged.at(80));
        const u32 bytes[4] = {m.x, m.y, m.z, m.w}, rest[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        Bf16::read_own_quarter(bytes, rest, quarter, out);
    } else if (nibble == RAW) {
        u32 at = quarter < 3 ? staged.at(32 * quarter) : tail();
        if (at != 0) {
            u32 next = quarter < 3 ? staged.at(32 * quarter + 16) : at + 16;
            set(lds128(at), lds128(next));
        } else {
            const uint4* from = (const uint4*)overflow();
            uint4 none = make_uint4(0, 0, 0, 0);
            set(from ? __ldg(from) : none, from ? __ldg(from + 1) : none);
        }
    } else {
        // One pair at a time: short code for a rare case.
        read_loose_quarter(staged, nibble, quarter, [&](u32 i, u32 pair) {
            BUDDY_UNROLL
            for (u32 k = 0; k < 8; k++) out[k] = i == k ? pair : out[k];
        });
    }
}

// Returns a column's nibbles XOR layout B's: nonzero where an entry is irregular.
BUDDY_FN uint2 irregular_mask(uint2 nibbles) {
    const u32 usual = (RAW + 1) * 0x11111111u;
    return make_uint2(nibbles.x ^ usual, nibbles.y ^ usual);
}

// Gives the first `SLOTS` irregular entries of a k-block a slot each. Run by the nibble producer,
// before the weights arrive.
template <class S>
struct SlotAllocator {
    const SharedStorage<S>& smem;
    u32 lane;

    // Gives slots, from `next` on, to the irregular entries of half a column; returns its slot map.
    BUDDY_FN u32 allocate(u32 stage, u32 column, u32 word, u32 half, u32& next) const {
        u32 map = 0;
        for (u32 irregular = (word | word >> 1 | word >> 2 | word >> 3) & 0x11111111u; irregular != 0; irregular &= irregular - 1, next++) {
            u32 at = trailing_zeros(irregular);
            map |= (next < SLOTS ? next + 1 : 15) << at;
            if (next < SLOTS) sts32(smem.slot_owner(stage, next), column * TILE_ROWS + half * 8 + at / 4);
        }
        return map;
    }
    BUDDY_FN static u32 count(uint2 irregular) {
        auto one = [](u32 word) { return ones_in((word | word >> 1 | word >> 2 | word >> 3) & 0x11111111u); };
        return one(irregular.x) + one(irregular.y);
    }
    // Writes the slot maps of a k-block; lane l has columns l, l + WARP, ...
    template <u32 EACH>
    BUDDY_FN void allocate(u32 stage, const uint2 (&nibbles)[EACH]) const {
        u32 taken = 0;
        if (lane < SLOTS) sts32(smem.slot_owner(stage, lane), NO_OWNER);
        __syncwarp();
        BUDDY_UNROLL
        for (u32 k = 0; k < EACH; k++) {
            u32 column = k * WARP + lane;
            uint2 irregular = irregular_mask(nibbles[k]), map = make_uint2(0, 0);
            if (__any_sync(ALL, (irregular.x | irregular.y) != 0)) {
                u32 mine = count(irregular), sum = mine;
                for (u32 step = 1; step < WARP; step *= 2) {
                    u32 other = __shfl_up_sync(ALL, sum, step);
                    sum += lane >= step ? other : 0;
                }
                u32 next = taken + sum - mine;
                map.x = allocate(stage, column, irregular.x, 0, next), map.y = allocate(stage, column, irregular.y, 1, next);
                taken += __shfl_sync(ALL, sum, WARP - 1);
            }
            if (column < S::COLUMNS) sts64(smem.slot_map(stage, column), map);
        }
    }
};

// Decodes the slots of all k-blocks, with one warp, four lanes per slot. The warps of a consumer
// warpgroup run in lockstep at each wgmma: an entry that one of them decoded alone would stall all
// four.
template <class S>
struct SlotDecoder {
    const Linear& linear;
    const TileScheduler<S>& scheduler;
    const SharedStorage<S>& smem;
    u32 lane;

    // Decodes a lane's quarter of a slot's entry.
    BUDDY_FN void decode(u32 stage, const KBlock<S>& k_block, u32 slot, u32 owner) const {
        u32 column = owner / TILE_ROWS, row = owner % TILE_ROWS, quarter = lane % 4, out[8] = {};
        u32 tile = column / S::ENTRIES, e = column % S::ENTRIES, word = lds32(smem.nibbles(stage, column) + row / 8 * 4);
        auto tail = [&]() -> u32 { return lds32(smem.tail_owner(stage, column % WARP)) == owner ? smem.tail(stage, column % WARP) : 0; };
        auto overflow = [&] {
            u64 at = (u64)(k_block.row_tile(scheduler) + tile) * scheduler.per_row + k_block.k * S::ENTRIES + e;
            return linear.weights.last_sector(at * TILE_ROWS + row);
        };
        load_irregular(StagedEntry{smem.column(stage, tile, e) + row * PackedMatrixView::ENTRY_BYTES}, quarter, word >> row % 8 * 4 & 15, tail, overflow, out);
        u32 to = smem.slots(stage) + slot * ENTRY + quarter * (ENTRY / 4);
        sts128(to, make_uint4(out[0], out[1], out[2], out[3])), sts128(to + CHUNK, make_uint4(out[4], out[5], out[6], out[7]));
    }
    BUDDY_FN void run() const {
        u32 begin = scheduler.begin(), end = scheduler.end(), slot = lane / 4;
        KBlock<S> k_block(scheduler, begin);
        PipelineState<S::STAGES> state;
#pragma unroll 1
        for (u32 i = begin; i < end; i++, k_block.advance(scheduler), state.advance()) {
            smem.weights_full(state.stage).wait(state.phase);
            u32 owner = IS_TIGHT ? NO_OWNER : lds32(smem.slot_owner(state.stage, slot));
            if (owner != NO_OWNER) decode(state.stage, k_block, slot, owner);
            smem.full(state.stage).arrive();
        }
    }
};

// Loads and decodes a lane's part of a fragment.
struct FragmentLoader {
    static constexpr u32 ROWS_8 = 8 * PackedMatrixView::ENTRY_BYTES;
    const PackedMatrixView& weights;
    u32 quarter, row;

    // Returns a lane's row, permuted so that lanes of neighbouring rows read different banks.
    static BUDDY_FN u32 row_of(u32 lane) {
        u32 row = lane / 4;
        return (row & 4) | (row & 1) << 1 | (row >> 1 & 1);
    }

    BUDDY_FN explicit FragmentLoader(const PackedMatrixView& weights) : weights(weights) {
        quarter = threadIdx.x % 4, row = row_of(threadIdx.x % WARP);
    }

#if BUDDY_LINEAR_PLAIN
    // A quarter's two halves are 64 bytes apart, swapped in every other pair of rows to avoid bank
    // conflicts.
    struct Stored {
        uint4 first[2], second[2];
    };
    BUDDY_FN Stored fetch(u32 column) const {
        u32 at = column + row * PackedMatrixView::ENTRY_BYTES + 16 * quarter, swap = row / 2 % 2 * 64;
        u32 first = at + swap, second = at + (64 - swap);
        return {{lds128(first), lds128(first + ROWS_8)}, {lds128(second), lds128(second + ROWS_8)}};
    }
    BUDDY_FN void decode(const Stored& stored, u32 (&upper)[8], u32 (&lower)[8]) const {
        auto one = [](uint4 v, uint4 w, u32 (&out)[8]) {
            out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w, out[4] = w.x, out[5] = w.y, out[6] = w.z, out[7] = w.w;
        };
        one(stored.first[0], stored.second[0], upper), one(stored.first[1], stored.second[1], lower);
    }
#else
    // A lane's quarters of two rows' entries, as stored in layout B.
    struct Stored {
        uint4 bytes[2];
        uint2 codes[2];
    };
    BUDDY_FN Stored fetch(u32 column) const {
        u32 at = column + row * PackedMatrixView::ENTRY_BYTES, bytes = at + 16 * quarter, codes = at + 8 * quarter + 64;
        return {{lds128(bytes), lds128(bytes + ROWS_8)}, {lds64(codes), lds64(codes + ROWS_8)}};
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

    // Replaces the rows whose entries were decoded into slots.
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

    // Decodes irregular entries that have no slot. `irregular` has four bits for each of eight
    // rows, upper and lower; `first` is the column's first entry in the matrix, `number` the
    // column's index in the stage. `tail` may hold the last sector of the entry that `owner` names.
    BUDDY_FN void load_irregular_rows(u32 owner, u32 tail_at, u32 number, u32 column, u64 first, uint2 irregular, u32 (&upper)[8],
                              u32 (&lower)[8]) const {
        BUDDY_ROLLED
        for (u32 h = 0; h < 2; h++) {
            u32 word = h ? irregular.y : irregular.x;
            if (word == 0) continue;
            u32 bits = word >> 4 * row & 15, out[8] = {};
            if (bits) {
                u32 of = row + 8 * h;
                auto tail = [&]() -> u32 { return lds32(owner) == number * TILE_ROWS + of ? tail_at : 0; };
                auto overflow = [&] { return weights.last_sector(first + of); };
                load_irregular(StagedEntry{column + of * PackedMatrixView::ENTRY_BYTES}, quarter, bits ^ (RAW + 1), tail, overflow, out);
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

// Stores a value to y, as fp32 or bf16.
BUDDY_FN void store_value(const Linear& linear, u64 at, float value) {
    if (linear.output == Linear::FP32) {
        ((float*)linear.y)[at] = value;
    } else {
        ((unsigned short*)linear.y)[at] = narrow_bf16(value);
    }
}

BUDDY_FN float bias_of(const Linear& linear, u32 row) {
    return linear.bias && row < linear.outputs ? from_bf16(__ldg((const unsigned short*)linear.bias + row)) : 0.0f;
}

// Epilogue of two accumulators of a token: `row` and `row + 8`. Skips those out of range.
BUDDY_FN void store_outputs(const Linear& linear, u32 row, u32 token, float upper, float lower) {
    if (token >= linear.tokens) return;
    upper = upper * linear.weights.scale_of(row, linear.outputs, linear.per_row()) + bias_of(linear, row);
    lower = lower * linear.weights.scale_of(row + 8, linear.outputs, linear.per_row()) + bias_of(linear, row + 8);
    u64 at = (u64)token * linear.outputs;
    if (linear.output == Linear::GATED) {
        if (row < linear.outputs) store_value(linear, at / 2 + row / TILE_ROWS * 8 + row % 8, gated(upper, lower));
        return;
    }
    if (row < linear.outputs) store_value(linear, at + row, upper);
    if (row + 8 < linear.outputs) store_value(linear, at + row + 8, lower);
}

}  // namespace buddy
