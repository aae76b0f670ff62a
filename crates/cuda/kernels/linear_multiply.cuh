// The warps of a linear layer that multiply: entries from shared memory to fragments in registers, fragments by x on tensor
// cores, sums to memory. No plain weight is ever stored.
#pragma once
#include "linear_odd.cuh"
#include "wgmma.cuh"

namespace buddy {

// Sums of a warp's part of a tile: to memory as they are, and from there in the order of blocks; or to y.
template <class S>
struct Sums {
    static constexpr u32 EACH = S::TOKENS / 2, FOURS = EACH / 4, STRIDE = 2 * S::ROWS;
    // Fours that are asked for at a time, as registers allow.
    static constexpr u32 MOST = S::MULTIPLYING >= EACH + 120 ? 8 : 4, SOME = FOURS < MOST ? FOURS : MOST;
    float (&sums)[EACH];

    BUDDY_FN float* four(u32 i) const { return &sums[4 * i]; }
    BUDDY_FN float4* part(const Linear& linear, u32 slot) const { return linear.parts + (u64)slot * (FOURS * STRIDE) + threadIdx.x; }

    BUDDY_FN void leave(const Linear& linear, u32 slot) const {
        float4* to = part(linear, slot);
        BUDDY_UNROLL
        for (u32 i = 0; i < FOURS; i++) {
            const float* from = four(i);
            __stcg(to + i * STRIDE, make_float4(from[0], from[1], from[2], from[3]));
        }
    }
    // Some of the tile's sums: this block's, and what the others left, in the order of blocks. Each of those is a way to L2 and back.
    template <class SlotOf>
    BUDDY_FN void gather(const Linear& linear, u32 i, u32 first, u32 last, SlotOf slot_of, float (&all)[4 * SOME]) const {
        BUDDY_UNROLL
        for (u32 k = 0; k < 4 * SOME; k++) all[k] = 0;
#pragma unroll 1
        for (u32 piece = first; piece <= last; piece++) {
            if (piece == Line<S>::piece()) {
                BUDDY_UNROLL
                for (u32 k = 0; k < 4 * SOME; k++) all[k] += four(i)[k];
                continue;
            }
            const float4* from = part(linear, slot_of(piece)) + i * STRIDE;
            float4 v[SOME];
            BUDDY_UNROLL
            for (u32 k = 0; k < SOME; k++) v[k] = __ldcg(from + k * STRIDE);
            BUDDY_UNROLL
            for (u32 k = 0; k < SOME; k++) {
                all[4 * k] += v[k].x, all[4 * k + 1] += v[k].y, all[4 * k + 2] += v[k].z, all[4 * k + 3] += v[k].w;
            }
        }
    }
    // Of slices, those after the first give theirs to it, which adds them in their order.
    template <class Room>
    BUDDY_FN void add_slices(const Room& room, u32 slice) {
        auto at = [&](u32 of) { return room.slice(of, threadIdx.x / WARP % 4) + threadIdx.x % WARP * 16; };
        // Those of the tile before are added.
        named_barrier<S::GROUPS * GROUP>();
        BUDDY_UNROLL
        for (u32 i = 0; i < FOURS && slice > 0; i++) {
            const float* v = four(i);
            sts128(at(slice) + i * WARP * 16, make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3])));
        }
        named_barrier<S::GROUPS * GROUP>();
        BUDDY_UNROLL
        for (u32 of = 1; of < S::SLICES; of++) {
            if (slice > 0) break;
            BUDDY_UNROLL
            for (u32 i = 0; i < FOURS; i++) {
                uint4 v = lds128(at(of) + i * WARP * 16);
                float* to = four(i);
                to[0] += __uint_as_float(v.x), to[1] += __uint_as_float(v.y), to[2] += __uint_as_float(v.z), to[3] += __uint_as_float(v.w);
            }
        }
    }
    // The tile's sums to y. Lane l has tokens 8j + l % 4 * 2 and the next, of two rows.
    template <class Room, class SlotOf>
    BUDDY_FN void put(const Linear& linear, const Room& room, u32 row_tile, u32 token, u32 first_piece, u32 last_piece, SlotOf slot_of) const {
        u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, first = (row_tile + warp) * TILE_ROWS, row = first + Lanes::row_of(lane);
        float bias[2] = {bias_of(linear, row), bias_of(linear, row + 8)};
        BUDDY_UNROLL
        for (u32 i = 0; i < FOURS; i += SOME, token += 8 * SOME) {
            float all[4 * SOME];
            gather(linear, i, first_piece, last_piece, slot_of, all);
            if (!S::GATED && linear.output == Linear::FP32) {
                BUDDY_UNROLL
                for (u32 k = 0; k < 4 * SOME; k++) {
                    put_wide(linear, row + k / 2 % 2 * 8, token + k / 4 * 8 + lane % 4 * 2 + k % 2, all[k] + bias[k / 2 % 2]);
                }
                continue;
            }
            BUDDY_UNROLL
            for (u32 k = 0; k < 4 * SOME; k += 8) put_sixteen(linear, room.out(warp), first, token + 2 * k, &all[k], bias);
        }
    }
    static BUDDY_FN void put_wide(const Linear& linear, u32 row, u32 token, float value) {
        if (row < linear.outputs && token < linear.tokens) ((float*)linear.y)[(u64)token * linear.outputs + row] = value;
    }
    // Sixteen rows of sixteen tokens, or of eight, as bf16: turned in shared memory, so that a lane has eight rows of a token.
    static BUDDY_FN void put_sixteen(const Linear& linear, u32 out, u32 first, u32 token, const float* v, const float (&bias)[2]) {
        u32 lane = threadIdx.x % WARP;
        constexpr u32 PAIRS = EACH < 8 ? 2 : 4;
        u32 pairs[4] = {};
        BUDDY_UNROLL
        for (u32 i = 0; i < PAIRS; i++) pairs[i] = bf16_pair(v[2 * i] + bias[i % 2], v[2 * i + 1] + bias[i % 2]);
        constexpr bool is_gated = S::GATED;
        BUDDY_UNROLL
        for (u32 i = 0; i < PAIRS; i += 2) {
            auto one = [&](u32 k) { return gated(v[2 * i + k] + bias[0], v[2 * i + 2 + k] + bias[1]); };
            if (is_gated) pairs[i] = bf16_pair(one(0), one(1));
        }
        // Matrix m is of tokens 8 (m / 2) and on, rows 8 (m % 2) and on; a lane says where a token of one goes.
        u32 at = out + (lane / 16 * 8 + lane % 8) * (2 * TILE_ROWS) + lane / 8 % 2 * CHUNK;
        __syncwarp();
        stmatrix4_transposed(at, pairs[0], pairs[1], pairs[2], pairs[3]);
        __syncwarp();
        // Of gated rows there are half as many, the upper ones.
        u32 of = token + lane / 2, row = is_gated ? first / 2 : first + lane % 2 * 8, outputs = is_gated ? linear.outputs / 2 : linear.outputs;
        bool is_there = lane / 2 < S::TOKENS && of < linear.tokens && row < outputs && !(is_gated && lane % 2);
        uint4 got = lds128(out + lane * CHUNK);
        if (!is_there) return;
        // Rows lie in the order of lanes.
        uint4 words = make_uint4(permute_bytes(got.x, got.y, 0x5410), permute_bytes(got.x, got.y, 0x7632),
                                 permute_bytes(got.z, got.w, 0x5410), permute_bytes(got.z, got.w, 0x7632));
        unsigned short* to = (unsigned short*)linear.y + (u64)of * outputs + row;
        if (row + 8 <= outputs && (u64)to % CHUNK == 0) {
            *(uint4*)to = words;
            return;
        }
        u64 low = (u64)words.y << 32 | words.x, high = (u64)words.w << 32 | words.z;
#pragma unroll 1
        for (u32 i = 0; i < min(8u, outputs - row); i++) to[i] = (unsigned short)((i < 4 ? low : high) >> i % 4 * 16);
    }
};

