// Attention's plan: arguments, tile schedulers, and layout of shared memory.
//
// A work item is a KV head of a sequence; its tokens are cut into tiles of 32. Lengths are known on
// the device only. Long contexts use stream-K: the tiles of all items, in order, are cut into equal
// ranges, one per CTA. Items that several CTAs share are reduced by the last one to finish. Short
// contexts use a cluster per item, whose CTAs take equal parts and send their partials to the last
// one. Two CTAs share an SM, so that one computes while the other starts or ends.
#pragma once
#include "attention_ptx.cuh"
#include "kv_append.cuh"

namespace buddy {

// A tile is two mma tiles, one per warp of a team; teams take tiles round-robin.
constexpr u32 TEAM = 2, TILE_TOKENS = TEAM * MMA_TOKENS;

struct Attention {
    KvCache cache;
    const u8* queries;      // bf16: [sequence][token][head]
    u8* out;                // same layout
    const int* table;       // page table of each sequence
    const int* lengths;     // tokens of each sequence, query tokens included
    float* partials;           // scratch: partials of shared items
    u32* counters;            // fix-up counters, one per item; zero before and after
    // With a fresh token, instead of `queries`: all heads of queries, keys and values of each
    // sequence, as the QKV projection writes them; and RoPE's cosine and sine for each position and
    // half the head dimension.
    const unsigned short* rows;
    const float2* rope;
    u32 table_stride, sequences;
    u32 tokens;             // query tokens of a sequence: its last ones
    u32 group;              // query heads per KV head (GQA)
    u32 layer;
    float scale;            // softmax scale times log2(e)
    u32 split;              // clusters: log2 of the CTAs
    u32 reserved;

    BUDDY_FN u32 length(u32 sequence) const { return (u32)max(__ldg(lengths + sequence), 0); }
    // A sequence without tokens has one empty tile, so that its output is written.
    BUDDY_FN u32 tiles(u32 sequence) const { return max((length(sequence) + TILE_TOKENS - 1) / TILE_TOKENS, 1u); }
    BUDDY_FN u32 columns() const { return tokens * group; }
    // Byte offset of a column's head in `queries` and `out`.
    template <bool FRESH>
    BUDDY_FN u64 column_at(u32 sequence, u32 head, u32 column) const {
        if (FRESH) return ((u64)(sequence * cache.heads + head) * group + column) * cache.head_entries * ENTRY;
        u64 token = (u64)sequence * tokens + column / group;
        return ((token * cache.heads + head) * group + column % group) * cache.head_entries * ENTRY;
    }
    // Head `number` of a fresh token's row, among those of queries, keys and values; and its RoPE
    // factors.
    BUDDY_FN const unsigned short* fresh_head(u32 sequence, u32 number) const {
        return rows + ((u64)sequence * cache.heads * (group + 2) + number) * cache.head_entries * VALUES;
    }
    BUDDY_FN const float2* rope_at(u32 length, u32 first) const {
        u32 half = cache.head_entries * VALUES / 2;
        return rope + (u64)(length - 1) * half + first % half;
    }
    // Returns the number of tokens that a column attends to (causal mask). Unused columns are not
    // masked.
    template <bool FRESH>
    BUDDY_FN u32 limit(u32 length, u32 column) const {
        if (FRESH) return column >= group ? ~0u : length;
        u32 after = tokens - 1 - column / group;
        return column >= columns() ? ~0u : length > after ? length - after : 0;
    }
};

// A contiguous range of tiles of one item.
struct Span {
    u32 sequence, head, length;
    u32 first, tiles;  // index of the item's first tile in all tiles, and its number of tiles
    u32 from, to;      // range of tiles

    BUDDY_FN bool whole() const { return from == 0 && to == tiles; }
};

// Stream-K tile scheduler: the spans of this CTA's range. All lanes of a warp call it together.
struct TileScheduler {
    const Attention& of;
    u32 total = 0, blocks, at, end;
    u32 sequence = 0, before = 0;  // current sequence, and its first tile

