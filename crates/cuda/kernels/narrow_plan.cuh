// The plan of a linear layer for few tokens, 1 to 8 or to 16: what there is to do, in which order and by whom, and where it lies in shared memory.
//
// Blocks stay on their multiprocessor and take tiles of sixteen rows, when they have room for them: equal shares would not take
// equal time. x lies in shared memory; where it has no room, it is cut into panels. A block keeps to one while that has work, and
// then helps with the next; whoever does the last panel of a tile adds up what all gave, in a fixed order.
#pragma once
#include "linear_plan.cuh"

namespace buddy {
namespace narrow {

// Warps that multiply, steps that have room in shared memory, warps that add up.
constexpr u32 WARPS = BUDDY_NARROW_WARPS, STAGES = BUDDY_NARROW_STAGES, ADDERS = BUDDY_NARROW_ADDERS;
// Columns of entries of a tile that are a warp's in a step, and a step's; and how many times eight tokens there are.
// Parts of a panel of x, by which it comes: a step each, and the rest.
constexpr u32 PARTS = 3;
constexpr u32 SHARE = BUDDY_NARROW_SHARE, STEP = WARPS * SHARE, EIGHTS = BUDDY_NARROW_EIGHTS;
// Blocks of a cluster, which begin with the same panel of x: each asks for some tokens of it, for all of them.
constexpr u32 CLUSTER = BUDDY_NARROW_CLUSTER;

struct Cut {
    u32 outputs, per_row, tokens;
    u32 panel;  // entries of a row, a multiple of a step's

    BUDDY_FN u32 tiles() const { return (outputs + TILE_ROWS - 1) / TILE_ROWS; }
    BUDDY_FN u32 panels() const { return (per_row + panel - 1) / panel; }
    // The entries of a panel; the last one may have fewer.
    BUDDY_FN u32 width(u32 at) const { return min(panel, per_row - at * panel); }
};

// A tile, a panel of it, and a step in that.
struct Part {
    static constexpr u32 NONE = ~0u;
    u32 tile, panel, step;

    BUDDY_FN bool none() const { return tile == NONE; }
    BUDDY_FN bool is_last(const Cut& cut) const { return (step + 1) * STEP >= cut.width(panel); }
    // Its columns, and the first of them, counted over the whole matrix.
    BUDDY_FN u32 columns(const Cut& cut) const { return min(STEP, cut.width(panel) - step * STEP); }
    BUDDY_FN u64 column(const Cut& cut) const { return (u64)tile * cut.per_row + panel * cut.panel + step * STEP; }
    static BUDDY_FN Part of(const Cut& cut, u32 tile, u32 panel) { return {tile < cut.tiles() ? tile : NONE, panel, 0}; }
    // A block's first one. Clusters have the panels in turn, and each block keeps its own while there is work: x seldom changes.
    static BUDDY_FN Part first(const Cut& cut) {
        u32 cluster = blockIdx.x / CLUSTER, panels = cut.panels();
        return of(cut, cluster / panels * CLUSTER + blockIdx.x % CLUSTER, cluster % panels);
    }
    // How many blocks begin with a panel.
    static BUDDY_FN u32 given(const Cut& cut, u32 panel) {
        u32 panels = cut.panels();
        return (gridDim.x / CLUSTER + panels - 1 - panel) / panels * CLUSTER;
    }
};

// What the warps that multiply need to know of a step.
struct Note {
    u32 tile, panel;
    u32 columns;
    u32 side;  // bytes from the beginning of the panel of x to what it multiplies by; and 1 for the last step of a panel

    BUDDY_FN bool none() const { return tile == Part::NONE; }
    BUDDY_FN bool is_last() const { return side & 1; }
    BUDDY_FN u32 side_at() const { return side & ~1u; }
    static BUDDY_FN Note of(const Cut& cut, const Part& part) {
        if (part.none()) return {Part::NONE, 0, 0, 0};
        return {part.tile, part.panel, part.columns(cut), part.step * STEP * ENTRY | part.is_last(cut)};
    }
};

// Blocks that are done, panels that are, by tile, and tiles that blocks have taken, by panel. Zeros before and after.
struct Counts {
    u32* at;

