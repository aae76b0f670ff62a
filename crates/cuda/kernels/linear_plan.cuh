// The plan of a linear layer: who does what, and where it lies in shared memory meanwhile.
//
// y = W x: W has N rows (outputs) of K values, x has M rows (tokens) of K values, y M rows of N. A block multiplies some tiles of W's
// rows by a tile of tokens, 64 columns at a time. All tiles one after the other, K along each, are one line of steps that is cut
// into equal pieces, one for each block: every multiprocessor has the same bytes to read. Where a cut falls into a tile, the
// warps that share a part of it leave their sums in memory, and the last to come, whose own may stay in registers, adds them up, always
// in the same order.
#pragma once
#include "entry.cuh"
#include "frozen.cuh"
#include "tile.cuh"
#include "bulk.cuh"

namespace buddy {

constexpr u32 GROUP = 128;         // threads of a warpgroup
constexpr u32 VALUES = ENTRY / 2;  // of an entry
constexpr u32 TILE_ROWS = 16;      // rows of W that lie together
constexpr u32 SLOTS = 8;           // entries of a step that are decoded ahead
constexpr u32 NOBODY = ~0u;        // whose a slot is that is not taken
constexpr u32 OUT = 16 * 2 * TILE_ROWS;  // bytes of a warp's results of sixteen tokens

// Whether weights are plain, to compare with: the same kernels and the same order of entries, but no nibbles and nothing to decode.
#ifndef BUDDY_LINEAR_PLAIN
#define BUDDY_LINEAR_PLAIN 0
#endif
constexpr bool IS_PLAIN = BUDDY_LINEAR_PLAIN;

// A matrix in compressed memory at 4/3x, in tiles of 16 rows: entry e of the rows of a tile, one after the other, then entry e + 1.
struct Weights {
    const u8* device;
    const u8* nibbles;
    const u8* overflow;
    const u32* index;  // null where every entry has a slot of its own in the overflow
    u32 sectors;       // of the overflow
    u32 window;

    static constexpr u32 BYTES = IS_PLAIN ? ENTRY : 3 * SECTOR, COLUMN = TILE_ROWS * BYTES;  // of an entry, and of those of a tile's rows

    // The last sector of an entry that overflows; none if the index names one that is not there.
    BUDDY_FN const u8* last_sector(u64 entry) const {
        u64 sector = index == nullptr ? entry : first_sector(index, (const u32*)nibbles, entry, BYTES);
        return sector < sectors ? overflow + sector * SECTOR : nullptr;
    }
};

struct Linear {
    Weights weights;
    const u8* x;
    const u8* bias;  // bf16, or null
    void* y;
    float4* parts;  // sums of tiles that several blocks share: two to a block
    u32* counts;    // for each block that has the beginning of such a tile, one for each warp that multiplies: zeros before and after
    u32 outputs, inputs, tokens;
    u32 output;  // what y is: bf16, or one of these

    // Gated: eight rows of gates and eight of values take turns, and y is bf16 of silu(gate) * value.
    enum : u32 { BF16, FP32, GATED };

