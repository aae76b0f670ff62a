// Work items and shared memory of the narrow linear kernel (narrow.cu), for up to 8 or 16 tokens.
//
// Persistent CTAs take 16-row tiles of W from a dynamic scheduler, since equal shares would not
// take equal time. x stays in shared memory; if it does not fit, K is split into panels. A CTA
// keeps to one panel while that has tiles left, then takes tiles of the next. The CTA that finishes
// a tile's last panel reduces the split-K partials, in a fixed order.
#pragma once
#include "linear_pipeline.cuh"

namespace buddy {
namespace narrow {

// Consumer warps (mma), stages of the ring, and epilogue warps.
constexpr u32 MMA_WARPS = BUDDY_NARROW_MMA_WARPS, STAGES = BUDDY_NARROW_STAGES, EPILOGUE_WARPS = BUDDY_NARROW_EPILOGUE_WARPS;
// A k-block has `WARP_COLUMNS` columns of entries per consumer warp, `BLOCK_COLUMNS` in all.
// `N8_TILES` is the number of 8-token groups, the n of an mma.
constexpr u32 X_CHUNKS = 3;
constexpr u32 WARP_COLUMNS = BUDDY_NARROW_WARP_COLUMNS, BLOCK_COLUMNS = MMA_WARPS * WARP_COLUMNS, N8_TILES = BUDDY_NARROW_N8_TILES;
// CTAs of a cluster, which begin with the same panel of x: each loads some of its tokens and
// multicasts them.
constexpr u32 CLUSTER = BUDDY_NARROW_CLUSTER;

// The layer's sizes, and how K is split.
struct Problem {
    u32 outputs, per_row, tokens;
    u32 panel;  // entries of a row in a panel, a multiple of BLOCK_COLUMNS

    BUDDY_FN u32 tiles() const { return (outputs + TILE_ROWS - 1) / TILE_ROWS; }
    BUDDY_FN u32 panels() const { return (per_row + panel - 1) / panel; }
    // Entries of a panel; the last may have fewer.
    BUDDY_FN u32 width(u32 at) const { return min(panel, per_row - at * panel); }
};

// A unit of work: a 16-row tile, a panel, and a k-block in it.
struct WorkTile {
    static constexpr u32 NONE = ~0u;
    u32 tile, panel, k_block;

    BUDDY_FN bool none() const { return tile == NONE; }
    BUDDY_FN bool is_last(const Problem& problem) const { return (k_block + 1) * BLOCK_COLUMNS >= problem.width(panel); }
    // The k-block's columns of entries, and the first one's index in the whole matrix.
    BUDDY_FN u32 columns(const Problem& problem) const { return min(BLOCK_COLUMNS, problem.width(panel) - k_block * BLOCK_COLUMNS); }
    BUDDY_FN u64 column(const Problem& problem) const { return (u64)tile * problem.per_row + panel * problem.panel + k_block * BLOCK_COLUMNS; }
    static BUDDY_FN WorkTile of(const Problem& problem, u32 tile, u32 panel) { return {tile < problem.tiles() ? tile : NONE, panel, 0}; }
    // A CTA's first work tile, which needs no scheduler. Clusters take the panels round-robin.
    static BUDDY_FN WorkTile first(const Problem& problem) {
        u32 cluster = blockIdx.x / CLUSTER, panels = problem.panels();
        return of(problem, cluster / panels * CLUSTER + blockIdx.x % CLUSTER, cluster % panels);
    }
    // Number of CTAs that begin with a panel.
    static BUDDY_FN u32 given(const Problem& problem, u32 panel) {
        u32 panels = problem.panels();
        return (gridDim.x / CLUSTER + panels - 1 - panel) / panels * CLUSTER;
    }
};

// Descriptor of a k-block, from the producer to the consumers.
struct KBlockInfo {
    u32 tile, panel;
    u32 columns;
    u32 x_offset;  // byte offset in the panel of x; bit 0 is set in the last k-block of a panel

    BUDDY_FN bool none() const { return tile == WorkTile::NONE; }
    BUDDY_FN bool is_last() const { return x_offset & 1; }
    BUDDY_FN u32 x_at() const { return x_offset & ~1u; }
    static BUDDY_FN KBlockInfo of(const Problem& problem, const WorkTile& work) {
        if (work.none()) return {WorkTile::NONE, 0, 0, 0};
        return {work.tile, work.panel, work.columns(problem), work.k_block * BLOCK_COLUMNS * ENTRY | work.is_last(problem)};
    }
};

// Global counters: finished CTAs; finished panels by tile; tiles taken by panel. Zero before and
// after.
struct Counters {
    u32* at;

