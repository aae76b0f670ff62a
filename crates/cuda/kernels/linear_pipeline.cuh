// Building blocks of the linear kernels' pipeline: the arguments, the tile shape, the stages and
// barriers in shared memory, and the stream-K tile scheduler. linear.cu describes how they fit
// together.
//
// y = W x: W has N rows (outputs) of K values, x has M rows (tokens) of K values, y has M rows of
// N. A CTA multiplies `ROWS` rows of W by `TOKENS` tokens, one k-block at a time.
#pragma once
#include "entry.cuh"
#include "frozen.cuh"
#include "tile.cuh"
#include "tight.cuh"
#include "bulk.cuh"

namespace buddy {

constexpr u32 WARPGROUP = 128;  // threads of a warpgroup
constexpr u32 VALUES = ENTRY / 2;  // bf16 values of an entry
constexpr u32 TILE_ROWS = 16;  // rows of W whose entries are stored together
constexpr u32 SLOTS = 8;  // irregular entries of a k-block that are decoded ahead
constexpr u32 NO_OWNER = ~0u;  // owner of a free slot
constexpr u32 OUT = 16 * 2 * TILE_ROWS;  // bytes of a warp's 16 x 16 staging tile in the epilogue

// Plain weights, for comparison: the same kernels and order of entries, without nibbles and
// decoding.
#ifndef BUDDY_LINEAR_PLAIN
#define BUDDY_LINEAR_PLAIN 0
#endif
constexpr bool IS_PLAIN = BUDDY_LINEAR_PLAIN;

// Weights in the tight layout (tight.cuh), read-only.
#ifndef BUDDY_LINEAR_TIGHT
#define BUDDY_LINEAR_TIGHT 0
#endif
constexpr bool IS_TIGHT = BUDDY_LINEAR_TIGHT;
// Bytes of a column's metadata in shared memory: its nibbles, or its descriptor.
constexpr u32 METADATA = IS_TIGHT ? 16 : 8;

// A bf16 matrix packed at 4/3x, in tiles of 16 rows: entry e of each of the tile's rows, then entry
// e + 1. The layout of Rust's `PackedMatrixView`.
struct PackedMatrixView {
    const u8* device;
    const u8* nibbles;
    const u8* overflow;
    const u32* index;  // null if every entry has its own sector in the overflow
    u32 sectors;  // sectors in the overflow
    u32 window;     // lowest exponent of layout B's window
    // In the tight layout `nibbles` are the flags of columns, `overflow` has `sectors` extra words of
    // two bytes, and `index`, at a multiple of 128 bytes, counts them by pairs of columns.

    // bytes of a stored entry, and of a tile's 16 entries of one column
    static constexpr u32 ENTRY_BYTES = IS_PLAIN ? ENTRY : 3 * SECTOR, COLUMN = IS_TIGHT ? Tight::COLUMN : TILE_ROWS * ENTRY_BYTES;
    // bytes of a column in shared memory
    static constexpr u32 STAGED = COLUMN + (IS_TIGHT ? Tight::RESERVE : 0);

    // Tight layout: the row bytes, which begin at the next multiple of 128 bytes behind the index.
    BUDDY_FN const u8* row_bytes(u32 outputs, u32 per_row) const {
        u64 counts = (u64)((outputs + TILE_ROWS - 1) / TILE_ROWS) * ((per_row + 1) / 2) + 1;
        return (const u8*)index + (counts * 4 + 127) / 128 * 128;
    }
    // The factor of a row's sums: rows of the tight layout may be stored doubled.
    BUDDY_FN float scale_of(u32 row, u32 outputs, u32 per_row) const {
        if (!IS_TIGHT || row >= outputs) return 1.0f;
        return __ldg(row_bytes(outputs, per_row) + row / TILE_ROWS * Tight::ROWS + Tight::row_byte(row % TILE_ROWS)) & Tight::RAISED ? 0.5f : 1.0f;
    }

