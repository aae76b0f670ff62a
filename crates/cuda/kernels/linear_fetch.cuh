// What brings the steps of a linear layer into shared memory: warps for weights, one for their nibbles and for what overflows,
// and some for x. Each goes its own way, as far ahead as there is room.
#pragma once
#include "linear_plan.cuh"

namespace buddy {

BUDDY_FN void fetch_word(u32 to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
// The barrier counts this lane once its copies so far have come.
BUDDY_FN void arrive_with_copies(Barrier barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier.at) : "memory");
}

// Weights of all steps of this block, by some warps, each of which takes rows of every step.
template <class S>
BUDDY_FN void fetch_weights(const Linear& linear, const Line<S>& line, const Room<S>& room, u32 warp) {
    // 96 chunks, three to a lane, are a whole number of rows.
    constexpr u32 CHUNKS_OF_ROW = S::ROW / CHUNK, ROWS = 3 * WARP / CHUNKS_OF_ROW, EACH = S::ROWS / WEIGHT_WARPS;
    u32 lane = threadIdx.x % WARP, row[3], byte[3], to[3];
    BUDDY_UNROLL
    for (u32 i = 0; i < 3; i++) {
        u32 at = i * WARP + lane;
        row[i] = warp * EACH + at / CHUNKS_OF_ROW, byte[i] = at % CHUNKS_OF_ROW * CHUNK, to[i] = S::place(row[i], byte[i]);
    }
    u32 pitch = line.per_row * Weights::BYTES;
    Turn<S::STAGES> turn;
    u64 end = line.start(blockIdx.x + 1);
    Step<S> step(line, line.start(blockIdx.x));
#pragma unroll 1
    for (u64 i = line.start(blockIdx.x); i < end; i++, step.next(line), turn.next()) {
        room.used(turn.place).wait(turn.round ^ 1);
        u32 first = step.row(line), rows = min(S::ROWS, linear.outputs - first), bytes = step.entries(line) * Weights::BYTES;
        const u8* from = linear.weights.device + (u64)first * pitch + step.at * S::ROW;
        u32 stage = room.step(turn.place);
        if (rows == S::ROWS && bytes == S::ROW) {
            const u8* at[3];
            BUDDY_UNROLL
            for (u32 k = 0; k < 3; k++) at[k] = from + (u64)row[k] * pitch + byte[k];
            BUDDY_UNROLL
            for (u32 r = 0; r < EACH; r += ROWS) {
                BUDDY_UNROLL
                for (u32 k = 0; k < 3; k++) fetch<CHUNK>(stage + to[k] + r * S::ROW, at[k] + (u64)r * pitch);
            }
        } else {
            BUDDY_ROLLED
            for (u32 r = 0; r < EACH; r += ROWS) {
                BUDDY_UNROLL
                for (u32 k = 0; k < 3; k++) {
                    // Rows below the last are the last once more; nobody looks at their sums.
                    const u8* at = from + (u64)min(row[k] + r, rows - 1) * pitch + byte[k];
                    if (byte[k] < bytes) fetch<CHUNK>(stage + to[k] + r * S::ROW, at);
                }
            }
        }
        arrive_with_copies(room.come(turn.place));
    }
}

// Nibbles, by one warp, and for each lane the last sector of the first of its entries that overflows.
template <class S>
BUDDY_FN void fetch_nibbles(const Linear& linear, const Line<S>& line, const Room<S>& room) {
    constexpr u32 EACH = S::ROWS / WARP, KEPT = (1u << 4 * S::ENTRIES) - 1;
    u32 lane = threadIdx.x % WARP, next[EACH];
    const Weights& weights = linear.weights;
    Turn<S::STAGES> turn;
    u64 begin = line.start(blockIdx.x), end = line.start(blockIdx.x + 1);
    Step<S> step(line, begin);
    auto entry = [&](const Step<S>& step, u32 i) {
        u32 row = min(step.row(line) + i * WARP + lane, linear.outputs - 1);
        return (u64)row * line.per_row + step.at * S::ENTRIES;
    };
    auto look_at = [&](const Step<S>& step) {
        BUDDY_UNROLL
        for (u32 i = 0; i < EACH; i++) next[i] = weights.nibbles_from(entry(step, i));
    };
    if (begin < end) look_at(step);
#pragma unroll 1
    for (u64 at = begin; at < end; at++, turn.next()) {
        u32 now[EACH], raw[EACH], tag = ~0u, kept = KEPT >> 4 * (S::ENTRIES - step.entries(line));
        BUDDY_UNROLL
        for (u32 i = 0; i < EACH; i++) now[i] = next[i], raw[i] = equal_nibbles(now[i], RAW) & kept;
        Step<S> after = step;
        after.next(line);
        if (at + 1 < end) look_at(after);
        room.used(turn.place).wait(turn.round ^ 1);
        BUDDY_UNROLL
        for (u32 i = 0; i < EACH; i++) {
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(room.nibbles(turn.place, i * WARP + lane)), "r"(now[i]) : "memory");
            if (raw[i] != 0 && tag == ~0u) {
                u32 e = trailing_zeros(raw[i]) / 4;
                const u8* from = weights.last_sector(entry(step, i) + e);
                if (from == nullptr) continue;
                fetch<CHUNK>(room.near(turn.place, lane), from), fetch<CHUNK>(room.near(turn.place, lane) + CHUNK, from + CHUNK);
                tag = (i * WARP + lane) * 4 + e;
            }
        }
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(room.tag(turn.place, lane)), "r"(tag) : "memory");
        arrive_with_copies(room.come(turn.place));
        __syncwarp();
        if (lane == 0) room.come(turn.place).arrive();
        step = after;
    }
}

// x, by some warps, each with every so manieth token. Pair 8q + k of an entry's 32 pairs of values goes to chunk k, place q: a lane
// with quarter q of an entry of W has pairs 8q to 8q + 7, and products take chunks.
template <class S>
BUDDY_FN void fetch_x(const Linear& linear, const Line<S>& line, const Room<S>& room, u32 warp) {
    u32 lane = threadIdx.x % WARP, chunk = lane % 8 * CHUNK, quarter = lane / 8 * 4;
    Turn<S::STAGES> turn;
    u64 end = line.start(blockIdx.x + 1), pitch = (u64)linear.inputs * 2;
    Step<S> step(line, line.start(blockIdx.x));
    wait_for_kernel_before();
#pragma unroll 1
    for (u64 i = line.start(blockIdx.x); i < end; i++, step.next(line), turn.next()) {
        room.used(turn.place).wait(turn.round ^ 1);
        u32 first = step.token(line), tokens = min(S::TOKENS, linear.tokens - first), entries = step.entries(line);
        const u8* from = linear.x + first * pitch + (u64)step.at * S::ENTRIES * ENTRY + lane * 4;
        for (u32 e = 0; e < entries; e++) {
            u32 to = room.x(turn.place, e) + quarter;
            const u8* row = from + e * ENTRY + warp * pitch;
#pragma unroll 4
            for (u32 t = warp; t < tokens; t += X_WARPS, row += X_WARPS * pitch) {
                fetch_word(to + t * ENTRY + (chunk ^ t % 8 * CHUNK), row);
            }
        }
        arrive_with_copies(room.come(turn.place));
    }
}

}  // namespace buddy
