// The product's plan: what there is to do, in which order and by whom, and where it lies in shared memory meanwhile.
#pragma once
#include "buddy_device.cuh"
#include "bulk.cuh"

namespace buddy {

// The shape, from Rust: warps that multiply, steps that have room in shared memory, warps that add up.
constexpr u32 WARPS = BUDDY_PRODUCT_WARPS, STAGES = BUDDY_PRODUCT_STAGES, ADDERS = BUDDY_PRODUCT_ADDERS;
constexpr u32 ROWS = 16, VALUES = ENTRY / 2;
// Entries of a row that are a warp's in a step, and a step's.
constexpr u32 SHARE = 4, STEP = WARPS * SHARE;

struct Shape {
    u32 rows, columns, sides;
    u32 panel;  // entries of a row, a multiple of a step's

    BUDDY_FN u32 tiles() const { return rows / ROWS; }
    BUDDY_FN u32 per_row() const { return columns / VALUES; }
    BUDDY_FN u32 panels() const { return (per_row() + panel - 1) / panel; }
    // The entries of a panel; the last one may have fewer.
    BUDDY_FN u32 width(u32 at) const { return min(panel, per_row() - at * panel); }
};

// Sixteen rows (a tile), a panel of them, and a step in it.
struct Part {
    static constexpr u32 NONE = ~0u;
    u32 tile, panel, step;

    BUDDY_FN bool none() const { return tile == NONE; }
    BUDDY_FN bool is_last(const Shape& shape) const { return (step + 1) * STEP == shape.width(panel); }
    // The first entry of its first row.
    BUDDY_FN u64 entry(const Shape& shape) const {
        return (u64)(tile * ROWS) * shape.per_row() + panel * shape.panel + step * STEP;
    }
    // The first step of a tile, if there is such a tile.
    static BUDDY_FN Part of(const Shape& shape, u32 tile, u32 panel) { return {tile < shape.tiles() ? tile : NONE, panel, 0}; }
    // A block's first one. Blocks have the panels in turn, and each keeps its own while there is work: x seldom changes.
    static BUDDY_FN Part first(const Shape& shape) {
        return of(shape, blockIdx.x / shape.panels(), blockIdx.x % shape.panels());
    }
};

// What the warps that multiply need to know of a step. The one that fetches has the time to work it out.
struct Step {
    u32 tile, panel;
    u32 share;  // the first share of its first row, counted over the whole matrix
    u32 side;   // bytes from the beginning of the panel of x to what it multiplies by; and 1 for the last step of a panel

    BUDDY_FN bool none() const { return tile == Part::NONE; }
    BUDDY_FN bool is_last() const { return side & 1; }
    BUDDY_FN u32 side_at() const { return side & ~1u; }
    static BUDDY_FN Step of(const Shape& shape, const Part& part) {
        if (part.none()) return {Part::NONE, 0, 0, 0};
        return {part.tile, part.panel, (u32)(part.entry(shape) / SHARE), part.step * STEP * ENTRY | part.is_last(shape)};
    }
};

// The next of `OF` places, and the parity of the rounds so far, by which a barrier is waited for.
template <u32 OF>
struct Turn {
    u32 place = 0, round = 0;

    BUDDY_FN void next() {
        place = place + 1 == OF ? 0 : place + 1;
        round ^= place == 0;
    }
};

// Blocks that are done, panels that are, by tile, and tiles that blocks have taken, by panel. Zeros before and after.
struct Counts {
    u32* at;

    BUDDY_FN u32* blocks() const { return at; }
    BUDDY_FN u32* done(u32 tile) const { return at + 1 + tile; }
    BUDDY_FN u32* taken(const Shape& shape, u32 panel) const { return at + 1 + shape.tiles() + panel; }
};

// Where things lie in shared memory: steps of rows, sums of warps, what steps and sums are of, barriers, and x.
template <class Weights>
struct Room {
    // Rows begin at multiples of 128 bytes, as in memory: elsewhere the copy engine is slower by a tenth.
    static constexpr u32 ROW = STEP * Weights::BYTES, STAGE = ROWS * ROW, SLOT = WARPS * WARP * 16;
    static constexpr u32 AT_SUMS = STAGES * STAGE, AT_NOTES = AT_SUMS + ADDERS * SLOT;
    static constexpr u32 AT_NEAR = AT_NOTES + 16 * STAGES, AT_NAMES = AT_NEAR + WARPS * 8 * SECTOR;
    static constexpr u32 AT_BARRIERS = AT_NAMES + 8 * ADDERS;
    static constexpr u32 AT_SIDES = (AT_BARRIERS + 16 * (STAGES + ADDERS) + 8 + 127) / 128 * 128;
    u32 shared;

    BUDDY_FN u32 stage(u32 place) const { return shared + place * STAGE; }
    BUDDY_FN u32 sums(u32 slot) const { return shared + AT_SUMS + slot * SLOT; }
    // What the step after the one in this place is, and whose sums these are: a tile and a panel.
    BUDDY_FN u32 note(u32 place) const { return shared + AT_NOTES + 16 * place; }
    BUDDY_FN u32 name(u32 slot) const { return shared + AT_NAMES + 8 * slot; }
    // Room for one last quarter from across the link, for each pair of rows of a warp.
    BUDDY_FN u32 near(u32 warp, u32 row) const { return shared + AT_NEAR + (warp * 8 + row) * SECTOR; }
    // A step has come; all are done with it; a tile's sums are there; they are added up; a panel of x has come.
    BUDDY_FN Barrier come(u32 place) const { return {shared + AT_BARRIERS + 16 * place}; }
    BUDDY_FN Barrier used(u32 place) const { return {come(place).at + 8}; }
    BUDDY_FN Barrier found(u32 slot) const { return {shared + AT_BARRIERS + 16 * (STAGES + slot)}; }
    BUDDY_FN Barrier added(u32 slot) const { return {found(slot).at + 8}; }
    BUDDY_FN Barrier sides() const { return {shared + AT_BARRIERS + 16 * (STAGES + ADDERS)}; }
    // A side of the panel of x. Each begins 16 bytes out of step with the one before, so that lanes of two of them read from
    // different banks.
    BUDDY_FN u32 side(const Shape& shape, u32 side) const { return shared + AT_SIDES + side * (shape.panel * ENTRY + 16); }

    BUDDY_FN void init() const {
        for (u32 place = 0; place < STAGES; place++) come(place).init(1), used(place).init(WARPS);
        for (u32 slot = 0; slot < ADDERS; slot++) found(slot).init(WARPS), added(slot).init(1);
        sides().init(1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
};

}  // namespace buddy
