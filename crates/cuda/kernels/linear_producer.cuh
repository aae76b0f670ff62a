// Producer warps of the linear kernel: packed weights, their nibbles and overflow sectors, and x.
// Each runs ahead of the consumers as far as its empty barriers allow.
#pragma once
#include "linear_fragment.cuh"

namespace buddy {

// Loads packed weights, with one warp: a lane copies the entries of a 16-row tile. Issuing a copy
// takes a thread 66 ns, so one thread alone would be too slow.
template <class S>
struct WeightsProducer {
    const Linear& linear;
    const TileScheduler<S>& scheduler;
    const SharedStorage<S>& smem;
    u64 pitch, policy;
    u32 all, at, end;
    KBlock<S> k_block;
    PipelineState<S::STAGES> state;

    BUDDY_FN WeightsProducer(const Linear& linear, const TileScheduler<S>& scheduler, const SharedStorage<S>& smem)
        : linear(linear), scheduler(scheduler), smem(smem), at(scheduler.begin()), end(scheduler.end()), k_block(scheduler, at) {
        pitch = (u64)scheduler.per_row * PackedMatrixView::COLUMN, policy = evict_first_policy(), all = (linear.outputs + TILE_ROWS - 1) / TILE_ROWS;
    }
    // Loads the next k-block into its stage.
    BUDDY_FN void load_next() {
        if (S::GROUPED) all = k_block.end_tile(scheduler);
        u32 first = k_block.row_tile(scheduler), tiles = first < all ? min(S::TILES, all - first) : 0, bytes = k_block.entries(scheduler) * PackedMatrixView::COLUMN;
        u32 lane = threadIdx.x % WARP;
        if (lane == 0) smem.weights_full(state.stage).arrive_expect_tx(tiles * bytes);
        const u8* from = linear.weights.device + (first + lane) * pitch + k_block.k * S::TILE_BYTES;
        if (lane < tiles) cp_async_bulk(smem.column(state.stage, lane, 0), from, bytes, smem.weights_full(state.stage), policy);
        at++, k_block.advance(scheduler), state.advance();
    }
    // Fills the ring: the first `STAGES` k-blocks, which need no wait.
    BUDDY_FN void fill_ring() {
#pragma unroll 1
        for (u32 i = 0; i < S::STAGES && at < end; i++) load_next();
    }
    BUDDY_FN void run() {
#pragma unroll 1
        while (at < end) smem.weights_empty(state.stage).wait(state.phase ^ 1), load_next();
    }
};

// Loads what the tight layout has besides columns, with one warp, a column to a lane: descriptors,
// extra words and row bytes.
template <class S>
BUDDY_FN void produce_tight(const Linear& linear, const TileScheduler<S>& scheduler, const SharedStorage<S>& smem) {
    static_assert(S::COLUMNS <= WARP, "a lane has a column");
    u32 lane = threadIdx.x % WARP, all = (linear.outputs + TILE_ROWS - 1) / TILE_ROWS, tile = lane / S::ENTRIES, e = lane % S::ENTRIES;
    const PackedMatrixView& weights = linear.weights;
    const u8* rows = weights.row_bytes(linear.outputs, scheduler.per_row);
    PipelineState<S::STAGES> state;
    u32 begin = scheduler.begin(), end = scheduler.end();
    KBlock<S> k_block(scheduler, begin), ahead = k_block;
    auto has_column = [&](const KBlock<S>& of) { return lane < S::COLUMNS && of.row_tile(scheduler) + tile < all && e < of.entries(scheduler); };
    // Columns of the next two k-blocks, in flight.
    TightColumn next[2];
    auto load_next = [&] {
        TightColumn column = TightColumn::load(weights, scheduler.per_row, ahead.row_tile(scheduler) + tile, ahead.k * S::ENTRIES + e, has_column(ahead));
        ahead.advance(scheduler);
        return column;
    };
    next[0] = load_next(), next[1] = load_next();
#pragma unroll 1
    for (u32 i = begin; i < end; i++, k_block.advance(scheduler), state.advance()) {
        TightColumn now = next[0];
        next[0] = next[1], next[1] = load_next();
        smem.weights_empty(state.stage).wait(state.phase ^ 1);
        u32 first = lane - e, last = min(first + k_block.entries(scheduler) - 1, WARP - 1);
        bool is = has_column(k_block);
        u32 to = smem.extra(state.stage, lane < S::COLUMNS ? tile : 0), descriptor = smem.nibbles(state.stage, min(lane, S::COLUMNS - 1));
        u32 bytes = now.copy(weights, lane, first, last, is, to, S::ENTRIES * Tight::RESERVE, lane < S::COLUMNS ? descriptor : 0, smem.weights_full(state.stage));
        if (is && e == 0) {
            u32 row_tile = k_block.row_tile(scheduler) + tile;
            cp_async_bulk(smem.rows(state.stage, tile), rows + row_tile * Tight::ROWS, Tight::ROWS, smem.weights_full(state.stage));
            bytes += Tight::ROWS;
        }
        for (u32 step = 1; step < WARP; step *= 2) bytes += __shfl_xor_sync(ALL, bytes, step);
        __syncwarp();
        if (lane == 0) smem.weights_full(state.stage).arrive_expect_tx(bytes);
    }
}

// Loads nibbles, with one warp: each lane takes columns of sixteen. Also prefetches, per lane, the
// last sector of the first of its entries that overflows.
template <class S>
BUDDY_FN void produce_nibbles(const Linear& linear, const TileScheduler<S>& scheduler, const SharedStorage<S>& smem) {
    constexpr u32 EACH = (S::COLUMNS + WARP - 1) / WARP;
    u32 lane = threadIdx.x % WARP, all = (linear.outputs + TILE_ROWS - 1) / TILE_ROWS;
    const PackedMatrixView& weights = linear.weights;
    // Nibbles of the next two k-blocks, in flight.
    uint2 next[2][EACH];
    PipelineState<S::STAGES> state;
    u32 begin = scheduler.begin(), end = scheduler.end();
    KBlock<S> k_block(scheduler, begin), ahead = k_block;
    // Columns past the end read as layout B; their accumulators are never stored.
    auto prefetch = [&](uint2 (&to)[EACH]) {
        u32 entries = ahead.entries(scheduler), first = ahead.row_tile(scheduler);
        if (S::GROUPED) all = ahead.end_tile(scheduler);
        BUDDY_UNROLL
        for (u32 i = 0; i < EACH; i++) {
            u32 column = i * WARP + lane, tile = first + column / S::ENTRIES, e = column % S::ENTRIES;
            u64 at = (u64)tile * scheduler.per_row + ahead.k * S::ENTRIES + e;
            bool is = !IS_PLAIN && column < S::COLUMNS && tile < all && e < entries;
            to[i] = is ? __ldg((const uint2*)weights.nibbles + at) : make_uint2(0x66666666u, 0x66666666u);
        }
        ahead.advance(scheduler);
    };
    prefetch(next[0]), prefetch(next[1]);
#pragma unroll 1
    for (u32 i = begin; i < end; i++, k_block.advance(scheduler), state.advance()) {
        uint2 now[EACH];
        BUDDY_UNROLL
        for (u32 k = 0; k < EACH; k++) now[k] = next[0][k], next[0][k] = next[1][k];
        prefetch(next[1]);
        smem.weights_empty(state.stage).wait(state.phase ^ 1);
        u32 owner = ~0u;
        BUDDY_UNROLL
        for (u32 k = 0; k < EACH; k++) {
            u32 column = k * WARP + lane;
            if (column < S::COLUMNS) sts64(smem.nibbles(state.stage, column), now[k]);
            u32 upper = equal_nibbles(now[k].x, RAW), lower = equal_nibbles(now[k].y, RAW);
            if ((upper | lower) != 0 && owner == ~0u) {
                u32 row = upper != 0 ? trailing_zeros(upper) / 4 : 8 + trailing_zeros(lower) / 4;
                u64 at = (u64)(k_block.row_tile(scheduler) + column / S::ENTRIES) * scheduler.per_row + k_block.k * S::ENTRIES + column % S::ENTRIES;
                const u8* from = weights.last_sector(at * TILE_ROWS + row);
                if (from == nullptr) continue;
                cp_async<CHUNK>(smem.tail(state.stage, lane), from), cp_async<CHUNK>(smem.tail(state.stage, lane) + CHUNK, from + CHUNK);
                owner = column * TILE_ROWS + row;
            }
        }
        sts32(smem.tail_owner(state.stage, lane), owner);
        SlotAllocator<S>{smem, lane}.allocate(state.stage, now);
        cp_async_mbarrier_arrive(smem.weights_full(state.stage));
        __syncwarp();
        if (lane == 0) smem.weights_full(state.stage).arrive();
    }
}

// Loads x by TMA, with one thread: boxes of 64 columns, swizzled for wgmma, zero-filled past the
// last token. Each CTA of a cluster loads its share of the tokens and multicasts it.
template <u32 STAGES, class S, class Storage>
BUDDY_FN void produce_x(const TensorMap& x, const TileScheduler<S>& scheduler, const Storage& smem) {
    u32 begin = scheduler.begin(), end = scheduler.end();
    KBlock<S> k_block(scheduler, begin);
    PipelineState<STAGES> state;
    wait_on_dependent_grids();
#pragma unroll 1
    for (u32 i = begin; i < end; i++, k_block.advance(scheduler), state.advance()) {
        smem.x_empty(state.stage).wait(state.phase ^ 1);
        u32 entries = k_block.entries(scheduler);
        smem.full(state.stage).arrive_expect_tx(entries * S::X_ENTRY);
#pragma unroll 1
        for (u32 e = 0; e < entries; e++) {
            u32 to = smem.x(state.stage, e) + scheduler.rank() * S::X_SHARE, column = (k_block.k * S::ENTRIES + e) * VALUES;
            u32 token = k_block.token(scheduler) + scheduler.rank() * (S::TOKENS / S::CLUSTER);
            if (S::CLUSTER == 1) cp_async_bulk_tensor(to, x, column, token, smem.full(state.stage));
            else cp_async_bulk_tensor_multicast(to, x, column, token, smem.full(state.stage), (1 << S::CLUSTER) - 1);
        }
    }
}

}  // namespace buddy
