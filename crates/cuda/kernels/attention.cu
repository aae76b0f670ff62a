// Decode attention over keys and values in compressed memory: 1 to 16 columns, a column being a head that asks for a token.
// attention_plan.cuh says who does what, attention.cuh how sixteen tokens are attended to, attention_sum.cuh how parts are joined,
// attention_short.cuh how a cluster does both.
#include "attention_short.cuh"

using namespace buddy;

// Brings in tiles, their entries by one warp and their nibbles by another. A lane looks up a run, sixteens of a tile that lie
// together in a page, 32 of them at a time; one lane then asks for the copies.
template <class R>
BUDDY_FN void fetch_tiles(const Attention& of, const R& room, bool nibbles, u32 lane) {
    const KvCache& cache = of.cache;
    const u32 bytes = nibbles ? R::NIBBLE_BYTES : R::DATA, page_bits = trailing_zeros(cache.page_tokens);
    u32 together = min(cache.sixteens(), TEAM), bits = together == TEAM ? 0 : 1, runs = 1u << bits, sum = 0;
    u64 policy = evict_first_policy();
    typename R::Walking walk(of);
    Turn<R::STAGES> turn;
    for (Span span; walk.next(span);) {
        const int* table = of.table + (u64)span.sequence * of.table_stride;
        u32 end = span.to << bits;
        auto token_of = [&](u32 run) { return run * together * SIXTEEN; };
        auto page_of = [&](u32 run) { return run < end && token_of(run) < span.length ? __ldg(table + (token_of(run) >> page_bits)) : 0; };
        u32 first = span.from << bits, ahead = page_of(first + lane);
        for (; first < end; first += WARP) {
            u32 page = ahead, token = token_of(first + lane);
            ahead = page_of(first + WARP + lane);
            u32 mine = token < span.length ? min((span.length - token + SIXTEEN - 1) / SIXTEEN, together) : 0;
            u64 entry = cache.first_entry(of.layer, page, span.head, token & (cache.page_tokens - 1));
            const u8* from = nibbles ? cache.memory.nibbles + entry / 2 : cache.memory.device + entry * R::From::BYTES;
#pragma unroll 1
            for (u32 i = 0; i < WARP && first + i < end; i++) {
                u32 count = __shfl_sync(ALL, mine, i), part = i & (runs - 1);
                const u8* at = (const u8*)__shfl_sync(ALL, (u64)from, i);
                Barrier come = room.come(turn.place);
                if (part == 0) room.used(turn.place).wait(turn.round ^ 1), sum = 0;
                // All lanes have seen it before one asks for anything: an empty tile is done with at once.
                __syncwarp();
                u32 to = nibbles ? room.nibbles(turn.place, part * together) : room.data(turn.place, part * together);
                sum += count * bytes;
                if (lane == 0 && count != 0) cp_async_bulk(to, at, count * bytes, come, policy);
                if (part + 1 < runs) continue;
                if (lane == 0) come.arrive_expect_tx(sum);
                turn.next();
            }
        }
    }
    if (!R::FRESH || !nibbles) return;
    // All that is older is asked for: fresh tokens go to memory, by this warp, which has nothing else to do, while others attend.
    wait_on_dependent_grids();
    typename R::Walking again(of);
    for (Span span; again.next(span);) {
        if (again.appends(span)) append_fresh<R>(of, span, lane);
    }
}

template <class R>
BUDDY_FN void attend_tiles(const Attention& of, const R& room, u32 warp, u32 lane) {
    typename R::Walking walk(of);
    Turn<R::ROUND> turn;
    // Tiles of this block before the span, and before the next one of this team.
    u32 sixteen = warp % TEAM, team = warp / TEAM, before = 0, next = team;
    for (Span span; walk.next(span); before += span.to - span.from) {
        Sixteen<R> tokens = {};
        tokens.sides = room.sides(warp);
        tokens.length = span.length;
        // Before anything waits for queries.
        if (R::From::HAS_NIBBLES) {
            unsigned short both = __ldg((const unsigned short*)of.cache.window(of.layer, span.head, 0));
            tokens.key_window = both & 0xff, tokens.value_window = both >> 8;
        }
        Asked<R> asked;
        asked.start(of, span, lane);
#pragma unroll 1
        for (; next - before < span.to - span.from; next += R::TEAMS, turn.next()) {
            u32 place = turn.place * R::TEAMS + team;
            room.come(place).wait(turn.round);
            tokens.base = (span.from + next - before) * TILE_TOKENS + sixteen * SIXTEEN;
            tokens.data = room.data(place, sixteen), tokens.nibbles = room.nibbles(place, sixteen);
            if (tokens.base < span.length) {
                if (!tokens.has_fresh() && tokens.usual(of.tokens)) {
                    attend<R, false>(of, tokens, lane, asked);
                } else {
                    tokens.unfold(of, span, lane);
                    attend<R, true>(of, tokens, lane, asked);
                }
            }
            __syncwarp();
            if (lane == 0) room.used(place).arrive();
        }
        finish(of, walk, span, room, warp, lane, asked);
    }
}

