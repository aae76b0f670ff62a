// What brings the steps of a linear layer into shared memory: a warp that asks the copy engine for weights, one for their
// nibbles and for what overflows, and a thread for x. Each goes its own way, as far ahead as there is room.
#pragma once
#include "linear_odd.cuh"

namespace buddy {

// Weights of all steps of this block, by one warp: a lane asks for the entries of a tile. One thread alone begins a copy in 66 ns, which
// is too slow for short ones.
template <class S>
struct FetchWeights {
    const Linear& linear;
    const Line<S>& line;
    const Room<S>& room;
    u64 pitch, policy;
    u32 all, at, end;
    Step<S> step;
    Turn<S::STAGES> turn;

    BUDDY_FN FetchWeights(const Linear& linear, const Line<S>& line, const Room<S>& room)
        : linear(linear), line(line), room(room), at(line.begin()), end(line.end()), step(line, at) {
        pitch = (u64)line.per_row * Weights::COLUMN, policy = evict_first_policy(), all = (linear.outputs + TILE_ROWS - 1) / TILE_ROWS;
    }
    // The next one, if there is one.
    BUDDY_FN void next() {
        u32 first = step.row_tile(line), tiles = first < all ? min(S::TILES, all - first) : 0, bytes = step.entries(line) * Weights::COLUMN;
        u32 lane = threadIdx.x % WARP;
        if (lane == 0) room.come(turn.place).arrive_expect_tx(tiles * bytes);
        const u8* from = linear.weights.device + (first + lane) * pitch + step.at * S::TILE;
        if (lane < tiles) cp_async_bulk(room.column(turn.place, lane, 0), from, bytes, room.come(turn.place), policy);
        at++, step.next(line), turn.next();
    }
    // As many as there is room for at once.
    BUDDY_FN void first() {
#pragma unroll 1
        for (u32 i = 0; i < S::STAGES && at < end; i++) next();
    }
    BUDDY_FN void others() {
#pragma unroll 1
        while (at < end) room.empty(turn.place).wait(turn.round ^ 1), next();
    }
};

// Nibbles, by one warp, a column of sixteen to a lane at a time; and for each lane the last sector of the first of its entries
// that overflows.
template <class S>
BUDDY_FN void fetch_nibbles(const Linear& linear, const Line<S>& line, const Room<S>& room) {
    constexpr u32 EACH = (S::COLUMNS + WARP - 1) / WARP;
    u32 lane = threadIdx.x % WARP, all = (linear.outputs + TILE_ROWS - 1) / TILE_ROWS;
    const Weights& weights = linear.weights;
    // Those of the next step and of the one after it are on their way.
    uint2 next[2][EACH];
    Turn<S::STAGES> turn;
    u32 begin = line.begin(), end = line.end();
    Step<S> step(line, begin), ahead = step;
    // Where there is no column, as if all its entries were in layout B: nobody looks at their sums.
    auto look_ahead = [&](uint2 (&to)[EACH]) {
        u32 entries = ahead.entries(line), first = ahead.row_tile(line);
        BUDDY_UNROLL
        for (u32 i = 0; i < EACH; i++) {
            u32 column = i * WARP + lane, tile = first + column / S::ENTRIES, e = column % S::ENTRIES;
            u64 at = (u64)tile * line.per_row + ahead.at * S::ENTRIES + e;
            bool is = !IS_PLAIN && column < S::COLUMNS && tile < all && e < entries;
            to[i] = is ? __ldg((const uint2*)weights.nibbles + at) : make_uint2(0x66666666u, 0x66666666u);
        }
        ahead.next(line);
    };
    look_ahead(next[0]), look_ahead(next[1]);
#pragma unroll 1
    for (u32 i = begin; i < end; i++, step.next(line), turn.next()) {
        uint2 now[EACH];
        BUDDY_UNROLL
        for (u32 k = 0; k < EACH; k++) now[k] = next[0][k], next[0][k] = next[1][k];
        look_ahead(next[1]);
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
        sts32(room.tag(turn.place, lane), tag);
        TakeSlots<S>{room, lane}.all(turn.place, now);
        cp_async_mbarrier_arrive(room.come(turn.place));
        __syncwarp();
        if (lane == 0) room.come(turn.place).arrive();
    }
}

// x, by one thread: 64 columns of all tokens of a tile at a time, as products want them; tokens past the last are zeros. A block of a
// cluster asks for its share of the tokens, for all of them.
template <u32 STAGES, class S, class Room>
BUDDY_FN void fetch_x(const TensorMap& x, const Line<S>& line, const Room& room) {
    u32 begin = line.begin(), end = line.end();
    Step<S> step(line, begin);
    Turn<STAGES> turn;
    wait_on_dependent_grids();
#pragma unroll 1
    for (u32 i = begin; i < end; i++, step.next(line), turn.next()) {
        room.x_empty(turn.place).wait(turn.round ^ 1);
        u32 entries = step.entries(line);
        room.full(turn.place).arrive_expect_tx(entries * S::X_ENTRY);
#pragma unroll 1
        for (u32 e = 0; e < entries; e++) {
            u32 to = room.x(turn.place, e) + line.rank() * S::X_SHARE, column = (step.at * S::ENTRIES + e) * VALUES;
            u32 token = step.token(line) + line.rank() * (S::TOKENS / S::CLUSTER);
            if (S::CLUSTER == 1) cp_async_bulk_tensor(to, x, column, token, room.full(turn.place));
            else cp_async_bulk_tensor_multicast(to, x, column, token, room.full(turn.place), (1 << S::CLUSTER) - 1);
        }
    }
}

}  // namespace buddy