    // Returns the last sector of an entry that overflows, or null if the index is out of range.
    BUDDY_FN const u8* last_sector(u64 entry) const {
        u64 sector = index == nullptr ? entry : first_sector(index, (const u32*)nibbles, entry, ENTRY_BYTES);
        return sector < sectors ? overflow + sector * SECTOR : nullptr;
    }
};

struct Linear {
    PackedMatrixView weights;
    const u8* x;
    const u8* bias;  // bf16, or null
    void* y;
    float4* partials;  // accumulators of shared tiles: two per CTA
    u32* counters;  // fix-up counters: one per CTA and consumer warp; zero before and after
    u32 outputs, inputs, tokens;
    u32 output;  // type of y
    const u32* route;  // of grouped layers: which tokens each expert has (route.cu); else null

    // GATED: eight rows of gates alternate with eight of values; y is bf16 of silu(gate) * value.
    enum : u32 { BF16, FP32, GATED };

    BUDDY_FN u32 per_row() const { return inputs / VALUES; }
};

// Tile shape and pipeline depth of a CTA:
// - `TOKENS`: tokens of an output tile (N of the wgmma).
// - `WARPGROUPS`: consumer warpgroups. Each has 64 rows, or all share 64 rows and split K.
// - `SPLIT_K`: warpgroups that split each k-block of the same rows; 1 or `WARPGROUPS`.
// - `ENTRIES`: entries of a row in a k-block; a k-block is 64 * ENTRIES columns.
// - `STAGES`: k-blocks in the ring.
// - `CLUSTER`: CTAs with neighbouring tiles of rows that share x by multicast.
// - `GATED`: the epilogue computes SwiGLU.
// - `GROUPED`: W holds the matrices of several experts, one after the other, and each group of
//   tokens of the route is multiplied by its expert's.
template <u32 TOKENS_, u32 WARPGROUPS_, u32 SPLIT_K_, u32 ENTRIES_, u32 STAGES_, u32 CLUSTER_, bool GATED_, bool GROUPED_>
struct Shape {
    static constexpr bool GATED = GATED_, GROUPED = GROUPED_;
    static constexpr u32 TOKENS = TOKENS_, WARPGROUPS = WARPGROUPS_, SPLIT_K = SPLIT_K_, ENTRIES = ENTRIES_, STAGES = STAGES_, CLUSTER = CLUSTER_;
    static constexpr u32 THREADS = (WARPGROUPS + 1) * WARPGROUP;
    // Registers per thread at launch, and after `setmaxnreg` in producers and in consumers.
    static constexpr u32 LAUNCH_REGISTERS = 65536 / THREADS / 8 * 8, PRODUCER_REGISTERS = 56;
    static constexpr u32 SPARE_REGISTERS = (LAUNCH_REGISTERS * THREADS - PRODUCER_REGISTERS * WARPGROUP) / (WARPGROUPS * WARPGROUP) / 8 * 8, CONSUMER_REGISTERS = SPARE_REGISTERS < 240 ? SPARE_REGISTERS : 240;
    static constexpr u32 ROWS = WARPGROUPS / SPLIT_K * 64, TILES = ROWS / TILE_ROWS, WARPS = WARPGROUPS * 4;
    // Bytes of a 16-row tile of W in a k-block, of a stage's weights, and of its part of x.
    static constexpr u32 TILE_BYTES = ENTRIES * PackedMatrixView::COLUMN, WEIGHTS_STAGE = TILES * ENTRIES * PackedMatrixView::STAGED;
    // X_SHARE: loaded by one CTA of the cluster
    static constexpr u32 X_ENTRY = TOKENS * ENTRY, X_STAGE = ENTRIES * X_ENTRY, X_SHARE = X_ENTRY / CLUSTER;
    static constexpr u32 COLUMNS = TILES * ENTRIES;  // columns of 16 entries in a stage
    static constexpr u32 AT_X = STAGES * WEIGHTS_STAGE, AT_SLOTS = AT_X + STAGES * X_STAGE;
    // Slots, sectors, and their owners are for irregular entries, which the tight layout has none of.
    static constexpr u32 AT_TAILS = AT_SLOTS + (IS_TIGHT ? 0 : STAGES * SLOTS * ENTRY), AT_OUT = AT_TAILS + (IS_TIGHT ? STAGES * TILES * Tight::ROWS : STAGES * WARP * SECTOR);
    static constexpr u32 AT_TAIL_OWNERS = AT_OUT + WARPS * OUT, AT_SLOT_OWNERS = AT_TAIL_OWNERS + (IS_TIGHT ? 0 : STAGES * WARP * 4);
    static constexpr u32 AT_NIBBLES = AT_SLOT_OWNERS + (IS_TIGHT ? 0 : STAGES * SLOTS * 4), AT_SLOT_MAPS = AT_NIBBLES + STAGES * COLUMNS * METADATA;
    static constexpr u32 AT_BARRIERS = AT_SLOT_MAPS + (IS_TIGHT ? 0 : STAGES * COLUMNS * 8);
    static constexpr u32 WARP_ACCUMULATORS = TILE_ROWS * TOKENS * 4, AT_SPLIT_K = (AT_BARRIERS + STAGES * 32 + 127) / 128 * 128;
    static constexpr u32 BYTES = SPLIT_K == 1 ? AT_BARRIERS + STAGES * 32 : AT_SPLIT_K + (SPLIT_K - 1) * 4 * WARP_ACCUMULATORS;
    static_assert(SPLIT_K == 1 || (SPLIT_K == WARPGROUPS && ENTRIES % SPLIT_K == 0), "one warpgroup to a slice, as many entries to each");
    static_assert(WEIGHTS_STAGE % 1024 == 0 && X_SHARE % 1024 == 0 && BYTES <= 227 * 1024, "operands begin at multiples of 1024 bytes");
    // True if there are registers to prefetch the next fragment during a wgmma. A plain fragment is
    // loaded into the operand registers directly.
    static constexpr bool AHEAD = !IS_PLAIN && CONSUMER_REGISTERS >= TOKENS / 2 + 104;
    static_assert(STAGES > 2 || (STAGES == 2 && ENTRIES > SPLIT_K), "a step waits for the next before it gives back x of the one before");
    static_assert(TILES <= WARP, "a lane fetches a tile");
};

// Layout of dynamic shared memory: addresses of buffers and barriers, by stage.
template <class S>
struct SharedStorage {
    u32 shared;

