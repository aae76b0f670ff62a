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

// An entry in shared memory.
struct Staged {
    u32 start;

    BUDDY_FN u32 at(u32 offset) const { return start + offset; }
    BUDDY_FN u32 load(u32 k) const { return load_one(start + 4 * k); }
};

// A quarter of an entry that is not in layout B. `tail` is where its last sector is in shared memory, or 0; `far` where it is else.
template <class Tail, class Far>
BUDDY_FN void load_odd(const Staged& staged, u32 quarter, u32 nibble, Tail tail, Far far, u32 scratch, u32 (&out)[8]) {
    auto set = [&](uint4 a, uint4 b) {
        out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
    };
    if (nibble == RAW + 2) {
        uint4 m = load_four(staged.at(16 * quarter)), a = load_four(staged.at(64)), b = load_four(staged.at(80));
        const u32 bytes[4] = {m.x, m.y, m.z, m.w}, rest[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        Bf16::read_own_quarter(bytes, rest, quarter, out);
    } else if (nibble == RAW) {
        u32 near = quarter < 3 ? staged.at(32 * quarter) : tail();
        if (near != 0) {
            u32 next = quarter < 3 ? staged.at(32 * quarter + 16) : near + 16;
            set(load_four(near), load_four(next));
        } else {
            const uint4* from = (const uint4*)far();
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
    BUDDY_FN void put(const Linear& linear, u32 row_tile, u32 token) const {
        u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
        BUDDY_UNROLL
        for (u32 f = 0; f < S::FRAGMENTS; f++) {
            BUDDY_UNROLL
            for (u32 half = 0; half < 2; half++) {
                u32 at = (row_tile + (warp / 4 * S::FRAGMENTS + f) * 4 + warp % 4) * TILE_ROWS + S::row_of(lane) + 8 * half;
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
    sums.put(linear, step.row_tile(line), step.token(line));
}

// A warp that multiplies: a tile of sixteen rows for each of its fragments, two rows and a quarter of each entry to a lane.
template <class S>
struct Multiplier {
    static constexpr u32 AT_ONCE = S::TOKENS > 128 ? 128 : S::TOKENS, BELOW = 8 * Weights::BYTES;
    const Linear& linear;
    const Line<S>& line;
    const Room<S>& room;
    u32 lane, quarter, row, tile;

    BUDDY_FN Multiplier(const Linear& linear, const Line<S>& line, const Room<S>& room) : linear(linear), line(line), room(room) {
        u32 warp = threadIdx.x / WARP;
        lane = threadIdx.x % WARP, quarter = lane % 4, row = S::row_of(lane), tile = warp / 4 * S::FRAGMENTS * 4 + warp % 4;
    }

    // A lane's quarters of an entry of two rows, in layout B.
    BUDDY_FN void load(u32 column, u32 (&upper)[8], u32 (&lower)[8]) const {
        u32 at = column + row * Weights::BYTES;
        auto one = [&](u32 below, u32 (&out)[8]) {
            uint4 v = load_four(at + 16 * quarter + below);
            uint2 w = load_two(at + 8 * quarter + 64 + below);
            const u32 bytes[4] = {v.x, v.y, v.z, v.w}, codes[2] = {w.x, w.y};
            Bf16::read_window_quarter(bytes, codes, linear.weights.window, out);
        };
        one(0, upper), one(BELOW, lower);
    }

    // The same of those that are not; `odd` has four bits for each of eight rows, of upper and of lower ones. `first` is the
    // column's first entry in the matrix.
    BUDDY_FN void load_others(u32 place, u32 in_step, u32 column, u64 first, uint2 odd, u32 (&upper)[8], u32 (&lower)[8]) const {
        BUDDY_ROLLED
        for (u32 h = 0; h < 2; h++) {
            u32 word = h ? odd.y : odd.x;
            if (word == 0) continue;
            u32 bits = word >> 4 * row & 15, out[8] = {};
            if (bits) {
                u32 of = row + 8 * h;
                auto tail = [&]() -> u32 {
                    u32 slot = in_step % WARP;
                    return load_one(room.tag(place, slot)) == in_step * TILE_ROWS + of ? room.near(place, slot) : 0;
                };
                auto far = [&] { return linear.weights.last_sector(first + of); };
                load_odd(Staged{column + of * Weights::BYTES}, quarter, bits ^ (RAW + 1), tail, far, room.scratch(), out);
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
        u32 steps = (u32)min(end - begin, (u64)(line.per_tile - step.at)), before = ~0u, first_tile = keep(step.row_tile(line));
        float sums[S::FRAGMENTS][S::TOKENS / 2];
        u32 upper[2][8], lower[2][8];
#pragma unroll 1
        for (u32 i = 0; i < steps; i++, turn.next(), step.at++) {
            room.come(turn.place).wait(turn.round);
            u32 entries = step.entries(line);
            BUDDY_UNROLL
            for (u32 e = 0; e < S::ENTRIES; e++) {
                if (e > 0 && e >= entries) {
                    wait_for_products<0>();
                    break;
                }
                BUDDY_UNROLL
                for (u32 f = 0; f < S::FRAGMENTS; f++) {
                    u32 (&a)[8] = upper[(e * S::FRAGMENTS + f) % 2], (&b)[8] = lower[(e * S::FRAGMENTS + f) % 2];
                    u32 tile = of.tile + 4 * f, column = room.column(turn.place, tile, e);
                    uint2 odd = load_two(room.nibbles(turn.place, tile * S::ENTRIES + e));
                    odd.x ^= (RAW + 1) * 0x11111111u, odd.y ^= (RAW + 1) * 0x11111111u;
                    of.load(column, a, b);
                    if (odd.x | odd.y) {
                        u64 first = ((u64)(first_tile + tile) * line.per_row + step.at * S::ENTRIES + e) * TILE_ROWS;
                        of.load_others(turn.place, tile * S::ENTRIES + e, column, first, odd, a, b);
                    }
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
