// The product's plan: the tile scheduler of its persistent blocks, and the ring of stages in shared memory through which a
// producer warp feeds the consumers. docs/reference/device-header.md has a drawing.
#pragma once
#include "buddy_device.cuh"
#include "bulk.cuh"

namespace buddy {

// The shape, from Rust: consumer warps (mma), stages of the ring, epilogue warps.
constexpr u32 MMA_WARPS = BUDDY_PRODUCT_MMA_WARPS, STAGES = BUDDY_PRODUCT_STAGES, EPILOGUE_WARPS = BUDDY_PRODUCT_EPILOGUE_WARPS;
constexpr u32 ROWS = 16, VALUES = ENTRY / 2;
// A step is a k-block: entries of a row that are a consumer warp's in it, and all of them.
constexpr u32 SHARE = 4, STEP = MMA_WARPS * SHARE;

struct Shape {
    u32 rows, columns, sides;
    u32 panel;  // split-K: entries of a row in a panel, a multiple of a step's

    BUDDY_FN u32 tiles() const { return rows / ROWS; }
    BUDDY_FN u32 per_row() const { return columns / VALUES; }
    BUDDY_FN u32 panels() const { return (per_row() + panel - 1) / panel; }
    // The entries of a panel; the last one may have fewer.
    BUDDY_FN u32 width(u32 at) const { return min(panel, per_row() - at * panel); }
};

// What a block works on: a tile of sixteen rows, a panel of it, and a step in that.
struct WorkTile {
    static constexpr u32 NONE = ~0u;
    u32 tile, panel, step;

    BUDDY_FN bool none() const { return tile == NONE; }
    BUDDY_FN bool is_last(const Shape& shape) const { return (step + 1) * STEP == shape.width(panel); }
    // The first entry of its first row.
    BUDDY_FN u64 entry(const Shape& shape) const {
        return (u64)(tile * ROWS) * shape.per_row() + panel * shape.panel + step * STEP;
    }
    // The first step of a tile, if there is such a tile.
    static BUDDY_FN WorkTile of(const Shape& shape, u32 tile, u32 panel) { return {tile < shape.tiles() ? tile : NONE, panel, 0}; }
    // A block's first one, without asking the scheduler. Blocks have the panels in turn, and each keeps its own while there
    // is work: x seldom changes.
    static BUDDY_FN WorkTile first(const Shape& shape) {
        return of(shape, blockIdx.x / shape.panels(), blockIdx.x % shape.panels());
    }
};

// What consumers need to know of a step. The producer has the time to work it out.
struct Step {
    u32 tile, panel;
    u32 share;  // the first share of its first row, counted over the whole matrix
    u32 side;   // bytes from the beginning of the panel of x to what it multiplies by; and 1 for the last step of a panel

    BUDDY_FN bool none() const { return tile == WorkTile::NONE; }
    BUDDY_FN bool is_last() const { return side & 1; }
    BUDDY_FN u32 side_at() const { return side & ~1u; }
    static BUDDY_FN Step of(const Shape& shape, const WorkTile& work) {
        if (work.none()) return {WorkTile::NONE, 0, 0, 0};
        return {work.tile, work.panel, (u32)(work.entry(shape) / SHARE), work.step * STEP * ENTRY | work.is_last(shape)};
    }
};

// Where a warp is in a ring: its stage, and the parity of its phase, by which a barrier is waited for.
template <u32 OF>
struct PipelineState {
    u32 stage = 0, phase = 0;

    BUDDY_FN void advance() {
        stage = stage + 1 == OF ? 0 : stage + 1;
        phase ^= stage == 0;
    }
};

// The scheduler's counters: blocks that have ended, panels of each tile that have, and the next tile of each panel. Zeros before
// and after.
struct Counters {
    u32* at;

    BUDDY_FN u32* blocks_done() const { return at; }
    BUDDY_FN u32* panels_done(u32 tile) const { return at + 1 + tile; }
    BUDDY_FN u32* next_tile(const Shape& shape, u32 panel) const { return at + 1 + shape.tiles() + panel; }
};

// Shared memory: the ring's stages, slots of sums for the epilogue, a descriptor for each, mbarriers, and x.
template <class Weights>
struct SharedStorage {
    // Rows begin at multiples of 128 bytes, as in memory: elsewhere bulk copies are slower by a tenth.
    static constexpr u32 ROW = STEP * Weights::BYTES, STAGE = ROWS * ROW, SLOT = MMA_WARPS * WARP * 16;
    static constexpr u32 AT_SUMS = STAGES * STAGE, AT_DESCRIPTORS = AT_SUMS + EPILOGUE_WARPS * SLOT;
    static constexpr u32 AT_OVERFLOW = AT_DESCRIPTORS + 16 * STAGES, AT_TAGS = AT_OVERFLOW + MMA_WARPS * 8 * SECTOR;
    static constexpr u32 AT_BARRIERS = AT_TAGS + 8 * EPILOGUE_WARPS;
    static constexpr u32 AT_X = (AT_BARRIERS + 16 * (STAGES + EPILOGUE_WARPS) + 8 + 127) / 128 * 128;
    u32 base;

    BUDDY_FN u32 stage(u32 stage) const { return base + stage * STAGE; }
    BUDDY_FN u32 sums(u32 slot) const { return base + AT_SUMS + slot * SLOT; }
    // What the step after the one in this stage is, and whose sums these are: a tile and a panel.
    BUDDY_FN u32 descriptor(u32 stage) const { return base + AT_DESCRIPTORS + 16 * stage; }
    BUDDY_FN u32 sums_tag(u32 slot) const { return base + AT_TAGS + 8 * slot; }
    // Where an overflowing entry's last quarter is prefetched to across the link: one for each pair of rows of a warp.
    BUDDY_FN u32 overflow(u32 warp, u32 row) const { return base + AT_OVERFLOW + (warp * 8 + row) * SECTOR; }
    // The ring's, consumers to epilogue's, and x's: a panel of it is there.
    BUDDY_FN Barrier full(u32 stage) const { return {base + AT_BARRIERS + 16 * stage}; }
    BUDDY_FN Barrier empty(u32 stage) const { return {full(stage).at + 8}; }
    BUDDY_FN Barrier sums_full(u32 slot) const { return {base + AT_BARRIERS + 16 * (STAGES + slot)}; }
    BUDDY_FN Barrier sums_empty(u32 slot) const { return {sums_full(slot).at + 8}; }
    BUDDY_FN Barrier x_full() const { return {base + AT_BARRIERS + 16 * (STAGES + EPILOGUE_WARPS)}; }
    // A side of the panel of x, padded by 16 bytes, so that lanes of two sides read from different banks.
    BUDDY_FN u32 x(const Shape& shape, u32 side) const { return base + AT_X + side * (shape.panel * ENTRY + 16); }

    BUDDY_FN void init() const {
        for (u32 stage = 0; stage < STAGES; stage++) full(stage).init(1), empty(stage).init(MMA_WARPS);
        for (u32 slot = 0; slot < EPILOGUE_WARPS; slot++) sums_full(slot).init(MMA_WARPS), sums_empty(slot).init(1);
        x_full().init(1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
};

}  // namespace buddy