    BUDDY_FN u32 per_row() const { return inputs / VALUES; }
};

// A block's shape: tokens of a tile; warpgroups that multiply, 64 rows to each, or all the same rows in slices, each with some of a step's
// entries; entries of a row to a step, steps in shared memory; blocks of a cluster, which take tiles of rows beside one another and
// share x; and whether y is gated.
template <u32 TOKENS_, u32 GROUPS_, u32 SLICES_, u32 ENTRIES_, u32 STAGES_, u32 CLUSTER_, bool GATED_>
struct Shape {
    static constexpr bool GATED = GATED_;
    static constexpr u32 TOKENS = TOKENS_, GROUPS = GROUPS_, SLICES = SLICES_, ENTRIES = ENTRIES_, STAGES = STAGES_, CLUSTER = CLUSTER_;
    static constexpr u32 THREADS = (GROUPS + 1) * GROUP;
    // Registers of a thread: at the start, of those that fetch, and of those that multiply.
    static constexpr u32 REGISTERS = 65536 / THREADS / 8 * 8, FETCHING = 56;
    static constexpr u32 LEFT = (REGISTERS * THREADS - FETCHING * GROUP) / (GROUPS * GROUP) / 8 * 8, MULTIPLYING = LEFT < 240 ? LEFT : 240;
    static constexpr u32 ROWS = GROUPS / SLICES * 64, TILES = ROWS / TILE_ROWS, WARPS = GROUPS * 4;
    // Bytes of a tile of W in a step, of a step, and of its part of x.
    static constexpr u32 TILE = ENTRIES * Weights::COLUMN, STEP = TILES * TILE;
    static constexpr u32 X_ENTRY = TOKENS * ENTRY, X_STEP = ENTRIES * X_ENTRY, X_SHARE = X_ENTRY / CLUSTER;  // what a block asks for
    static constexpr u32 COLUMNS = TILES * ENTRIES;  // of entries, sixteen to each
    static constexpr u32 AT_X = STAGES * STEP, AT_SLOTS = AT_X + STAGES * X_STEP, AT_NEAR = AT_SLOTS + STAGES * SLOTS * ENTRY;
    static constexpr u32 AT_OUT = AT_NEAR + STAGES * WARP * SECTOR, AT_TAGS = AT_OUT + WARPS * OUT;
    static constexpr u32 AT_OWNERS = AT_TAGS + STAGES * WARP * 4, AT_NIBBLES = AT_OWNERS + STAGES * SLOTS * 4;
    static constexpr u32 AT_MAPS = AT_NIBBLES + STAGES * COLUMNS * 8, AT_BARRIERS = AT_MAPS + STAGES * COLUMNS * 8;
    static constexpr u32 WARP_SUMS = TILE_ROWS * TOKENS * 4, AT_SLICES = (AT_BARRIERS + STAGES * 32 + 127) / 128 * 128;
    static constexpr u32 BYTES = SLICES == 1 ? AT_BARRIERS + STAGES * 32 : AT_SLICES + (SLICES - 1) * 4 * WARP_SUMS;
    static_assert(SLICES == 1 || (SLICES == GROUPS && ENTRIES % SLICES == 0), "one warpgroup to a slice, as many entries to each");
    static_assert(STEP % 1024 == 0 && X_SHARE % 1024 == 0 && BYTES <= 227 * 1024, "operands begin at multiples of 1024 bytes");
    // Whether there are registers for a fragment that is fetched while the one before is multiplied. A plain one is fetched to where it is
    // multiplied from.
    static constexpr bool AHEAD = !IS_PLAIN && MULTIPLYING >= TOKENS / 2 + 104;
    static_assert(STAGES > 2 || (STAGES == 2 && ENTRIES > SLICES), "a step waits for the next before it gives back x of the one before");
    static_assert(TILES <= WARP, "a lane fetches a tile");
};

// Where things lie in shared memory.
template <class S>
struct Room {
    u32 shared;

    // A tile's entries of a column.
    BUDDY_FN u32 column(u32 stage, u32 tile, u32 entry) const {
        return shared + stage * S::STEP + tile * S::TILE + entry * Weights::COLUMN;
    }
    BUDDY_FN u32 x(u32 stage, u32 entry) const { return shared + S::AT_X + stage * S::X_STEP + entry * S::X_ENTRY; }
    // Entries that are not in layout B, decoded ahead, and whose they are.
    BUDDY_FN u32 slots(u32 stage) const { return shared + S::AT_SLOTS + stage * SLOTS * ENTRY; }
    BUDDY_FN u32 owner(u32 stage, u32 slot) const { return shared + S::AT_OWNERS + (stage * SLOTS + slot) * 4; }
    // Last sectors of entries that overflow, fetched ahead: one for each lane of the warp that does it, and whose it is.
    BUDDY_FN u32 near(u32 stage, u32 lane) const { return shared + S::AT_NEAR + (stage * WARP + lane) * SECTOR; }
    BUDDY_FN u32 tag(u32 stage, u32 lane) const { return shared + S::AT_TAGS + (stage * WARP + lane) * 4; }
    // The nibbles of a column, eight bytes; and as many bits that say where its entries are: 0 for their places, else a slot and 1,
    // or 15 for those that no slot was left for.
    BUDDY_FN u32 nibbles(u32 stage, u32 column) const { return shared + S::AT_NIBBLES + (stage * S::COLUMNS + column) * 8; }
    BUDDY_FN u32 map(u32 stage, u32 column) const { return shared + S::AT_MAPS + (stage * S::COLUMNS + column) * 8; }
    BUDDY_FN u32 out(u32 warp) const { return shared + S::AT_OUT + warp * OUT; }
    // A warp's sums of a slice after the first.
    BUDDY_FN u32 slice(u32 slice, u32 warp) const { return shared + S::AT_SLICES + ((slice - 1) * 4 + warp) * S::WARP_SUMS; }
    // A step's weights have come; x has, too, and slots are filled; all have read its weights; all are done with its part of x.
    BUDDY_FN Barrier come(u32 stage) const { return {shared + S::AT_BARRIERS + 32 * stage}; }
    BUDDY_FN Barrier full(u32 stage) const { return {come(stage).at + 8}; }
    BUDDY_FN Barrier empty(u32 stage) const { return {come(stage).at + 16}; }
    BUDDY_FN Barrier x_empty(u32 stage) const { return {come(stage).at + 24}; }