// The blocks that share a tile, and the warp's count of them. Many sums stay where they are in the last block to come: all say that they are
// about to end, the last then waits for the others, which are as far, and those say that they have left theirs. Few sums are left by all, which
// saves a way to memory and back.
template <class S>
struct Sharing {
    static constexpr bool FEW = S::TOKENS <= 32;
    static constexpr u32 LEFT = 1 << 16;
    u32 first, last;
    u32* count;

    BUDDY_FN Sharing(const Linear& linear, const Line<S>& line, u32 tile) {
        first = line.owner(tile * line.per_tile), last = line.owner(tile * line.per_tile + line.per_tile - 1);
        count = linear.counts + line.block(first) * S::WARPS + threadIdx.x / WARP;
    }
    // How many were about to end before, in the first lane.
    BUDDY_FN u32 end() const {
        if (FEW || first == last) return 0;
        // The kernel before may have the same counts.
        wait_on_dependent_grids();
        return threadIdx.x % WARP == 0 ? atomic_add_relaxed(count, 1) % LEFT : 0;
    }
    BUDDY_FN bool keeps(u32 before) const { return !FEW && __shfl_sync(ALL, before, 0) == last - first; }
    // What all lanes left is released with the first one's count; whether all other blocks left theirs before.
    BUDDY_FN bool left() const {
        __syncwarp();
        u32 before = threadIdx.x % WARP == 0 ? atomic_add_release(count, FEW ? 1 : LEFT) : 0;
        return FEW && __shfl_sync(ALL, before, 0) == last - first;
    }
    // All others have left theirs, and the count is zero again.
    BUDDY_FN void wait() const {
        if (FEW) fence_acq_rel();
        else wait_until(count, (last - first) * LEFT + (last - first + 1));
        __syncwarp();
        if (threadIdx.x % WARP == 0) *count = 0;
    }
};