    // The 16 entries of a column of a tile.
    BUDDY_FN u32 column(u32 stage, u32 tile, u32 entry) const {
        return shared + stage * S::WEIGHTS_STAGE + tile * S::TILE_BYTES + entry * PackedMatrixView::COLUMN;
    }
    BUDDY_FN u32 x(u32 stage, u32 entry) const { return shared + S::AT_X + stage * S::X_STAGE + entry * S::X_ENTRY; }
    // Decoded irregular entries (not in layout B), and the entry that owns each slot.
    BUDDY_FN u32 slots(u32 stage) const { return shared + S::AT_SLOTS + stage * SLOTS * ENTRY; }
    BUDDY_FN u32 slot_owner(u32 stage, u32 slot) const { return shared + S::AT_SLOT_OWNERS + (stage * SLOTS + slot) * 4; }
    // Prefetched last sectors of overflowing entries, one per lane of the nibble producer, and the
    // entry that owns each.
    BUDDY_FN u32 tail(u32 stage, u32 lane) const { return shared + S::AT_TAILS + (stage * WARP + lane) * SECTOR; }
    BUDDY_FN u32 tail_owner(u32 stage, u32 lane) const { return shared + S::AT_TAIL_OWNERS + (stage * WARP + lane) * 4; }
    // The 16 nibbles of a column; and 16 four-bit slot numbers: 0 for an entry in layout B, slot +
    // 1, or 15 for an irregular entry that got no slot.
    BUDDY_FN u32 nibbles(u32 stage, u32 column) const { return shared + S::AT_NIBBLES + (stage * S::COLUMNS + column) * METADATA; }
    // Tight layout: the extra words of a tile, and its row bytes.
    BUDDY_FN u32 extra(u32 stage, u32 tile) const { return shared + stage * S::WEIGHTS_STAGE + S::TILES * S::TILE_BYTES + tile * S::ENTRIES * Tight::RESERVE; }
    BUDDY_FN u32 rows(u32 stage, u32 tile) const { return shared + S::AT_TAILS + (stage * S::TILES + tile) * Tight::ROWS; }
    BUDDY_FN u32 slot_map(u32 stage, u32 column) const { return shared + S::AT_SLOT_MAPS + (stage * S::COLUMNS + column) * 8; }
    BUDDY_FN u32 out(u32 warp) const { return shared + S::AT_OUT + warp * OUT; }
    // Accumulators of a warp of warpgroup `group` > 0, for the split-K reduction.
    BUDDY_FN u32 split_k(u32 group, u32 warp) const { return shared + S::AT_SPLIT_K + ((group - 1) * 4 + warp) * S::WARP_ACCUMULATORS; }
    // Barriers of a stage; linear.cu lists who arrives and who waits.
    BUDDY_FN Barrier weights_full(u32 stage) const { return {shared + S::AT_BARRIERS + 32 * stage}; }
    BUDDY_FN Barrier full(u32 stage) const { return {weights_full(stage).at + 8}; }
    BUDDY_FN Barrier weights_empty(u32 stage) const { return {weights_full(stage).at + 16}; }
    BUDDY_FN Barrier x_empty(u32 stage) const { return {weights_full(stage).at + 24}; }