    BUDDY_FN explicit TileScheduler(const Attention& of) : of(of) {
        u32 lane = threadIdx.x % WARP;
        for (u32 i = lane; i < of.sequences; i += WARP) total += of.tiles(i);
        total = __reduce_add_sync(ALL, total) * of.cache.heads;
        blocks = min(gridDim.x, total);
        at = end = 0;
        if (blockIdx.x >= blocks) return;
        at = begin(blockIdx.x), end = begin(blockIdx.x + 1);
        find(lane);
    }
    // total * block / blocks without a 64-bit division.
    BUDDY_FN u32 begin(u32 block) const { return total / blocks * block + total % blocks * block / blocks; }
    // Returns the CTA whose range holds a tile.
    BUDDY_FN u32 owner(u32 tile) const { return (u32)((((u64)tile + 1) * blocks - 1) / total); }
    BUDDY_FN void find(u32 lane) {
        for (u32 first = 0;; first += WARP) {
            u32 mine = first + lane < of.sequences ? of.tiles(first + lane) : 0, sum = mine;
            for (u32 step = 1; step < WARP; step *= 2) {
                u32 other = __shfl_up_sync(ALL, sum, step);
                if (lane >= step) sum += other;
            }
            u32 found = __ballot_sync(ALL, before + sum * of.cache.heads > at);
            u32 last = found ? trailing_zeros(found) : WARP - 1;
            sequence = first + last;
            before += __shfl_sync(ALL, found ? sum - mine : sum, last) * of.cache.heads;
            if (found) return;
        }
    }
    // Returns true if this CTA appends the span's fresh token.
    BUDDY_FN bool appends(const Span& span) const { return span.to == span.tiles && span.length > 0; }
    BUDDY_FN bool next(Span& span) {
        if (at >= end) return false;
        u32 tiles = of.tiles(sequence), all = tiles * of.cache.heads;
        while (at - before >= all) before += all, sequence++, tiles = of.tiles(sequence), all = tiles * of.cache.heads;
        u32 head = (at - before) / tiles, first = before + head * tiles;
        span = {sequence, head, of.length(sequence), first, tiles, at - first, min(tiles, end - first)};
        at = first + span.to;
        return true;
    }
};

// Scheduler of a cluster per item: one span per CTA, all of about the same length.
struct ClusterScheduler {
    const Attention& of;
    bool is_done = false;

    BUDDY_FN explicit ClusterScheduler(const Attention& of) : of(of) {}
    BUDDY_FN u32 rank() const { return blockIdx.x & last(); }
    BUDDY_FN u32 last() const { return (1u << of.split) - 1; }
    // The first CTA appends, since the last one has to reduce.
    BUDDY_FN bool appends(const Span& span) const { return rank() == 0 && span.length > 0; }
    BUDDY_FN bool next(Span& span) {
        if (is_done) return false;
        u32 item = blockIdx.x >> of.split, sequence = item / of.cache.heads, length = of.length(sequence), tiles = of.tiles(sequence);
        span = {sequence, item - sequence * of.cache.heads, length, 0, tiles, tiles * rank() >> of.split, tiles * (rank() + 1) >> of.split};
        return is_done = true;
    }
};

// Layout of shared memory: tiles, nibbles, accumulators, barriers. `Source` is compressed or plain
// memory. A head has `HEAD_ENTRIES` entries; there are up to 8 * `N8_TILES` columns.
template <class Source, u32 HEAD_ENTRIES_, u32 N8_TILES_, bool FRESH_, bool CLUSTERED_>
struct SharedStorage {
    static constexpr bool FRESH = FRESH_, CLUSTERED = CLUSTERED_;
    typedef Source From;
    typedef Either<CLUSTERED, ClusterScheduler, TileScheduler> Scheduler;
    static constexpr u32 HEAD_ENTRIES = HEAD_ENTRIES_, N8_TILES = N8_TILES_, FRAGMENTS = 4 * HEAD_ENTRIES;
    static constexpr u32 TEAMS = BUDDY_ATTENTION_TEAMS, WARPS = TEAM * TEAMS, THREADS = WARPS * WARP;
    static constexpr u32 PIECE = MMA_TOKENS * Source::BYTES;  // sixteen entries
    static constexpr u32 DATA = 2 * HEAD_ENTRIES * PIECE, NIBBLE_BYTES = 2 * HEAD_ENTRIES * MMA_TOKENS / 2;  // of an mma tile
    static constexpr u32 SUMS = FRAGMENTS * N8_TILES * WARP * 16;                               // of a warp
    static constexpr u32 TAILS = Source::HAS_NIBBLES ? 2 * HEAD_ENTRIES * MMA_TOKENS * SECTOR : 0;    // of a warp
    static constexpr u32 PRODUCERS = Source::HAS_NIBBLES ? 2 : 1;
    // Accumulators of `TEAMS` warps fit at once. They reuse the memory of `tails`, which are free
    // at the end of a span.
    static constexpr u32 SHARED_BY_WARPS = TEAMS * SUMS > WARPS * TAILS && !CLUSTERED ? TEAMS * SUMS : WARPS * TAILS;
    // A CTA's partial of an item: accumulators, then the maximum and sum of each column; and those
    // received from the other CTAs of a cluster.
    static constexpr u32 PARTIAL = SUMS + 64 * N8_TILES, PEER_PARTIALS = CLUSTERED ? (BUDDY_ATTENTION_CLUSTER - 1) * PARTIAL : 0;
    // Clusters: queries, then a fresh token's key and value, padded by 16 bytes to avoid bank
    // conflicts.
    static constexpr u32 QUERY = HEAD_ENTRIES * ENTRY + 16, QUERIES = CLUSTERED ? 10 * QUERY : 0;
    static constexpr u32 FIXED = SHARED_BY_WARPS + WARPS * N8_TILES * 64 + 16 + PEER_PARTIALS + QUERIES;
    static constexpr u32 STAGE = TEAM * (DATA + NIBBLE_BYTES) + 16;
    // A stage always belongs to the same team, so its phase is that team's own.
    static constexpr u32 TEAM_STAGES = (BUDDY_ATTENTION_SHARED - FIXED) / STAGE / TEAMS, STAGES = TEAM_STAGES * TEAMS;
    static constexpr u32 AT_NIBBLES = STAGES * TEAM * DATA, AT_SUMS = AT_NIBBLES + STAGES * TEAM * NIBBLE_BYTES;
    static constexpr u32 AT_STATS = AT_SUMS + SHARED_BY_WARPS, AT_BARRIERS = AT_STATS + WARPS * N8_TILES * 64;
    static constexpr u32 AT_LAST = AT_BARRIERS + STAGES * 16, AT_PEER_PARTIALS = AT_LAST + 16, AT_QUERIES = AT_PEER_PARTIALS + PEER_PARTIALS;
    static_assert(AT_QUERIES + QUERIES <= BUDDY_ATTENTION_SHARED && TEAM_STAGES >= 2, "Rust asks for the shared memory that the kernels use");
    u32 shared;

