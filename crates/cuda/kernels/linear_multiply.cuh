// The warps of a linear layer that multiply: entries from shared memory to fragments in registers, fragments by x on tensor
// cores, sums to memory. No plain weight is ever stored.
#pragma once
#include "linear_plan.cuh"
#include "quarter.cuh"
#include "wgmma.cuh"

namespace buddy {

BUDDY_FN u32 load_one(u32 at) {
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}

// An entry in shared memory, whose chunks are out of place.
template <class S>
struct Staged {
    u32 stage, row, byte;

    BUDDY_FN u32 at(u32 offset) const { return stage + S::place(row, byte + offset); }
    BUDDY_FN u32 load(u32 k) const { return load_one(at(4 * k)); }
};

// A quarter of an entry that is not in layout B. `tail` is where its last sector is in shared memory, or 0.
template <class S>
BUDDY_FN void load_odd(const Weights& weights, const Staged<S>& staged, u64 entry, u32 quarter, u32 nibble, u32 tail, u32 scratch,
                       u32 (&out)[8]) {
    auto set = [&](uint4 a, uint4 b) {
        out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
    };
    if (nibble == RAW + 2) {
        uint4 m = load_four(staged.at(16 * quarter)), a = load_four(staged.at(64)), b = load_four(staged.at(80));
        const u32 bytes[4] = {m.x, m.y, m.z, m.w}, rest[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        Bf16::read_own_quarter(bytes, rest, quarter, out);
    } else if (nibble == RAW) {
        if (quarter < 3) {
            set(load_four(staged.at(32 * quarter)), load_four(staged.at(32 * quarter + 16)));
        } else if (tail != 0) {
            set(load_four(tail), load_four(tail + 16));
        } else {
            const uint4* from = (const uint4*)weights.last_sector(entry);
            uint4 none = make_uint4(0, 0, 0, 0);
            set(from ? __ldg(from) : none, from ? __ldg(from + 1) : none);
        }
    } else {
        read_loose_quarter(staged, nibble, quarter, [&](u32 i, u32 pair) {
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(scratch + 4 * i), "r"(pair) : "memory");
        });
        set(load_four(scratch), load_four(scratch + 16));
    }
}

// Sums of a tile: to memory as they are, and from there in the order of blocks; or to y.
template <class S>
struct Sums {
    static constexpr u32 EACH = S::TOKENS / 2, BYTES4 = S::FRAGMENTS * EACH / 4;
    float (&sums)[S::FRAGMENTS][EACH];

    BUDDY_FN float4* part(const Linear& linear, u32 slot) const {
        return linear.parts + (u64)slot * (BYTES4 * GROUPS * GROUP) + threadIdx.x;
    }
    BUDDY_FN void leave(const Linear& linear, u32 slot) const {
        float4* to = part(linear, slot);
        BUDDY_UNROLL
        for (u32 i = 0; i < BYTES4; i++) {
            const float* from = &sums[4 * i / EACH][4 * i % EACH];
            __stcg(to + i * (GROUPS * GROUP), make_float4(from[0], from[1], from[2], from[3]));
        }
    }
    BUDDY_FN void add(const Linear& linear, u32 slot, bool first) {
        const float4* from = part(linear, slot);
        BUDDY_UNROLL
        for (u32 i = 0; i < BYTES4; i++) {
            float4 v = __ldcg(from + i * (GROUPS * GROUP));
            float* to = &sums[4 * i / EACH][4 * i % EACH];
            to[0] = first ? v.x : to[0] + v.x, to[1] = first ? v.y : to[1] + v.y;
            to[2] = first ? v.z : to[2] + v.z, to[3] = first ? v.w : to[3] + v.w;
        }
    }
    // Lane l has tokens 8j + l % 4 * 2 and the next, of two rows.
    BUDDY_FN void put(const Linear& linear, u32 row, u32 token) const {
        u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
        BUDDY_UNROLL
        for (u32 f = 0; f < S::FRAGMENTS; f++) {
            BUDDY_UNROLL
            for (u32 half = 0; half < 2; half++) {
                u32 at = row + (warp / 4 * S::FRAGMENTS + f) * 64 + warp % 4 * 16 + S::row_of(lane) + 8 * half;
                if (at >= linear.outputs) continue;
                float bias = linear.bias ? __uint_as_float((u32)__ldg((const unsigned short*)linear.bias + at) << 16) : 0;
                BUDDY_UNROLL
                for (u32 j = 0; j < EACH; j += 4) {
                    BUDDY_UNROLL
                    for (u32 k = 0; k < 2; k++) {
                        u32 of = token + 2 * j + lane % 4 * 2 + k;
                        if (of < linear.tokens) put_one(linear, (u64)of * linear.outputs + at, sums[f][j + 2 * half + k] + bias);
                    }
                }
            }
        }
    }
    static BUDDY_FN void put_one(const Linear& linear, u64 at, float value) {
        if (linear.wide) {
            ((float*)linear.y)[at] = value;
        } else {
            unsigned short narrow;
            asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow) : "f"(value));
            ((unsigned short*)linear.y)[at] = narrow;
        }
    }
};