// A warp's share of a tile is done, from step `begin` of the line on; so many blocks were about to end before.
template <class S, class Room>
BUDDY_FN void finish(const Linear& linear, const Line<S>& line, const Room& room, const Step<S>& step, u32 begin, u32 before, Sums<S> sums) {
    wait_on_dependent_grids();
    Sharing<S> sharing(linear, line, step.tile);
    u32 first = sharing.first, last = sharing.last;
    if (first != last) {
        if (!sharing.keeps(before)) {
            sums.leave(linear, 2 * blockIdx.x + (begin != line.begin()));
            if (!sharing.left()) return;
        }
        sharing.wait();
    }
    // All but the first begin in this tile.
    bool second = line.start(first) < step.tile * line.per_tile;
    auto slot_of = [&](u32 piece) { return 2 * line.block(piece) + (piece == first && second); };
    sums.put(linear, room, step.row_tile(line), step.token(line), first, last, slot_of);
}

// Begins the products of 64 columns.
template <class S>
BUDDY_FN void multiply_columns(float (&sums)[S::TOKENS / 2], const u32 (&upper)[8], const u32 (&lower)[8], u32 x_at, u32 add) {
    wgmma_fence();
    u64 x = smem_descriptor(x_at);
    BUDDY_UNROLL
    for (u32 k = 0; k < 4; k++) {
        wgmma<S::TOKENS>(sums, upper[2 * k], lower[2 * k], upper[2 * k + 1], lower[2 * k + 1], x + 2 * k, k > 0 ? 1 : add);
    }
    wgmma_commit_group();
}

// The registers of fragments: while those of one set are multiplied, the others are filled.
struct Fragments {
    u32 upper[2][8], lower[2][8];
};

// A fragment on its way: what a lane has of it in layout B, and where the rest is.
struct Coming {
    Lanes::Stored stored;
    uint2 map;
};

// What the warps that multiply go through, step by step.
template <class S>
struct Multiply {
    const Line<S>& line;
    const Room<S>& room;
    const Lanes& lanes;
    u32 tile, first;  // of a step, this warp's, and the first of its entries
    static constexpr u32 EACH = S::ENTRIES / S::SLICES;