    BUDDY_FN u32* blocks() const { return at; }
    BUDDY_FN u32* done(u32 tile) const { return at + 1 + tile; }
    BUDDY_FN u32* taken(const Problem& problem, u32 panel) const { return at + 1 + problem.tiles() + panel; }
};

// Layout of shared memory: packed k-blocks, accumulators for the epilogue warps, nibbles, overflow
// sectors and their owners, descriptors, barriers, and x.
struct SharedStorage {
    static constexpr u32 STAGE = BLOCK_COLUMNS * PackedMatrixView::STAGED, SLOT = N8_TILES * MMA_WARPS * WARP * 16;
    static constexpr u32 AT_ACCUMULATORS = STAGES * STAGE, AT_NIBBLES = AT_ACCUMULATORS + EPILOGUE_WARPS * SLOT, AT_TAILS = AT_NIBBLES + STAGES * BLOCK_COLUMNS * METADATA;
    static constexpr u32 AT_TAIL_OWNERS = AT_TAILS + STAGES * (IS_TIGHT ? Tight::ROWS : WARP * SECTOR), AT_DESCRIPTORS = AT_TAIL_OWNERS + (IS_TIGHT ? 0 : STAGES * WARP * 4);
    static constexpr u32 AT_EPILOGUE_TILES = AT_DESCRIPTORS + 16 * STAGES;
    static constexpr u32 AT_BARRIERS = AT_EPILOGUE_TILES + 8 * EPILOGUE_WARPS;
    static constexpr u32 AT_X = (AT_BARRIERS + 16 * (STAGES + EPILOGUE_WARPS) + 8 * X_CHUNKS + 127) / 128 * 128;
    u32 shared;

    BUDDY_FN u32 column(u32 stage, u32 column) const { return shared + stage * STAGE + column * PackedMatrixView::COLUMN; }
    // A lane's accumulators of eight tokens, from a consumer warp.
    BUDDY_FN u32 accumulators(u32 slot, u32 warp, u32 n8) const {
        return shared + AT_ACCUMULATORS + slot * SLOT + ((warp * N8_TILES + n8) * WARP + threadIdx.x % WARP) * 16;
    }
    BUDDY_FN u32 nibbles(u32 stage, u32 column) const { return shared + AT_NIBBLES + (stage * BLOCK_COLUMNS + column) * METADATA; }
    // Tight layout: the k-block's extra words, and its tile's row bytes.
    BUDDY_FN u32 extra(u32 stage) const { return shared + stage * STAGE + BLOCK_COLUMNS * PackedMatrixView::COLUMN; }
    BUDDY_FN u32 rows(u32 stage) const { return shared + AT_TAILS + stage * Tight::ROWS; }
    BUDDY_FN u32 tail(u32 stage, u32 lane) const { return shared + AT_TAILS + (stage * WARP + lane) * SECTOR; }
    BUDDY_FN u32 tail_owner(u32 stage, u32 lane) const { return shared + AT_TAIL_OWNERS + (stage * WARP + lane) * 4; }
    // Descriptor of the k-block after the one in this stage; and the tile and panel of an epilogue
    // slot.
    BUDDY_FN u32 descriptor(u32 stage) const { return shared + AT_DESCRIPTORS + 16 * stage; }
    BUDDY_FN u32 epilogue_tile(u32 slot) const { return shared + AT_EPILOGUE_TILES + 8 * slot; }
    // Barriers. full/empty: a stage of packed weights. epilogue_full/epilogue_empty: a slot of
    // accumulators. x_full: a chunk of the panel of x.
    BUDDY_FN Barrier full(u32 stage) const { return {shared + AT_BARRIERS + 16 * stage}; }
    BUDDY_FN Barrier empty(u32 stage) const { return {full(stage).at + 8}; }
    BUDDY_FN Barrier epilogue_full(u32 slot) const { return {shared + AT_BARRIERS + 16 * (STAGES + slot)}; }
    BUDDY_FN Barrier epilogue_empty(u32 slot) const { return {epilogue_full(slot).at + 8}; }
    BUDDY_FN Barrier x_full(u32 chunk) const { return {shared + AT_BARRIERS + 16 * (STAGES + EPILOGUE_WARPS) + 8 * chunk}; }
    // A token's row in the panel of x. Rows are padded by 16 bytes to avoid bank conflicts.
    BUDDY_FN u32 x_row(const Problem& problem, u32 token) const { return shared + AT_X + token * (problem.panel * ENTRY + 16); }

    BUDDY_FN void init() const {
        // full: one arrival with the bytes of weights, and one per producer lane with its overflow
        // sectors.
        for (u32 stage = 0; stage < STAGES; stage++) full(stage).init(IS_TIGHT ? 1 : 1 + WARP), empty(stage).init(MMA_WARPS);
        for (u32 slot = 0; slot < EPILOGUE_WARPS; slot++) epilogue_full(slot).init(MMA_WARPS * WARP), epilogue_empty(slot).init(WARP);
        for (u32 chunk = 0; chunk < X_CHUNKS; chunk++) x_full(chunk).init(1);
        fence_mbarrier_init();
    }
};

}  // namespace narrow
}  // namespace buddy