    BUDDY_FN void init() const {
        // Weights arrive once, with their bytes; the lanes that look at nibbles each with their copies, and together once more. Then
        // x with its bytes, and the lanes that fill slots.
        for (u32 i = 0; i < S::STAGES; i++) {
            come(i).init(1 + WARP + 1), full(i).init(1 + WARP), empty(i).init(S::WARPS), x_empty(i).init(S::WARPS * S::CLUSTER);
        }
        fence_mbarrier_init();
    }
    // A warp is done with a step's part of x, and says so to all blocks that asked for some of it, if they wait for it: they may have
    // ended else.
    BUDDY_FN void leave_x(u32 stage, bool is_waited_for) const {
        u32 lane = threadIdx.x % WARP;
        if (S::CLUSTER == 1 && lane == 0) x_empty(stage).arrive();
        if (S::CLUSTER > 1 && lane < S::CLUSTER && is_waited_for) x_empty(stage).arrive_at(lane);
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

// The line of steps, and how blocks, or clusters of them, share it.
template <class S>
struct Line {
    u32 per_row, per_tile, token_tiles, steps;
    u32 share, rest;  // steps of a piece, and those that are left

    BUDDY_FN explicit Line(const Linear& linear) {
        per_row = linear.per_row();
        per_tile = (per_row + S::ENTRIES - 1) / S::ENTRIES;
        token_tiles = (linear.tokens + S::TOKENS - 1) / S::TOKENS;
        steps = (linear.outputs + S::CLUSTER * S::ROWS - 1) / (S::CLUSTER * S::ROWS) * token_tiles * per_tile;
        share = steps / pieces(), rest = steps % pieces();
    }
    static BUDDY_FN u32 pieces() { return gridDim.x / S::CLUSTER; }
    static BUDDY_FN u32 piece() { return blockIdx.x / S::CLUSTER; }
    static BUDDY_FN u32 rank() { return blockIdx.x % S::CLUSTER; }
    // The block of this one's rank that has a piece.
    static BUDDY_FN u32 block(u32 piece) { return piece * S::CLUSTER + rank(); }
    // steps * piece / pieces, without large numbers.
    BUDDY_FN u32 start(u32 piece) const { return share * piece + rest * piece / pieces(); }
    BUDDY_FN u32 begin() const { return start(piece()); }
    BUDDY_FN u32 end() const { return start(piece() + 1); }
    BUDDY_FN u32 owner(u32 step) const {
        u64 all = (step + 1ull) * pieces() + steps - 1;
        return (all >> 32 ? (u32)(all / steps) : (u32)all / steps) - 1;
    }
};

// A place in the line: a tile of rows and one of tokens, and a step in it.
template <class S>
struct Step {
    u32 tile, at;

    BUDDY_FN Step(const Line<S>& line, u32 step) : tile(step / line.per_tile), at(step % line.per_tile) {}
    BUDDY_FN void next(const Line<S>& line) {
        if (++at == line.per_tile) at = 0, tile++;
    }
    // The first of this block's tiles of rows, and its first token.
    BUDDY_FN u32 row_tile(const Line<S>& line) const { return (tile / line.token_tiles * S::CLUSTER + line.rank()) * S::TILES; }
    BUDDY_FN u32 token(const Line<S>& line) const { return tile % line.token_tiles * S::TOKENS; }
    // Entries of each row in it.
    BUDDY_FN u32 entries(const Line<S>& line) const { return min(S::ENTRIES, line.per_row - at * S::ENTRIES); }
};

}  // namespace buddy