// The same where an item is a cluster's.
template <class R>
BUDDY_FN void attend_item(const Attention& of, const R& room, u32 warp, u32 lane) {
    ClusterWalk walk(of);
    Span span;
    walk.next(span);
    Sixteen<R> tokens = {};
    tokens.sides = room.sides(warp), tokens.fresh = room.query(8), tokens.length = span.length;
    if (R::From::HAS_NIBBLES) {
        unsigned short both = __ldg((const unsigned short*)of.cache.window(of.layer, span.head, 0));
        tokens.key_window = both & 0xff, tokens.value_window = both >> 8;
    }
    u32 limits[2] = {of.template limit<R::FRESH>(span.length, lane % 4 * 2), of.template limit<R::FRESH>(span.length, lane % 4 * 2 + 1)};
    Asked<R> asked;
    asked.clear();
    if (R::FRESH) load_fresh(of, span, room);
    else load_queries(of, span, room);
    meet<R>();
    take_queries(room, lane, asked);
    u32 sixteen = warp % TEAM, team = warp / TEAM;
    Turn<R::ROUND> turn;
#pragma unroll 1
    for (u32 tile = span.from + team; tile < span.to; tile += R::TEAMS, turn.next()) {
        u32 place = turn.place * R::TEAMS + team;
        room.come(place).wait(turn.round);
        tokens.base = tile * TILE_TOKENS + sixteen * SIXTEEN;
        tokens.data = room.data(place, sixteen), tokens.nibbles = room.nibbles(place, sixteen);
        if (tokens.base < span.length) {
            BUDDY_UNROLL
            for (u32 i = 0; i < R::PARTS; i++) tokens.odd[i] = 0;
            if (tokens.has_fresh() || !tokens.usual(of.tokens)) tokens.unfold(of, span, lane);
            attend_short(of, tokens, limits, lane, asked);
        }
        __syncwarp();
        if (lane == 0) room.used(place).arrive();
    }
    finish_short(of, walk, span, room, warp, lane, asked);
}

// From Rust: where keys and values come from, the values of a head, the columns that there may be, 8 or 16, whether the token that
// asks is fresh: not turned and not appended yet, and whether items are clusters'.
typedef Room<BUDDY_ATTENTION_SOURCE, BUDDY_ATTENTION_VALUES / VALUES, BUDDY_ATTENTION_COLUMNS / 8, BUDDY_ATTENTION_FRESH, (BUDDY_ATTENTION_CLUSTER > 1)> R;

extern "C" __global__ void __launch_bounds__(R::THREADS + R::FETCHERS * WARP, R::CLUSTERED ? 2 : 1)
    attention(const __grid_constant__ Attention of) {
    BUDDY_DYNAMIC_SHARED(u8, memory);
    R room = {shared_address(memory)};
    if (threadIdx.x == 0) {
        room.init();
        if (R::CLUSTERED) room.parts_full().arrive_expect_tx(((1u << of.split) - 1) * R::PART);
    }
    __syncthreads();
    if (R::CLUSTERED) cluster_arrive();
    launch_dependent_grids();
    if (!R::FRESH) wait_on_dependent_grids();
    u32 warp = __shfl_sync(ALL, threadIdx.x / WARP, 0), lane = threadIdx.x % WARP;
    if constexpr (R::CLUSTERED) {
        if (warp < R::WARPS) return attend_item(of, room, warp, lane);
        fetch_tiles(of, room, warp > R::WARPS, lane);
        cluster_wait();
    } else {
        if (warp < R::WARPS) attend_tiles(of, room, warp, lane);
        else if (warp == R::WARPS) fetch_tiles(of, room, false, lane);
        else fetch_tiles(of, room, true, lane);
    }
}