// All warps that multiply meet.
BUDDY_FN void meet() { asm volatile("bar.sync 1, %0;" ::"n"(GROUPS * GROUP) : "memory"); }

// A block's share of a tile is done, steps `begin` to `end` of the line.
template <class S>
BUDDY_FN void finish(const Linear& linear, const Line<S>& line, const Room<S>& room, const Step<S>& step, u64 begin, u64 end,
                     Sums<S> sums) {
    wait_for_kernel_before();
    u64 first_of_tile = (u64)step.tile * line.per_tile;
    bool whole = end - begin == line.per_tile;
    if (!whole) {
        sums.leave(linear, 2 * blockIdx.x + (begin != line.start(blockIdx.x)));
        __threadfence();
        meet();
        u32 first = line.owner(first_of_tile), last = line.owner(first_of_tile + line.per_tile - 1);
        if (threadIdx.x == 0) {
            bool all = atomicAdd(linear.counts + step.tile, 1) == last - first;
            if (all) linear.counts[step.tile] = 0;
            __threadfence();
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(room.message()), "r"((u32)all) : "memory");
        }
        meet();
        bool all = load_one(room.message()) != 0;
        meet();
        if (!all) return;
        __threadfence();
#pragma unroll 1
        for (u32 block = first; block <= last; block++) {
            sums.add(linear, 2 * block + (line.start(block) < first_of_tile), block == first);
        }
    }
    sums.put(linear, step.row(line), step.token(line));
}

// What a warp that multiplies keeps: its fragments, two of them, so that one is made while the other is multiplied; its sums, and
// which step it is at.
template <class S>
struct Multiplier {
    static constexpr u32 AT_ONCE = S::TOKENS > 128 ? 128 : S::TOKENS;
    const Linear& linear;
    const Line<S>& line;
    const Room<S>& room;
    u32 lane, quarter, row;

    BUDDY_FN Multiplier(const Linear& linear, const Line<S>& line, const Room<S>& room) : linear(linear), line(line), room(room) {
        u32 warp = threadIdx.x / WARP;
        lane = threadIdx.x % WARP, quarter = lane % 4;
        row = warp / 4 * S::FRAGMENTS * 64 + warp % 4 * 16 + S::row_of(lane);
    }

    // A lane's quarters of entry `e` of two rows, in layout B.
    BUDDY_FN void load(u32 stage, u32 e, u32 f, u32 (&upper)[8], u32 (&lower)[8]) const {
        u32 m = stage + S::place(row, e * Weights::BYTES + 16 * quarter) + f * 64 * S::ROW;
        u32 c = stage + S::place(row, e * Weights::BYTES + 64 + 8 * quarter) + f * 64 * S::ROW;
        auto one = [&](u32 below, u32 (&out)[8]) {
            uint4 v = load_four(m + below);
            uint2 w = load_two(c + below);
            const u32 bytes[4] = {v.x, v.y, v.z, v.w}, codes[2] = {w.x, w.y};
            Bf16::read_window_quarter(bytes, codes, linear.weights.window, out);
        };
        one(0, upper), one(8 * S::ROW, lower);
    }

