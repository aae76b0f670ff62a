// Attention's plan: how the tokens of all sequences and heads are dealt to blocks, and what lies where in shared memory.
//
// An item is a head of keys and values of a sequence; its tokens are cut into tiles of 32. There are two ways to deal them; lengths are known
// on the device alone. For long contexts all tiles of all items, in order, are cut into as many equal runs as there are blocks. Where a run
// ends within an item, its blocks leave their parts in memory, and the last of them to be done adds up. For short ones an item is
// a cluster's, whose blocks have equal parts of it and send what they found to the last of them; two blocks share a multiprocessor, so
// that one attends while the other begins or ends.
#pragma once
#include "attention_ptx.cuh"
#include "kv_append.cuh"

namespace buddy {

// A tile is two sixteens, one to each warp of a team; teams take tiles in turn.
constexpr u32 TEAM = 2, TILE_TOKENS = TEAM * SIXTEEN;

struct Attention {
    KvCache cache;
    const u8* queries;      // bf16: of each sequence its tokens, of each all heads
    u8* out;                // the same
    const int* table;       // the pages of each sequence
    const int* lengths;     // tokens of each, the ones that ask included
    float* parts;           // room for what blocks leave one another
    u32* counts;            // zeros, before and after: a count for each item
    // Of a fresh token, instead of queries: of each sequence all heads of queries, of keys and of values, as one product leaves them;
    // and for each position and half the values of a head the cosine and the sine.
    const unsigned short* rows;
    const float2* turns;
    u32 table_stride, sequences;
    u32 tokens;             // of a sequence that ask: its last ones
    u32 group;              // heads that ask for one of keys and values
    u32 layer;
    float scale;            // of scores, times log2(e)
    u32 split;              // of a cluster: the logarithm of its blocks
    u32 reserved;

    BUDDY_FN u32 length(u32 sequence) const { return (u32)max(__ldg(lengths + sequence), 0); }
    // A sequence without tokens has a tile too, an empty one: somebody must write its result.
    BUDDY_FN u32 tiles(u32 sequence) const { return max((length(sequence) + TILE_TOKENS - 1) / TILE_TOKENS, 1u); }
    BUDDY_FN u32 columns() const { return tokens * group; }
    // Bytes from the beginning of queries and of results to a column's, a head of one token.
    template <bool FRESH>
    BUDDY_FN u64 column_at(u32 sequence, u32 head, u32 column) const {
        if (FRESH) return ((u64)(sequence * cache.heads + head) * group + column) * cache.parts * ENTRY;
        u64 token = (u64)sequence * tokens + column / group;
        return ((token * cache.heads + head) * group + column % group) * cache.parts * ENTRY;
    }
    // The head of a fresh token's row that has this number among all of queries, keys and values; and its turns.
    BUDDY_FN const unsigned short* fresh_head(u32 sequence, u32 number) const {
        return rows + ((u64)sequence * cache.heads * (group + 2) + number) * cache.parts * VALUES;
    }
    BUDDY_FN const float2* turns_of(u32 length, u32 first) const {
        u32 half = cache.parts * VALUES / 2;
        return turns + (u64)(length - 1) * half + first % half;
    }
    // How many tokens a column may see. One that nobody asks for sees all, as if none were masked: it shares the others' warp.
    template <bool FRESH>
    BUDDY_FN u32 limit(u32 length, u32 column) const {
        if (FRESH) return column >= group ? ~0u : length;
        u32 after = tokens - 1 - column / group;
        return column >= columns() ? ~0u : length > after ? length - after : 0;
    }
};

// A run of tiles of one item.
struct Span {
    u32 sequence, head, length;
    u32 first, tiles;  // the item's first tile among all, and how many it has
    u32 from, to;      // those of the run

    BUDDY_FN bool whole() const { return from == 0 && to == tiles; }
};

// A block's run, span by span. All lanes of a warp walk together.
struct Walk {
    const Attention& of;
    u32 total = 0, blocks, at, end;
    u32 sequence = 0, before = 0;  // where it is, and the first tile of that sequence

    BUDDY_FN explicit Walk(const Attention& of) : of(of) {
        u32 lane = threadIdx.x % WARP;
        for (u32 i = lane; i < of.sequences; i += WARP) total += of.tiles(i);
        total = __reduce_add_sync(ALL, total) * of.cache.heads;
        blocks = min(gridDim.x, total);
        at = end = 0;
        if (blockIdx.x >= blocks) return;
        at = begin(blockIdx.x), end = begin(blockIdx.x + 1);
        find(lane);
    }
    // The share of `total * block / blocks`, without a long division: blocks are few.
    BUDDY_FN u32 begin(u32 block) const { return total / blocks * block + total % blocks * block / blocks; }
    // The block whose run has a tile.
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
    // Whether this block appends a span's fresh token.
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

// The same where an item is a cluster's: one span, as long as those of the cluster's other blocks.
struct ClusterWalk {
    const Attention& of;
    bool is_done = false;