    BUDDY_FN u32 data(u32 stage, u32 mma_tile) const { return shared + (stage * TEAM + mma_tile) * DATA; }
    BUDDY_FN u32 nibbles(u32 stage, u32 mma_tile) const { return shared + AT_NIBBLES + (stage * TEAM + mma_tile) * NIBBLE_BYTES; }
    BUDDY_FN u32 sums(u32 slot) const { return shared + AT_SUMS + slot * SUMS; }
    // Last quarters of a warp's expanded entries.
    BUDDY_FN u32 tails(u32 warp) const { return shared + AT_SUMS + warp * TAILS; }
    // Maximum and sum of a warp's column.
    BUDDY_FN u32 stats(u32 warp, u32 column) const { return shared + AT_STATS + (warp * N8_TILES * 8 + column) * 8; }
    BUDDY_FN u32 last() const { return shared + AT_LAST; }
    // In the last CTA of a cluster: the partial of another CTA, and the barrier on which all of
    // them arrive.
    BUDDY_FN u32 peer_partial(u32 rank) const { return shared + AT_PEER_PARTIALS + rank * PARTIAL; }
    BUDDY_FN Barrier partials_full() const { return {shared + AT_LAST}; }
    // Clusters: a warp's partial, stored over its first tile once the span is done.
    BUDDY_FN u32 warp_partial(u32 warp) const { return data(warp / TEAM, warp % TEAM); }
    BUDDY_FN u32 query(u32 column) const { return shared + AT_QUERIES + column * QUERY; }
    // Barriers of a stage: filled by the producers, released by its team.
    BUDDY_FN Barrier full(u32 stage) const { return {shared + AT_BARRIERS + 16 * stage}; }
    BUDDY_FN Barrier empty(u32 stage) const { return {full(stage).at + 8}; }

    BUDDY_FN void init() const {
        for (u32 stage = 0; stage < STAGES; stage++) full(stage).init(PRODUCERS), empty(stage).init(TEAM);
        if (CLUSTERED) partials_full().init(1);
        fence_mbarrier_init();
    }
};

}  // namespace buddy
