// Decode attention over a KV cache in compressed memory: 1 to 16 query columns per KV head. A
// column is one query head of one token.
//
// A warp-specialised kernel: producer warps load tiles of 32 tokens and their nibbles into a ring
// of stages, and teams of two consumer warps attend to them.
//
//    attention_plan.cuh    arguments, tile schedulers, shared memory and barriers
//    attention.cuh         attention of a warp over 16 tokens
//    attention_sum.cuh     epilogue: reduction over warps, stream-K fix-up
//    attention_short.cuh   short contexts: a cluster per KV head, reduced over distributed shared memory
#include "attention_short.cuh"

using namespace buddy;

// Producer warp: loads tiles into the ring, either entries or nibbles. A lane looks up the page of
// a run, the part of a tile that is contiguous in a page, for 32 runs at a time; lane 0 issues the
// copies.
template <class S>
BUDDY_FN void produce_tiles(const Attention& of, const S& smem, bool nibbles, u32 lane) {
    const KvCache& cache = of.cache;
    const u32 bytes = nibbles ? S::NIBBLE_BYTES : S::DATA, page_bits = trailing_zeros(cache.page_tokens);
    u32 together = min(cache.mma_tiles(), TEAM), bits = together == TEAM ? 0 : 1, runs = 1u << bits, sum = 0;
    u64 policy = evict_first_policy();
    typename S::Scheduler scheduler(of);
    PipelineState<S::STAGES> ring;
    for (Span span; scheduler.next(span);) {
        const int* table = of.table + (u64)span.sequence * of.table_stride;
        u32 end = span.to << bits;
        auto token_of = [&](u32 run) { return run * together * MMA_TOKENS; };
        auto page_of = [&](u32 run) { return run < end && token_of(run) < span.length ? __ldg(table + (token_of(run) >> page_bits)) : 0; };
        u32 first = span.from << bits, ahead = page_of(first + lane);
        for (; first < end; first += WARP) {
            u32 page = ahead, token = token_of(first + lane);
            ahead = page_of(first + WARP + lane);
            u32 mine = token < span.length ? min((span.length - token + MMA_TOKENS - 1) / MMA_TOKENS, together) : 0;
            u64 entry = cache.first_entry(of.layer, page, span.head, token & (cache.page_tokens - 1));
            const u8* from = nibbles ? cache.memory.nibbles + entry / 2 : cache.memory.device + entry * S::From::BYTES;
#pragma unroll 1
            for (u32 i = 0; i < WARP && first + i < end; i++) {
                u32 count = __shfl_sync(ALL, mine, i), part = i & (runs - 1);
                const u8* at = (const u8*)__shfl_sync(ALL, (u64)from, i);
                Barrier full = smem.full(ring.stage);
                if (part == 0) smem.empty(ring.stage).wait(ring.phase ^ 1), sum = 0;
                // All lanes have passed the wait before a copy is issued: an empty tile completes
                // at once.
                __syncwarp();
                u32 to = nibbles ? smem.nibbles(ring.stage, part * together) : smem.data(ring.stage, part * together);
                sum += count * bytes;
                if (lane == 0 && count != 0) cp_async_bulk(to, at, count * bytes, full, policy);
                if (part + 1 < runs) continue;
                if (lane == 0) full.arrive_expect_tx(sum);
                ring.advance();
            }
        }
    }
    if (!S::FRESH || !nibbles) return;
    // All older tokens are in flight: this warp, idle from here on, appends fresh tokens to the
    // cache.
    wait_on_dependent_grids();
    typename S::Scheduler appending(of);
    for (Span span; appending.next(span);) {
        if (appending.appends(span)) append_fresh<S>(of, span, lane);
    }
}

template <class S>
BUDDY_FN void consume_tiles(const Attention& of, const S& smem, u32 warp, u32 lane) {
    typename S::Scheduler scheduler(of);
    PipelineState<S::TEAM_STAGES> ring;
    // Tiles of this CTA before the span, and before this team's next one.
    u32 mma_tile = warp % TEAM, team = warp / TEAM, before = 0, next = team;
    for (Span span; scheduler.next(span); before += span.to - span.from) {
        MmaTile<S> tokens = {};
        tokens.tails = smem.tails(warp);
        tokens.length = span.length;
        // Loaded before the wait for queries.
        if (S::From::HAS_NIBBLES) {
            unsigned short both = __ldg((const unsigned short*)of.cache.window(of.layer, span.head, 0));
            tokens.key_window = both & 0xff, tokens.value_window = both >> 8;
        }
        SoftmaxState<S> state;
        state.start(of, span, lane);
#pragma unroll 1
        for (; next - before < span.to - span.from; next += S::TEAMS, ring.advance()) {
            u32 stage = ring.stage * S::TEAMS + team;
            smem.full(stage).wait(ring.phase);
            tokens.base = (span.from + next - before) * TILE_TOKENS + mma_tile * MMA_TOKENS;
            tokens.data = smem.data(stage, mma_tile), tokens.nibbles = smem.nibbles(stage, mma_tile);
            if (tokens.base < span.length) {
                if (!tokens.has_fresh() && tokens.is_regular(of.tokens)) {
                    attend<S, false>(of, tokens, lane, state);
                } else {
                    tokens.expand(of, span, lane);
                    attend<S, true>(of, tokens, lane, state);
                }
            }
            __syncwarp();
            if (lane == 0) smem.empty(stage).arrive();
        }
        run_epilogue(of, scheduler, span, smem, warp, lane, state);
    }
}