    BUDDY_FN void init() const {
        // weights_full: the weight producer with its bytes, each lane of the nibble producer with
        // its copies, and that warp once more (with its bytes, in the tight layout). full: the x
        // producer with its bytes, and the lanes of the slot decoder.
        for (u32 i = 0; i < S::STAGES; i++) {
            weights_full(i).init(IS_TIGHT ? 2 : 1 + WARP + 1), full(i).init(1 + WARP), weights_empty(i).init(S::WARPS), x_empty(i).init(S::WARPS * S::CLUSTER);
        }
        fence_mbarrier_init();
    }
    // A consumer warp releases a stage's x to every CTA of the cluster that multicasts into it. It
    // must not arrive at a CTA that may have exited: `is_reused` is false in the last round.
    BUDDY_FN void release_x(u32 stage, bool is_reused) const {
        u32 lane = threadIdx.x % WARP;
        if (S::CLUSTER == 1 && lane == 0) x_empty(stage).arrive();
        if (S::CLUSTER > 1 && lane < S::CLUSTER && is_reused) x_empty(stage).arrive_at(lane);
    }
};

// Tokens of one expert, at most `TOKENS` of a tile: `first` to `end` of the rows of x.
struct TokenGroup {
    u32 expert, first, end;
};

// The route of a grouped layer (route.cu): the number of groups, that of valid assignments, two
// zeros, four words for each group, and positions that only `experts_combine` reads.
struct Route {
    static constexpr u32 HEAD = 4;
    const u32* words;

    BUDDY_FN u32 groups() const { return __ldcg((const uint4*)words).x; }
    BUDDY_FN TokenGroup group(u32 number) const {
        uint4 v = __ldcg((const uint4*)(words + HEAD) + number);
        return {v.x, v.y, v.z};
    }
};

// Stream-K tile scheduler. Counts the k-blocks of all output tiles as one sequence and gives each
// worker, a CTA or a cluster, an equal contiguous range: every SM reads the same number of bytes.
template <class S>
struct TileScheduler {
    u32 per_row, tile_k_blocks, token_tiles, k_blocks;
    u32 busy, share, rest;  // workers with k-blocks, k-blocks of each, and the remainder
    Route route;  // of a grouped layer, and 16-row tiles of an expert
    u32 row_tiles = 0, matrix_tiles = 0;