    BUDDY_FN Coming fetch(u32 place, u32 e) const {
        return {lanes.fetch(room.column(place, tile, e)), lds64(room.map(place, tile * S::ENTRIES + e))};
    }
    BUDDY_FN void decode(const Coming& coming, const Step<S>& step, u32 place, u32 e, u32 (&a)[8], u32 (&b)[8]) const {
        uint2 map = coming.map;
        lanes.decode(coming.stored, a, b);
        // What follows is rare.
        if (__builtin_expect(IS_PLAIN || (map.x | map.y) == 0, 1)) return;
        lanes.load_slots(room.slots(place), map, a, b);
        uint2 none = make_uint2(equal_nibbles(map.x, 15) * 15, equal_nibbles(map.y, 15) * 15);
        if ((none.x | none.y) == 0) return;
        u32 number = tile * S::ENTRIES + e;
        u64 first = ((u64)(step.row_tile(line) + tile) * line.per_row + step.at * S::ENTRIES + e) * TILE_ROWS;
        uint2 odd = odd_of(lds64(room.nibbles(place, number)));
        odd.x &= none.x, odd.y &= none.y;
        lanes.load_others(room.tag(place, number % WARP), room.near(place, number % WARP), number, room.column(place, tile, e), first, odd, a, b);
    }
    // One step of a tile: its entries decoded one after the other, and their products begun; the first is there, and the next step's
    // first comes, if there is one; `more` says that x of the step before makes room for another. `ODD` is 1 if the step before took
    // an odd number of entries.
    template <u32 ODD>
    BUDDY_FN void one(const Step<S>& step, Turn<S::STAGES>& turn, u32& before, bool last, bool more, Coming& coming, Fragments& of,
                      float (&sums)[S::TOKENS / 2]) const {
        u32 entries = step.entries(line), place = turn.place;
        turn.next();
        BUDDY_UNROLL
        for (u32 i = 0; i < EACH; i++) {
            // Slices have whole steps.
            if (S::SLICES == 1 && i > 0 && i >= entries) break;
            bool ends = i + 1 == EACH || (S::SLICES == 1 && i + 1 >= entries);
            u32 e = first + i, (&a)[8] = of.upper[(ODD + i) % 2], (&b)[8] = of.lower[(ODD + i) % 2];
            if (!S::AHEAD) coming = fetch(place, e);
            decode(coming, step, place, e, a, b);
            multiply_columns<S>(sums, a, b, room.x(place, e), before != ~0u || i > 0);
            if (ends) {
                // All weights of this step are in registers, or multiplied.
                __syncwarp();
                if (threadIdx.x % WARP == 0) room.empty(place).arrive();
                if (!last) {
                    room.full(turn.place).wait(turn.round);
                    if (S::AHEAD) coming = fetch(turn.place, first);
                }
            } else if (S::AHEAD) {
                coming = fetch(place, e + 1);
            }
            // A step that ends early leaves the other registers to the next.
            if (ends && i + 1 < EACH) wgmma_wait_group<0>();
            else wgmma_wait_group<1>();
            // The products of the step before are done.
            if (i == 0 && before != ~0u) room.leave_x(before, more);
        }
        before = place;
    }
};

template <class S>
BUDDY_FN void multiply_steps(const Linear& linear, const Line<S>& line, const Room<S>& room) {
    Lanes lanes(linear.weights);
    // Of slices, a warpgroup each, the warps of the first have the tile's sums at last.
    u32 warp = threadIdx.x / WARP, slice = S::SLICES > 1 ? __shfl_sync(ALL, warp / 4, 0) : 0;
    Multiply<S> multiply = {line, room, lanes, S::SLICES > 1 ? warp % 4 : warp, slice * Multiply<S>::EACH};
    Turn<S::STAGES> turn;
    u32 begin = line.begin(), end = line.end();
    Step<S> step(line, begin);
#pragma unroll 1
    while (begin < end) {
        u32 steps = min(end - begin, line.per_tile - step.at), first_step = step.at, before = ~0u;
        float sums[S::TOKENS / 2];
        Fragments of;
        room.full(turn.place).wait(turn.round);
        Coming coming;
        if (S::AHEAD) coming = multiply.fetch(turn.place, multiply.first);
#pragma unroll 1
        for (u32 i = 0; i < steps; i++, step.at++) {
            multiply.template one<0>(step, turn, before, i + 1 == steps, begin + i - 1 + S::STAGES < end, coming, of, sums);
            if (Multiply<S>::EACH % 2 == 0) continue;
            if (++i == steps) break;
            step.at++;
            multiply.template one<1>(step, turn, before, i + 1 == steps, begin + i - 1 + S::STAGES < end, coming, of, sums);
        }
        u32 ended_before = slice == 0 ? Sharing<S>(linear, line, step.tile).end() : 0;
        wgmma_wait_group<0>();
        wait_for_registers(sums);
        room.leave_x(before, begin + steps - 1 + S::STAGES < end);
        step.at = first_step;
        if (S::SLICES > 1) Sums<S>{sums}.add_slices(room, slice);
        if (slice == 0) finish(linear, line, room, step, begin, ended_before, Sums<S>{sums});
        begin += steps, step.at = 0, step.tile++;
    }
}

}  // namespace buddy
