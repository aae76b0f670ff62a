// The warps of a linear layer that multiply: entries from shared memory to fragments in registers, fragments by x on tensor
// cores, sums to memory. No plain weight is ever stored.
#pragma once
#include "linear_odd.cuh"
#include "wgmma.cuh"

namespace buddy {

// Sums of a tile: to memory as they are, and from there in the order of blocks; or to y.
template <class S>
struct Sums {
    static constexpr u32 EACH = S::TOKENS / 2, BYTES4 = S::FRAGMENTS * EACH / 4;
    float (&sums)[S::FRAGMENTS][EACH];

    BUDDY_FN float4* part(const Linear& linear, u32 slot) const {
        return linear.parts + (u64)slot * (BYTES4 * S::GROUPS * GROUP) + threadIdx.x;
    }
    BUDDY_FN void leave(const Linear& linear, u32 slot) const {
        float4* to = part(linear, slot);
        BUDDY_UNROLL
        for (u32 i = 0; i < BYTES4; i++) {
            const float* from = &sums[4 * i / EACH][4 * i % EACH];
            __stcg(to + i * (S::GROUPS * GROUP), make_float4(from[0], from[1], from[2], from[3]));
        }
    }
    BUDDY_FN void add(const Linear& linear, u32 slot, bool first) {
        const float4* from = part(linear, slot);
        BUDDY_UNROLL
        for (u32 i = 0; i < BYTES4; i++) {
            float4 v = __ldcg(from + i * (S::GROUPS * GROUP));
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
            u32 row = (row_tile + (warp / 4 * S::FRAGMENTS + f) * 4 + warp % 4) * TILE_ROWS + Lanes::row_of(lane);
            BUDDY_UNROLL
            for (u32 i = 0; i < EACH; i++) {
                put_sum(linear, row + 8 * (i / 2 % 2), token + i / 4 * 8 + lane % 4 * 2 + i % 2, sums[f][i]);
            }
        }
    }
};

// All warps that multiply meet.
template <class S>
BUDDY_FN void meet() {
    asm volatile("bar.sync 1, %0;" ::"n"(S::GROUPS * GROUP) : "memory");
}

// A block's share of a tile is done, steps `begin` to `end` of the line.
template <class S>
BUDDY_FN void finish(const Linear& linear, const Line<S>& line, const Room<S>& room, const Step<S>& step, u64 begin, u64 end,
                     Sums<S> sums) {
    wait_on_dependent_grids();
    u64 first_of_tile = (u64)step.tile * line.per_tile;
    bool whole = end - begin == line.per_tile;
    if (!whole) {
        sums.leave(linear, 2 * blockIdx.x + (begin != line.start(blockIdx.x)));
        __threadfence();
        meet<S>();
        u32 first = line.owner(first_of_tile), last = line.owner(first_of_tile + line.per_tile - 1);
        if (threadIdx.x == 0) {
            bool all = atomicAdd(linear.counts + step.tile, 1) == last - first;
            if (all) linear.counts[step.tile] = 0;
            __threadfence();
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(room.message()), "r"((u32)all) : "memory");
        }
        meet<S>();
        bool all = lds32(room.message()) != 0;
        meet<S>();
        if (!all) return;
        __threadfence();
#pragma unroll 1
        for (u32 block = first; block <= last; block++) {
            sums.add(linear, 2 * block + (line.start(block) < first_of_tile), block == first);
        }
    }
    sums.put(linear, step.row_tile(line), step.token(line));
}

// Begins the products of 64 columns.
template <class S>
BUDDY_FN void multiply_columns(float (&sums)[S::TOKENS / 2], const u32 (&upper)[8], const u32 (&lower)[8], u32 x_at, u32 add) {
        constexpr u32 AT_ONCE = S::TOKENS > 128 ? 128 : S::TOKENS;
        wgmma_fence();
        u64 x = smem_descriptor(x_at);
        BUDDY_UNROLL
        for (u32 k = 0; k < 4; k++) {
            BUDDY_UNROLL
            for (u32 n = 0; n < S::TOKENS; n += AT_ONCE) {
                float (&part)[AT_ONCE / 2] = *(float (*)[AT_ONCE / 2])&sums[n / 2];
                wgmma<AT_ONCE>(part, upper[2 * k], lower[2 * k], upper[2 * k + 1], lower[2 * k + 1], x + 2 * k + n * ENTRY / 16,
                                        k > 0 ? 1 : add);
            }
        }
        wgmma_commit_group();
    }

template <class S>
BUDDY_FN void multiply_steps(const Linear& linear, const Line<S>& line, const Room<S>& room) {
    Lanes lanes(linear.weights);
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, first_of_warp = warp / 4 * S::FRAGMENTS * 4 + warp % 4;
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
            room.full(turn.place).wait(turn.round);
            u32 entries = step.entries(line);
            BUDDY_UNROLL
            for (u32 e = 0; e < S::ENTRIES; e++) {
                if (e > 0 && e >= entries) {
                    wgmma_wait_group<0>();
                    break;
                }
                BUDDY_UNROLL
                for (u32 f = 0; f < S::FRAGMENTS; f++) {
                    u32 (&a)[8] = upper[(e * S::FRAGMENTS + f) % 2], (&b)[8] = lower[(e * S::FRAGMENTS + f) % 2];
                    u32 tile = first_of_warp + 4 * f, number = tile * S::ENTRIES + e, column = room.column(turn.place, tile, e);
                    uint2 odd = odd_of(lds64(room.nibbles(turn.place, number)));
                    lanes.load(column, a, b);
                    if (odd.x | odd.y) {
                        u64 first = ((u64)(first_tile + tile) * line.per_row + step.at * S::ENTRIES + e) * TILE_ROWS;
                        lanes.load_others(room.tag(turn.place, number % WARP), room.near(turn.place, number % WARP), number, column,
                                          first, odd, a, b);
                    }
                    multiply_columns<S>(sums[f], a, b, room.x(turn.place, e), i > 0 || e > 0);
                    wgmma_wait_group<1>();
                    // The products of the step before are done.
                    if (e == 0 && f == 0 && before != ~0u && lane == 0) room.x_empty(before).arrive();
                }
            }
            // All weights of this step are in registers, or multiplied.
            __syncwarp();
            if (lane == 0) room.empty(turn.place).arrive();
            if ((S::ENTRIES * S::FRAGMENTS) % 2 == 1) wgmma_wait_group<0>();
            before = turn.place;
        }
        wgmma_wait_group<0>();
        if (lane == 0) room.x_empty(before).arrive();
        step.at -= steps;
        finish(linear, line, room, step, begin, begin + steps, Sums<S>{sums});
        begin += steps, step.at = 0, step.tile++;
    }
}

}  // namespace buddy
