// The plan of a linear layer: who does what, and where it lies in shared memory meanwhile.
//
// y = W x: W has N rows (outputs) of K values, x has M rows (tokens) of K values, y M rows of N. A block multiplies a tile of W's
// rows by a tile of tokens, 64 columns at a time. All tiles one after the other, K along each, are one line of steps that is cut
// into equal pieces, one for each block: every multiprocessor has the same bytes to read. Where a cut falls into a tile, the
// blocks that share it leave their sums in memory, and the last to come adds them up, always in the same order.
#pragma once
#include "entry.cuh"
#include "frozen.cuh"
#include "tile.cuh"
#include "bulk.cuh"

namespace buddy {

constexpr u32 GROUP = 128;         // threads of a warpgroup
constexpr u32 GROUPS = 2;          // warpgroups that multiply
// Warps that fetch: two warpgroups of them, one warp of which looks at nibbles.
constexpr u32 FETCHERS = 2, WEIGHT_WARPS = 4, X_WARPS = 4 * FETCHERS - WEIGHT_WARPS - 1;
constexpr u32 VALUES = ENTRY / 2;  // of an entry

// A matrix in compressed memory at 4/3x.
struct Weights {
    const u8* device;
    const u8* nibbles;
    const u8* overflow;  // slots of 32 bytes, one for each entry; or only those that are needed, if there is an index
    const u32* index;
    u64 entries;
    u32 sectors;  // of a compact overflow
    u32 window;

    static constexpr u32 BYTES = 3 * SECTOR;

    // The last sector of an entry that overflows; none if the index names one that is not there.
    BUDDY_FN const u8* last_sector(u64 entry) const {
        if (index == nullptr) return overflow + entry * SECTOR;
        u32 sector = first_sector(index, (const u32*)nibbles, entry, BYTES);
        return sector < sectors ? overflow + (u64)sector * SECTOR : nullptr;
    }
    // Eight nibbles from an entry on, those past the end being anything.
    BUDDY_FN u32 nibbles_from(u64 entry) const {
        const u32* words = (const u32*)nibbles;
        u64 at = entry / 8, last = (entries + PAGE_ENTRIES - 1) / PAGE_ENTRIES * (PAGE_ENTRIES / 8) - 1;
        return funnel_right(__ldg(words + at), __ldg(words + (at < last ? at + 1 : last)), (u32)(entry % 8) * 4);
    }
};

struct Linear {
    Weights weights;
    const u8* x;
    const u8* bias;  // bf16, or null
    void* y;
    float4* parts;  // sums of tiles that several blocks share: two to a block
    u32* counts;    // one for each tile: zeros before and after
    u32 outputs, inputs, tokens;
    u32 wide;  // y is fp32, otherwise bf16

    BUDDY_FN u32 per_row() const { return inputs / VALUES; }
};

// A block's shape: tokens of a tile, fragments of 64 rows to a warpgroup, entries of a row to a step, steps in shared memory.
template <u32 TOKENS_, u32 FRAGMENTS_, u32 ENTRIES_, u32 STAGES_>
struct Shape {
    static constexpr u32 TOKENS = TOKENS_, FRAGMENTS = FRAGMENTS_, ENTRIES = ENTRIES_, STAGES = STAGES_;
    static constexpr u32 ROWS = GROUPS * FRAGMENTS * 64;
    // Bytes of a row of W in a step, of a step, and of its part of x.
    static constexpr u32 ROW = ENTRIES * Weights::BYTES, STEP = ROWS * ROW, X_ENTRY = TOKENS * ENTRY, X_STEP = ENTRIES * X_ENTRY;
    static constexpr u32 WARPS = GROUPS * 4;
    static constexpr u32 AT_X = STAGES * STEP, AT_NEAR = AT_X + STAGES * X_STEP, AT_TAGS = AT_NEAR + STAGES * WARP * SECTOR;
    static constexpr u32 AT_NIBBLES = AT_TAGS + STAGES * WARP * 4, AT_SCRATCH = AT_NIBBLES + STAGES * ROWS * 4;
    static constexpr u32 AT_BARRIERS = AT_SCRATCH + WARPS * WARP * 32, BYTES = AT_BARRIERS + STAGES * 16 + 16;
    static_assert(STEP % 1024 == 0 && X_ENTRY % 1024 == 0 && BYTES <= 227 * 1024, "operands begin at multiples of 1024 bytes");