    // The same of those that are not; four bits of `odd` say so of each.
    BUDDY_FN void load_others(u32 place, const Step<S>& step, u32 e, u32 f, const u32 (&odd)[2], u32 (&upper)[8], u32 (&lower)[8]) const {
        BUDDY_ROLLED
        for (u32 h = 0; h < 2; h++) {
            u32 bits = (h ? odd[1] : odd[0]) >> 4 * e & 15, out[8] = {};
            if (bits) {
                u32 of = row + 64 * f + 8 * h, tail = 0;
                u64 entry = (u64)min(step.row(line) + of, linear.outputs - 1) * line.per_row + step.at * S::ENTRIES + e;
                if (load_one(room.tag(place, of % WARP)) == of * 4 + e) tail = room.near(place, of % WARP);
                Staged<S> staged = {room.step(place), of, e * Weights::BYTES};
                load_odd(linear.weights, staged, entry, quarter, bits ^ (RAW + 1), tail, room.scratch(), out);
            }
            __syncwarp();
            BUDDY_UNROLL
            for (u32 k = 0; k < 8; k++) {
                upper[k] = bits && h == 0 ? out[k] : upper[k];
                lower[k] = bits && h == 1 ? out[k] : lower[k];
            }
        }
    }

    // Begins the products of 64 columns.
    static BUDDY_FN void multiply(float (&sums)[S::TOKENS / 2], const u32 (&upper)[8], const u32 (&lower)[8], u32 x_at, u32 add) {
        begin_products();
        u64 x = operand_at(x_at);
        BUDDY_UNROLL
        for (u32 k = 0; k < 4; k++) {
            BUDDY_UNROLL
            for (u32 n = 0; n < S::TOKENS; n += AT_ONCE) {
                float (&part)[AT_ONCE / 2] = *(float (*)[AT_ONCE / 2])&sums[n / 2];
                multiply_group<AT_ONCE>(part, upper[2 * k], lower[2 * k], upper[2 * k + 1], lower[2 * k + 1], x + 2 * k + n * ENTRY / 16,
                                        k > 0 ? 1 : add);
            }
        }
        end_products();
    }
};

template <class S>
BUDDY_FN void multiply_steps(const Linear& linear, const Line<S>& line, const Room<S>& room) {
    Multiplier<S> of(linear, line, room);
    Turn<S::STAGES> turn;
    u64 begin = line.start(blockIdx.x), end = line.start(blockIdx.x + 1);
    Step<S> step(line, begin);
#pragma unroll 1
    while (begin < end) {
        u32 steps = (u32)min(end - begin, (u64)(line.per_tile - step.at)), before = ~0u;
        float sums[S::FRAGMENTS][S::TOKENS / 2];
        u32 upper[2][8], lower[2][8];
#pragma unroll 1
        for (u32 i = 0; i < steps; i++, turn.next(), step.at++) {
            room.come(turn.place).wait(turn.round);
            publish_to_products();
            u32 entries = step.entries(line), odd[S::FRAGMENTS][2], any[S::FRAGMENTS];
            BUDDY_UNROLL
            for (u32 f = 0; f < S::FRAGMENTS; f++) {
                BUDDY_UNROLL
                for (u32 h = 0; h < 2; h++) {
                    odd[f][h] = load_one(room.nibbles(turn.place, of.row + 64 * f + 8 * h)) ^ (RAW + 1) * 0x11111111u;
                }
                any[f] = __reduce_or_sync(ALL, odd[f][0] | odd[f][1]);
            }
            BUDDY_UNROLL
            for (u32 e = 0; e < S::ENTRIES; e++) {
                if (e > 0 && e >= entries) {
                    wait_for_products<0>();
                    break;
                }
                BUDDY_UNROLL
                for (u32 f = 0; f < S::FRAGMENTS; f++) {
                    u32 (&a)[8] = upper[(e * S::FRAGMENTS + f) % 2], (&b)[8] = lower[(e * S::FRAGMENTS + f) % 2];
                    of.load(room.step(turn.place), e, f, a, b);
                    if (any[f] >> 4 * e & 15) of.load_others(turn.place, step, e, f, odd[f], a, b);
                    of.multiply(sums[f], a, b, room.x(turn.place, e), i > 0 || e > 0);
                    wait_for_products<1>();
                    // Nobody needs the step before any more.
                    if (e == 0 && f == 0 && before != ~0u && of.lane == 0) room.used(before).arrive();
                }
            }
            if ((S::ENTRIES * S::FRAGMENTS) % 2 == 1) wait_for_products<0>();
            before = turn.place;
        }
        wait_for_products<0>();
        if (of.lane == 0) room.used(before).arrive();
        step.at -= steps;
        finish(linear, line, room, step, begin, begin + steps, Sums<S>{sums});
        begin += steps, step.at = 0, step.tile++;
    }
}

}  // namespace buddy