    BUDDY_FN explicit ClusterWalk(const Attention& of) : of(of) {}
    BUDDY_FN u32 rank() const { return blockIdx.x & last(); }
    BUDDY_FN u32 last() const { return (1u << of.split) - 1; }
    // The first block, not the last one, which has the token and adds up.
    BUDDY_FN bool appends(const Span& span) const { return rank() == 0 && span.length > 0; }
    BUDDY_FN bool next(Span& span) {
        if (is_done) return false;
        u32 item = blockIdx.x >> of.split, sequence = item / of.cache.heads, length = of.length(sequence), tiles = of.tiles(sequence);
        span = {sequence, item - sequence * of.cache.heads, length, 0, tiles, tiles * rank() >> of.split, tiles * (rank() + 1) >> of.split};
        return is_done = true;
    }
};

// Shared memory: tiles, their nibbles, what warps add up, barriers. `Source` is where keys and values come from; a head is of PARTS
// entries, and there are up to 8 * SETS columns.
template <class Source, u32 PARTS_, u32 SETS_, bool FRESH_, bool CLUSTERED_>
struct Room {
    static constexpr bool FRESH = FRESH_, CLUSTERED = CLUSTERED_;
    typedef Source From;
    typedef Either<CLUSTERED, ClusterWalk, Walk> Walking;
    static constexpr u32 PARTS = PARTS_, SETS = SETS_, FRAGMENTS = 4 * PARTS;
    static constexpr u32 TEAMS = BUDDY_ATTENTION_TEAMS, WARPS = TEAM * TEAMS, THREADS = WARPS * WARP;
    static constexpr u32 PIECE = SIXTEEN * Source::BYTES;  // sixteen entries
    static constexpr u32 DATA = 2 * PARTS * PIECE, NIBBLE_BYTES = 2 * PARTS * SIXTEEN / 2;  // of a sixteen
    static constexpr u32 SUMS = FRAGMENTS * SETS * WARP * 16;                               // of a warp
    static constexpr u32 SIDES = Source::HAS_NIBBLES ? 2 * PARTS * SIXTEEN * SECTOR : 0;    // of a warp
    static constexpr u32 FETCHERS = Source::HAS_NIBBLES ? 2 : 1;
    // Sums of as many warps as there are teams have room at once. At the end of a span nobody needs the sides any more.
    static constexpr u32 SHARED_BY_WARPS = TEAMS * SUMS > WARPS * SIDES && !CLUSTERED ? TEAMS * SUMS : WARPS * SIDES;
    // What a block leaves of an item: its sums, and the largest score and the sum of each column; and room for those of a cluster's
    // other blocks.
    static constexpr u32 PART = SUMS + 64 * SETS, INBOX = CLUSTERED ? (BUDDY_ATTENTION_CLUSTER - 1) * PART : 0;
    // Of a cluster: queries, and the key and the value of a fresh token, each out of step with the one before, so that lanes read from
    // different banks.
    static constexpr u32 QUERY = PARTS * ENTRY + 16, QUERIES = CLUSTERED ? 10 * QUERY : 0;
    static constexpr u32 FIXED = SHARED_BY_WARPS + WARPS * SETS * 64 + 16 + INBOX + QUERIES;
    static constexpr u32 STAGE = TEAM * (DATA + NIBBLE_BYTES) + 16;
    // A stage is always the same team's: no other one sees whether its barrier is a round behind.
    static constexpr u32 ROUND = (BUDDY_ATTENTION_SHARED - FIXED) / STAGE / TEAMS, STAGES = ROUND * TEAMS;
    static constexpr u32 AT_NIBBLES = STAGES * TEAM * DATA, AT_SUMS = AT_NIBBLES + STAGES * TEAM * NIBBLE_BYTES;
    static constexpr u32 AT_STATS = AT_SUMS + SHARED_BY_WARPS, AT_BARRIERS = AT_STATS + WARPS * SETS * 64;
    static constexpr u32 AT_LAST = AT_BARRIERS + STAGES * 16, AT_INBOX = AT_LAST + 16, AT_QUERIES = AT_INBOX + INBOX;
    static_assert(AT_QUERIES + QUERIES <= BUDDY_ATTENTION_SHARED && ROUND >= 2, "Rust asks for the shared memory that the kernels use");
    u32 shared;

    BUDDY_FN u32 data(u32 place, u32 sixteen) const { return shared + (place * TEAM + sixteen) * DATA; }
    BUDDY_FN u32 nibbles(u32 place, u32 sixteen) const { return shared + AT_NIBBLES + (place * TEAM + sixteen) * NIBBLE_BYTES; }
    BUDDY_FN u32 sums(u32 slot) const { return shared + AT_SUMS + slot * SUMS; }
    // The last quarters of a warp's entries that are not in layout B.
    BUDDY_FN u32 sides(u32 warp) const { return shared + AT_SUMS + warp * SIDES; }
    // The largest score and the sum of a warp's column.
    BUDDY_FN u32 stats(u32 warp, u32 column) const { return shared + AT_STATS + (warp * SETS * 8 + column) * 8; }
    BUDDY_FN u32 last() const { return shared + AT_LAST; }
    // In a cluster's last block: the part of another one, and its columns' numbers; and whether all of them have come.
    BUDDY_FN u32 inbox(u32 rank) const { return shared + AT_INBOX + rank * PART; }
    BUDDY_FN Barrier parts_full() const { return {shared + AT_LAST}; }
    // What a warp of a cluster's block found, once it has attended: where its tokens lay.
    BUDDY_FN u32 found(u32 warp) const { return data(warp / TEAM, warp % TEAM); }
    BUDDY_FN u32 query(u32 column) const { return shared + AT_QUERIES + column * QUERY; }
    // A tile has come; its team is done with it.
    BUDDY_FN Barrier come(u32 place) const { return {shared + AT_BARRIERS + 16 * place}; }
    BUDDY_FN Barrier used(u32 place) const { return {come(place).at + 8}; }

    BUDDY_FN void init() const {
        for (u32 place = 0; place < STAGES; place++) come(place).init(FETCHERS), used(place).init(TEAM);
        if (CLUSTERED) parts_full().init(1);
        fence_mbarrier_init();
    }
};

// The next of some places, and the parity of the rounds so far, by which a barrier is waited for.
template <u32 OF>
struct Turn {
    u32 place = 0, round = 0;

    BUDDY_FN void next() {
        place = place + 1 == OF ? 0 : place + 1;
        round ^= place == 0;
    }
};

}  // namespace buddy