    // How far chunks of a row are out of place, so that lanes of several rows read from different banks.
    static BUDDY_FN u32 swizzle(u32 row) {
        if (ENTRIES == 4) return (row & 1) * 64 | (row >> 1 & 1) * 32;
        return ENTRIES == 2 ? (row >> 1 & 1) * 32 : 0;
    }
    // Where a byte of a row lies in a step.
    static BUDDY_FN u32 place(u32 row, u32 byte) { return (row * ROW + byte) ^ swizzle(row); }
    // The row of a lane's fragment, for the same reason.
    static BUDDY_FN u32 row_of(u32 lane) {
        u32 row = lane / 4;
        return ENTRIES == 1 ? (row & 4) | (row & 1) << 1 | (row >> 1 & 1) : row;
    }
};

// Where things lie in shared memory.
template <class S>
struct Room {
    u32 shared;

    BUDDY_FN u32 step(u32 stage) const { return shared + stage * S::STEP; }
    BUDDY_FN u32 x(u32 stage, u32 entry) const { return shared + S::AT_X + stage * S::X_STEP + entry * S::X_ENTRY; }
    // Last sectors of entries that overflow, fetched ahead: one for each lane of the warp that does it, and whose it is.
    BUDDY_FN u32 near(u32 stage, u32 lane) const { return shared + S::AT_NEAR + (stage * WARP + lane) * SECTOR; }
    BUDDY_FN u32 tag(u32 stage, u32 lane) const { return shared + S::AT_TAGS + (stage * WARP + lane) * 4; }
    BUDDY_FN u32 nibbles(u32 stage, u32 row) const { return shared + S::AT_NIBBLES + (stage * S::ROWS + row) * 4; }
    // 32 bytes of a lane.
    BUDDY_FN u32 scratch() const { return shared + S::AT_SCRATCH + threadIdx.x * 32; }
    BUDDY_FN u32 message() const { return shared + S::AT_BARRIERS + S::STAGES * 16; }
    // A step has come; all are done with it.
    BUDDY_FN Barrier come(u32 stage) const { return {shared + S::AT_BARRIERS + 16 * stage}; }
    BUDDY_FN Barrier used(u32 stage) const { return {come(stage).at + 8}; }

    BUDDY_FN void init() const {
        // Each lane of the warps that fetch arrives with its copies, and the one that looks at nibbles once more.
        for (u32 i = 0; i < S::STAGES; i++) come(i).init(FETCHERS * GROUP + 1), used(i).init(S::WARPS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
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

// The line of steps, and how blocks share it.
template <class S>
struct Line {
    u32 per_row, per_tile, token_tiles, tiles;
    u64 steps;

    BUDDY_FN explicit Line(const Linear& linear) {
        per_row = linear.per_row();
        per_tile = (per_row + S::ENTRIES - 1) / S::ENTRIES;
        token_tiles = (linear.tokens + S::TOKENS - 1) / S::TOKENS;
        tiles = (linear.outputs + S::ROWS - 1) / S::ROWS * token_tiles;
        steps = (u64)tiles * per_tile;
    }
    BUDDY_FN u64 start(u32 block) const { return steps * block / gridDim.x; }
    BUDDY_FN u32 owner(u64 step) const { return (u32)(((step + 1) * gridDim.x + steps - 1) / steps) - 1; }
};

// A place in the line: a tile of rows and one of tokens, and a step in it.
template <class S>
struct Step {
    u32 tile, at;

    BUDDY_FN Step(const Line<S>& line, u64 step) : tile((u32)(step / line.per_tile)), at((u32)(step % line.per_tile)) {}
    BUDDY_FN void next(const Line<S>& line) {
        if (++at == line.per_tile) at = 0, tile++;
    }
    BUDDY_FN u32 row(const Line<S>& line) const { return tile / line.token_tiles * S::ROWS; }
    BUDDY_FN u32 token(const Line<S>& line) const { return tile % line.token_tiles * S::TOKENS; }
    // Entries of each row in it.
    BUDDY_FN u32 entries(const Line<S>& line) const { return min(S::ENTRIES, line.per_row - at * S::ENTRIES); }
};

}  // namespace buddy