// Consumer warp of a cluster that shares one KV head.
template <class S>
BUDDY_FN void consume_item(const Attention& of, const S& smem, u32 warp, u32 lane) {
    ClusterScheduler scheduler(of);
    Span span;
    scheduler.next(span);
    MmaTile<S> tokens = {};
    tokens.tails = smem.tails(warp), tokens.fresh = smem.query(8), tokens.length = span.length;
    if (S::From::HAS_NIBBLES) {
        unsigned short both = __ldg((const unsigned short*)of.cache.window(of.layer, span.head, 0));
        tokens.key_window = both & 0xff, tokens.value_window = both >> 8;
    }
    u32 limits[2] = {of.template limit<S::FRESH>(span.length, lane % 4 * 2), of.template limit<S::FRESH>(span.length, lane % 4 * 2 + 1)};
    SoftmaxState<S> state;
    state.clear();
    if (S::FRESH) load_fresh(of, span, smem);
    else load_queries(of, span, smem);
    sync_consumers<S>();
    load_query_fragments(smem, lane, state);
    state.scale_queries(of, span, lane);
    u32 mma_tile = warp % TEAM, team = warp / TEAM;
    PipelineState<S::TEAM_STAGES> ring;
#pragma unroll 1
    for (u32 tile = span.from + team; tile < span.to; tile += S::TEAMS, ring.advance()) {
        u32 stage = ring.stage * S::TEAMS + team;
        smem.full(stage).wait(ring.phase);
        tokens.base = tile * TILE_TOKENS + mma_tile * MMA_TOKENS;
        tokens.data = smem.data(stage, mma_tile), tokens.nibbles = smem.nibbles(stage, mma_tile);
        if (tokens.base < span.length) {
            BUDDY_UNROLL
            for (u32 i = 0; i < S::HEAD_ENTRIES; i++) tokens.irregular[i] = 0;
            if (tokens.has_fresh() || !tokens.is_regular(of.tokens)) tokens.expand(of, span, lane);
            attend_short(of, tokens, limits, lane, state);
        }
        __syncwarp();
        if (lane == 0) smem.empty(stage).arrive();
    }
    run_short_epilogue(of, scheduler, span, smem, warp, lane, state);
}

// Set by Rust: source of keys and values, head dimension, maximum columns (8 or 16), whether the
// query token is fresh (neither rotated nor appended), and whether clusters share a KV head.
typedef SharedStorage<BUDDY_ATTENTION_SOURCE, BUDDY_ATTENTION_VALUES / VALUES, BUDDY_ATTENTION_COLUMNS / 8, BUDDY_ATTENTION_FRESH, (BUDDY_ATTENTION_CLUSTER > 1)> S;

extern "C" __global__ void __launch_bounds__(S::THREADS + S::PRODUCERS * WARP, S::CLUSTERED ? 2 : 1)
    attention(const __grid_constant__ Attention of) {
    BUDDY_DYNAMIC_SHARED(u8, memory);
    S smem = {shared_address(memory)};
    if (threadIdx.x == 0) {
        smem.init();
        if (S::CLUSTERED) smem.partials_full().arrive_expect_tx(((1u << of.split) - 1) * S::PARTIAL);
    }
    __syncthreads();
    if (S::CLUSTERED) cluster_arrive();
    launch_dependent_grids();
    if (!S::FRESH) wait_on_dependent_grids();
    u32 warp = __shfl_sync(ALL, threadIdx.x / WARP, 0), lane = threadIdx.x % WARP;
    if constexpr (S::CLUSTERED) {
        if (warp < S::WARPS) return consume_item(of, smem, warp, lane);
        produce_tiles(of, smem, warp > S::WARPS, lane);
        cluster_wait();
    } else {
        if (warp < S::WARPS) consume_tiles(of, smem, warp, lane);
        else if (warp == S::WARPS) produce_tiles(of, smem, false, lane);
        else produce_tiles(of, smem, true, lane);
    }
}