    BUDDY_FN u32* blocks() const { return at; }
    BUDDY_FN u32* done(u32 tile) const { return at + 1 + tile; }
    BUDDY_FN u32* taken(const Cut& cut, u32 panel) const { return at + 1 + cut.tiles() + panel; }
};

// Where things lie in shared memory: steps, their nibbles, sums of warps, what steps and sums are of, last sectors of entries that
// overflow and whose they are, barriers, and x.
struct Room {
    static constexpr u32 STAGE = STEP * Weights::COLUMN, SLOT = EIGHTS * WARPS * WARP * 16;
    static constexpr u32 AT_SUMS = STAGES * STAGE, AT_NIBBLES = AT_SUMS + ADDERS * SLOT, AT_NEAR = AT_NIBBLES + STAGES * STEP * 8;
    static constexpr u32 AT_TAGS = AT_NEAR + STAGES * WARP * SECTOR, AT_NOTES = AT_TAGS + STAGES * WARP * 4;
    static constexpr u32 AT_NAMES = AT_NOTES + 16 * STAGES;
    static constexpr u32 AT_BARRIERS = AT_NAMES + 8 * ADDERS;
    static constexpr u32 AT_SIDES = (AT_BARRIERS + 16 * (STAGES + ADDERS) + 8 * PARTS + 127) / 128 * 128;
    u32 shared;

    BUDDY_FN u32 column(u32 place, u32 column) const { return shared + place * STAGE + column * Weights::COLUMN; }
    // A lane's sums of eight tokens, from a warp.
    BUDDY_FN u32 sums(u32 slot, u32 warp, u32 eight) const {
        return shared + AT_SUMS + slot * SLOT + ((warp * EIGHTS + eight) * WARP + threadIdx.x % WARP) * 16;
    }
    BUDDY_FN u32 nibbles(u32 place, u32 column) const { return shared + AT_NIBBLES + (place * STEP + column) * 8; }
    BUDDY_FN u32 near(u32 place, u32 lane) const { return shared + AT_NEAR + (place * WARP + lane) * SECTOR; }
    BUDDY_FN u32 tag(u32 place, u32 lane) const { return shared + AT_TAGS + (place * WARP + lane) * 4; }
    // What the step after the one in this place is, and whose sums these are: a tile and a panel.
    BUDDY_FN u32 note(u32 place) const { return shared + AT_NOTES + 16 * place; }
    BUDDY_FN u32 name(u32 slot) const { return shared + AT_NAMES + 8 * slot; }
    // A step has come; all are done with it; a tile's sums are there; they are added up; a part of a panel of x has come.
    BUDDY_FN Barrier full(u32 place) const { return {shared + AT_BARRIERS + 16 * place}; }
    BUDDY_FN Barrier empty(u32 place) const { return {full(place).at + 8}; }
    BUDDY_FN Barrier sums_full(u32 slot) const { return {shared + AT_BARRIERS + 16 * (STAGES + slot)}; }
    BUDDY_FN Barrier sums_empty(u32 slot) const { return {sums_full(slot).at + 8}; }
    BUDDY_FN Barrier x_full(u32 part) const { return {shared + AT_BARRIERS + 16 * (STAGES + ADDERS) + 8 * part}; }
    // A token's part of the panel of x. Each begins 16 bytes out of step with the one before, so that lanes of two of them read
    // from different banks.
    BUDDY_FN u32 side(const Cut& cut, u32 token) const { return shared + AT_SIDES + token * (cut.panel * ENTRY + 16); }

    BUDDY_FN void init() const {
        // A step comes with its bytes, and each lane of the warp that fetches with its copies of last sectors.
        for (u32 place = 0; place < STAGES; place++) full(place).init(1 + WARP), empty(place).init(WARPS);
        for (u32 slot = 0; slot < ADDERS; slot++) sums_full(slot).init(WARPS * WARP), sums_empty(slot).init(WARP);
        for (u32 part = 0; part < PARTS; part++) x_full(part).init(1);
        fence_mbarrier_init();
    }
};

}  // namespace narrow
}  // namespace buddy
