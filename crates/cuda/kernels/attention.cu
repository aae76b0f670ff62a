// Decode attention over keys and values in compressed memory: 1 to 16 columns, a column being a head that asks for a token.
// attention_plan.cuh says who does what, attention.cuh how sixteen tokens are attended to, attention_sum.cuh how parts are joined.
#include "attention_sum.cuh"

using namespace buddy;

// Brings in tiles, their entries by one warp and their nibbles by another: its lanes look up pages ahead of time, and one of them
// asks for copies.
template <class R, bool NIBBLES>
BUDDY_FN void fetch_tiles(const Attention& of, const R& room, u32 lane) {
    const KvCache& cache = of.cache;
    u64 policy = read_once();
    // Sixteens that lie together in a page.
    u32 together = min(cache.sixteens(), TEAM);
    Walk walk(of);
    Turn<R::STAGES> turn;
    for (Span span; walk.next(span);) {
        const int* table = of.table + (u64)span.sequence * of.table_stride;
        u32 pages = (span.length + cache.page_tokens - 1) / cache.page_tokens;
        auto page_of = [&](u32 run) {
            u32 page = (span.from * TEAM + run * together) / cache.sixteens();
            return page < pages ? (u32)__ldg(table + page) : 0;
        };
        u32 now = page_of(lane), ahead = page_of(WARP + lane);
        for (u32 tile = span.from, run = 0; tile < span.to; tile++, turn.next()) {
            if (run % WARP == 0 && run != 0) now = ahead, ahead = page_of(run + WARP + lane);
            room.used(turn.place).wait(turn.round ^ 1);
            Barrier come = room.come(turn.place);
            u32 sixteens = 0;
            for (u32 i = 0; i < TEAM; i += together, run++) {
                u32 page = __shfl_sync(ALL, now, run % WARP), token = tile * TILE_TOKENS + i * SIXTEEN;
                if (token >= span.length) continue;
                u32 count = min((span.length - token + SIXTEEN - 1) / SIXTEEN, together);
                u64 entry = cache.first_entry(of.layer, page, span.head, token % cache.page_tokens);
                sixteens += count;
                if (lane != 0) continue;
                if (!NIBBLES) {
                    copy_bulk(room.data(turn.place, i), cache.memory.device + entry * R::From::BYTES, count * R::DATA, come, policy);
                    continue;
                }
                copy_bulk(room.nibbles(turn.place, i), cache.memory.nibbles + entry / 2, count * R::NIBBLE_BYTES, come);
                for (u32 k = 0; k < count; k++, entry += cache.sixteen_entries()) {
                    store_two(room.note(turn.place, i + k), make_uint2((u32)entry, (u32)(entry >> 32)));
                }
            }
            if (lane == 0) come.expect(sixteens * (NIBBLES ? R::NIBBLE_BYTES : R::DATA));
            __syncwarp();
        }
    }
}

template <class R>
BUDDY_FN void attend_tiles(const Attention& of, const R& room, u32 warp, u32 lane) {
    Walk walk(of);
    Turn<R::STAGES> turn;
    u32 sixteen = warp % TEAM, wait = warp / TEAM;
    for (Span span; walk.next(span);) {
        Asked<R> asked;
        asked.start(of, span, lane);
        Sixteen<R> tokens = {};
        tokens.sides = room.sides(warp);
        tokens.length = span.length;
        if (R::From::HAS_NIBBLES) {
            tokens.key_window = *of.cache.window(of.layer, span.head, 0), tokens.value_window = *of.cache.window(of.layer, span.head, 1);
        }
#pragma unroll 1
        for (u32 tile = span.from; tile < span.to; tile++, turn.next()) {
            bool mine = wait == 0;
            wait = mine ? R::TEAMS - 1 : wait - 1;
            if (!mine) continue;
            room.come(turn.place).wait(turn.round);
            tokens.base = tile * TILE_TOKENS + sixteen * SIXTEEN;
            tokens.data = room.data(turn.place, sixteen), tokens.nibbles = room.nibbles(turn.place, sixteen), tokens.note = room.note(turn.place, sixteen);
            if (tokens.base < span.length) {
                if (tokens.usual(of.tokens)) {
                    attend<R, false>(of, tokens, lane, asked);
                } else {
                    tokens.unfold(of, lane);
                    attend<R, true>(of, tokens, lane, asked);
                }
            }
            __syncwarp();
            if (lane == 0) room.used(turn.place).arrive();
        }
        finish(of, walk, span, room, warp, lane, asked);
    }
}

// From Rust: where keys and values come from, the values of a head, and the columns that there may be, 8 or 16.
typedef Room<BUDDY_ATTENTION_SOURCE, BUDDY_ATTENTION_VALUES / VALUES, BUDDY_ATTENTION_COLUMNS / 8> R;

extern "C" __global__ void __launch_bounds__(R::THREADS + R::FETCHERS * WARP, 1) attention(const __grid_constant__ Attention of) {
    extern __shared__ __align__(128) u8 memory[];
    R room = {shared_address(memory)};
    if (threadIdx.x == 0) room.init();
    __syncthreads();
    let_kernel_after_begin();
    wait_for_kernel_before();
    u32 warp = __shfl_sync(ALL, threadIdx.x / WARP, 0), lane = threadIdx.x % WARP;
    if (warp < R::WARPS) attend_tiles(of, room, warp, lane);
    else if (warp == R::WARPS) fetch_tiles<R, false>(of, room, lane);
    else fetch_tiles<R, true>(of, room, lane);
}