    // A grouped layer reads the route, which the preceding kernel may write.
    BUDDY_FN explicit TileScheduler(const Linear& linear) : route{linear.route} {
        per_row = linear.per_row();
        tile_k_blocks = (per_row + S::ENTRIES - 1) / S::ENTRIES;
        token_tiles = S::GROUPED ? route.groups() : (linear.tokens + S::TOKENS - 1) / S::TOKENS;
        k_blocks = (linear.outputs + S::CLUSTER * S::ROWS - 1) / (S::CLUSTER * S::ROWS) * token_tiles * tile_k_blocks;
        if (S::GROUPED) row_tiles = (linear.outputs + S::CLUSTER * S::ROWS - 1) / (S::CLUSTER * S::ROWS), matrix_tiles = linear.outputs / TILE_ROWS;
        // The grid of a grouped layer does not depend on its k-blocks, which may be fewer.
        busy = S::GROUPED ? min(workers(), (k_blocks > 0 ? k_blocks : 1)) : workers();
        share = k_blocks / busy, rest = k_blocks % busy;
    }
    static BUDDY_FN u32 workers() { return gridDim.x / S::CLUSTER; }
    static BUDDY_FN u32 worker() { return blockIdx.x / S::CLUSTER; }
    static BUDDY_FN u32 rank() { return blockIdx.x % S::CLUSTER; }
    // The CTA of this CTA's rank in a worker's cluster.
    static BUDDY_FN u32 cta(u32 worker) { return worker * S::CLUSTER + rank(); }
    // k_blocks * worker / busy without overflow; the end for workers without k-blocks.
    BUDDY_FN u32 start(u32 worker) const {
        u32 number = S::GROUPED ? min(worker, busy) : worker;
        return share * number + rest * number / busy;
    }
    BUDDY_FN u32 begin() const { return start(worker()); }
    BUDDY_FN u32 end() const { return start(worker() + 1); }
    BUDDY_FN u32 owner(u32 number) const {
        u64 all = (number + 1ull) * busy + k_blocks - 1;
        return (all >> 32 ? (u32)(all / k_blocks) : (u32)all / k_blocks) - 1;
    }
};

// A k-block: its output tile, and its index along K in that tile. The row tiles of a group of tokens
// follow each other, so that CTAs share its x; without groups, the token tiles of a row tile do.
template <class S>
struct KBlock {
    u32 tile, k;
    TokenGroup group = {0, 0, 0};  // of a grouped layer; the first for a worker without k-blocks

    BUDDY_FN KBlock(const TileScheduler<S>& scheduler, u32 number) : tile(number / scheduler.tile_k_blocks), k(number % scheduler.tile_k_blocks) { find_group(scheduler); }
    BUDDY_FN void advance(const TileScheduler<S>& scheduler) {
        if (++k == scheduler.tile_k_blocks) k = 0, advance_tile(scheduler);
    }
    BUDDY_FN void advance_tile(const TileScheduler<S>& scheduler) { tile++, find_group(scheduler); }
    BUDDY_FN void find_group(const TileScheduler<S>& scheduler) {
        if (S::GROUPED && tile < scheduler.row_tiles * scheduler.token_tiles) group = scheduler.route.group(tile / scheduler.row_tiles);
    }
    // The first 16-row tile of this CTA's output tile: in W, and in the expert's matrix.
    BUDDY_FN u32 row_tile(const TileScheduler<S>& scheduler) const {
        if (S::GROUPED) return group.expert * scheduler.matrix_tiles + output_tile(scheduler);
        return (tile / scheduler.token_tiles * S::CLUSTER + scheduler.rank()) * S::TILES;
    }
    BUDDY_FN u32 output_tile(const TileScheduler<S>& scheduler) const {
        if (!S::GROUPED) return row_tile(scheduler);
        return (tile % scheduler.row_tiles * S::CLUSTER + scheduler.rank()) * S::TILES;
    }
    // The end of the expert's 16-row tiles.
    BUDDY_FN u32 end_tile(const TileScheduler<S>& scheduler) const { return (group.expert + 1) * scheduler.matrix_tiles; }
    // The first token of this CTA's output tile.
    BUDDY_FN u32 token(const TileScheduler<S>& scheduler) const { return S::GROUPED ? group.first : tile % scheduler.token_tiles * S::TOKENS; }
    // Entries of each row; fewer in the last k-block of a row.
    BUDDY_FN u32 entries(const TileScheduler<S>& scheduler) const { return min(S::ENTRIES, scheduler.per_row - k * S::ENTRIES); }
    // The layer as the epilogue of this tile sees it: up to the group's last token, with the
    // expert's bias.
    BUDDY_FN decltype(auto) seen(const Linear& linear) const {
        if constexpr (S::GROUPED) {
            Linear of = linear;
            of.tokens = group.end;
            if (of.bias) of.bias += 2ull * group.expert * linear.outputs;
            return of;
        } else {
            return (linear);
        }
    }
};

}  // namespace buddy
