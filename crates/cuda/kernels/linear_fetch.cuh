// What brings the steps of a linear layer into shared memory: a thread that asks the copy engine for weights, a warp for their
// nibbles and for what overflows, and some for x. Each goes its own way, as far ahead as there is room.
#pragma once
#include "linear_plan.cuh"

namespace buddy {

// The barrier counts this lane once its copies so far have come.
BUDDY_FN void cp_async_mbarrier_arrive(Barrier barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier.at) : "memory");
}

// Weights of all steps of this block, by one thread.
template <class S>
BUDDY_FN void fetch_weights(const Linear& linear, const Line<S>& line, const Room<S>& room) {
    u64 pitch = (u64)line.per_row * Weights::COLUMN, policy = evict_first_policy(), end = line.start(blockIdx.x + 1);
    u32 all = (linear.outputs + TILE_ROWS - 1) / TILE_ROWS;
    Step<S> step(line, line.start(blockIdx.x));
    Turn<S::STAGES> turn;
#pragma unroll 1
    for (u64 i = line.start(blockIdx.x); i < end; i++, step.next(line), turn.next()) {
        room.empty(turn.place).wait(turn.round ^ 1);
        u32 first = step.row_tile(line), tiles = min(S::TILES, all - first), bytes = step.entries(line) * Weights::COLUMN;
        const u8* from = linear.weights.device + first * pitch + step.at * S::TILE;
        room.full(turn.place).arrive_expect_tx(tiles * bytes);
#pragma unroll 8
        for (u32 t = 0; t < tiles; t++) cp_async_bulk(room.column(turn.place, t, 0), from + t * pitch, bytes, room.full(turn.place), policy);
    }
}

// Nibbles, by one warp, a column of sixteen to a lane at a time; and for each lane the last sector of the first of its entries
// that overflows.
template <class S>
BUDDY_FN void fetch_nibbles(const Linear& linear, const Line<S>& line, const Room<S>& room) {
    constexpr u32 EACH = (S::COLUMNS + WARP - 1) / WARP;
    u32 lane = threadIdx.x % WARP, all = (linear.outputs + TILE_ROWS - 1) / TILE_ROWS;
    const Weights& weights = linear.weights;
    uint2 next[EACH];
    Turn<S::STAGES> turn;
    u64 begin = line.start(blockIdx.x), end = line.start(blockIdx.x + 1);
    Step<S> step(line, begin);
    // Where there is no column, as if all its entries were in layout B: nobody looks at their sums.
    auto look_at = [&](const Step<S>& step) {
        u32 entries = step.entries(line), first = step.row_tile(line);
        BUDDY_UNROLL
        for (u32 i = 0; i < EACH; i++) {
            u32 column = i * WARP + lane, tile = first + column / S::ENTRIES, e = column % S::ENTRIES;
            u64 at = (u64)tile * line.per_row + step.at * S::ENTRIES + e;
            bool is = column < S::COLUMNS && tile < all && e < entries;
            next[i] = is ? __ldg((const uint2*)weights.nibbles + at) : make_uint2(0x66666666u, 0x66666666u);
        }
    };
    if (begin < end) look_at(step);
#pragma unroll 1
    for (u64 i = begin; i < end; i++, turn.next()) {
        uint2 now[EACH];
        BUDDY_UNROLL
        for (u32 k = 0; k < EACH; k++) now[k] = next[k];
        Step<S> after = step;
        after.next(line);
        if (i + 1 < end) look_at(after);
        room.empty(turn.place).wait(turn.round ^ 1);
        u32 tag = ~0u;
        BUDDY_UNROLL
        for (u32 k = 0; k < EACH; k++) {
            u32 column = k * WARP + lane;
            if (column < S::COLUMNS) sts64(room.nibbles(turn.place, column), now[k]);
            u32 upper = equal_nibbles(now[k].x, RAW), lower = equal_nibbles(now[k].y, RAW);
            if ((upper | lower) != 0 && tag == ~0u) {
                u32 row = upper != 0 ? trailing_zeros(upper) / 4 : 8 + trailing_zeros(lower) / 4;
                u64 at = (u64)(step.row_tile(line) + column / S::ENTRIES) * line.per_row + step.at * S::ENTRIES + column % S::ENTRIES;
                const u8* from = weights.last_sector(at * TILE_ROWS + row);
                if (from == nullptr) continue;
                cp_async<CHUNK>(room.near(turn.place, lane), from), cp_async<CHUNK>(room.near(turn.place, lane) + CHUNK, from + CHUNK);
                tag = column * TILE_ROWS + row;
            }
        }
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(room.tag(turn.place, lane)), "r"(tag) : "memory");
        cp_async_mbarrier_arrive(room.full(turn.place));
        __syncwarp();
        if (lane == 0) room.full(turn.place).arrive();
        step = after;
    }
}

// x, by some warps: 64 columns of sixteen tokens at a time, half of a token's to a lane. Pair 8q + k of an entry's 32 pairs of values
// goes to chunk k, place q: a lane with quarter q of an entry of W has pairs 8q to 8q + 7, and products take chunks.
template <class S>
struct FetchX {
    static constexpr u32 EACH = S::TOKENS > TILE_ROWS ? S::TOKENS / TILE_ROWS : 1;  // pieces of an entry
    static constexpr u32 PIECES = S::ENTRIES * EACH;
    const Linear& linear;
    const Line<S>& line;
    const Room<S>& room;
    u32 lane, warp;

    BUDDY_FN bool is(const Step<S>& step, u32 piece, u32& token) const {
        token = step.token(line) + piece % EACH * TILE_ROWS + lane / 2;
        return piece / EACH < step.entries(line) && piece % EACH * TILE_ROWS + lane / 2 < S::TOKENS && token < linear.tokens;
    }
    BUDDY_FN void load(const Step<S>& step, u32 piece, uint4 (&v)[4]) const {
        u32 token;
        if (!is(step, piece, token)) return;
        u64 at = (u64)token * line.per_row + step.at * S::ENTRIES + piece / EACH;
        const uint4* from = (const uint4*)(linear.x + at * ENTRY) + lane % 2;
        BUDDY_UNROLL
        for (u32 q = 0; q < 4; q++) v[q] = __ldcg(from + 2 * q);
    }
    BUDDY_FN void store(const Step<S>& step, u32 place, u32 piece, const uint4 (&v)[4]) const {
        u32 token, row = piece % EACH * TILE_ROWS + lane / 2;
        if (!is(step, piece, token)) return;
        u32 to = room.x(place, piece / EACH) + row * ENTRY, first = lane % 2 * 4;
        sts128(to + ((first + 0) ^ row % 8) * CHUNK, make_uint4(v[0].x, v[1].x, v[2].x, v[3].x));
        sts128(to + ((first + 1) ^ row % 8) * CHUNK, make_uint4(v[0].y, v[1].y, v[2].y, v[3].y));
        sts128(to + ((first + 2) ^ row % 8) * CHUNK, make_uint4(v[0].z, v[1].z, v[2].z, v[3].z));
        sts128(to + ((first + 3) ^ row % 8) * CHUNK, make_uint4(v[0].w, v[1].w, v[2].w, v[3].w));
    }
    BUDDY_FN void all() const {
        u64 begin = line.start(blockIdx.x), end = line.start(blockIdx.x + 1);
        Step<S> step(line, begin);
        Turn<S::STAGES> turn;
        uint4 next[4];
        wait_on_dependent_grids();
        if (begin < end && warp < PIECES) load(step, warp, next);
#pragma unroll 1
        for (u64 i = begin; i < end; i++, turn.next()) {
            Step<S> after = step;
            after.next(line);
            room.x_empty(turn.place).wait(turn.round ^ 1);
#pragma unroll 1
            for (u32 piece = warp; piece < PIECES; piece += S::X_WARPS) {
                uint4 now[4];
                BUDDY_UNROLL
                for (u32 q = 0; q < 4; q++) now[q] = next[q];
                // The next piece is on its way meanwhile.
                if (piece + S::X_WARPS < PIECES) load(step, piece + S::X_WARPS, next);
                else if (i + 1 < end) load(after, warp, next);
                store(step, turn.place, piece, now);
            }
            fence_proxy_async();
            __syncwarp();
            if (lane == 0) room.full(turn.place).arrive();
            step = after;
        }
    }
};

}  // namespace buddy
