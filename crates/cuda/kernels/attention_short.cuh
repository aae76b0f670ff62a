// Attention of short contexts, where an item is a cluster's. A block runs its code once, and instructions that a multiprocessor has not run
// before come at about 128 bytes in 100 cycles (4 KB less were 1.8 us less, on an H200): what counts is how little code there is. So
// queries are turned by all threads together, entries in all layouts go one way, and what warps and blocks found is added up by one loop.
// Decoding stays unrolled: as loops it took 0.6 to 2 us longer.
#pragma once
#include "attention_sum.cuh"

namespace buddy {

// Queries of the item into shared memory, 16 bytes to a thread.
template <class R>
BUDDY_FN void load_queries(const Attention& of, const Span& span, const R& room) {
    constexpr u32 EACH = R::PARTS * CHUNKS;
    u32 column = threadIdx.x / EACH, chunk = threadIdx.x % EACH;
    if (column >= 8) return;
    uint4 v = {};
    if (column < of.columns()) v = ((const uint4*)(of.queries + of.template column_at<false>(span.sequence, span.head, column)))[chunk];
    sts128(room.query(column) + chunk * CHUNK, v);
}

// The same of a fresh token, turned: of either half of a head eight values to a thread. Its key is as one query more, and its value after that.
template <class R>
BUDDY_FN void load_fresh(const Attention& of, const Span& span, const R& room) {
    constexpr u32 EACH = R::PARTS * CHUNKS / 2, KEY = 8, VALUE = KEY + 1;
    u32 column = min(threadIdx.x / EACH, VALUE), chunk = threadIdx.x - column * EACH;
    const float4* from = (const float4*)of.turns_of(max(span.length, 1u), chunk * 8 % (EACH * 8));
    float4 turns[4];
    BUDDY_UNROLL
    for (u32 i = 0; i < 4; i++) turns[i] = __ldg(from + i);
    wait_on_dependent_grids();
    u32 number = column < KEY ? span.head * of.group + column : of.cache.heads * (of.group + column - KEY) + span.head;
    const uint4* row = (const uint4*)of.fresh_head(span.sequence, number) + chunk;
    u32 to = room.query(column) + chunk * CHUNK;
    uint4 v = {}, w = {};
    if (column == VALUE) {
        if (chunk < 2 * EACH) sts128(to, row[0]);
        return;
    }
    if (column < of.group || column == KEY) v = row[0], w = row[EACH];
    u32 first[4] = {v.x, v.y, v.z, v.w}, second[4] = {w.x, w.y, w.z, w.w};
    BUDDY_UNROLL
    for (u32 i = 0; i < 4; i++) {
        float a = from_bf16(first[i]), b = from_bf16(second[i]), c = from_bf16(first[i] >> 16), d = from_bf16(second[i] >> 16);
        first[i] = to_bf16(__fmaf_rn(a, turns[i].x, -b * turns[i].y), __fmaf_rn(c, turns[i].z, -d * turns[i].w));
        second[i] = to_bf16(__fmaf_rn(b, turns[i].x, a * turns[i].y), __fmaf_rn(d, turns[i].z, c * turns[i].w));
    }
    sts128(to, make_uint4(first[0], first[1], first[2], first[3]));
    sts128(to + EACH * CHUNK, make_uint4(second[0], second[1], second[2], second[3]));
}

// This lane's share of queries, from shared memory.
template <class R>
BUDDY_FN void take_queries(const R& room, u32 lane, Asked<R>& asked) {
    BUDDY_UNROLL
    for (u32 part = 0; part < R::PARTS; part++) {
        u32 at = room.query(lane / 4) + part * ENTRY + lane % 4 * SECTOR;
        set(asked.queries[part][0], lds128(at), lds128(at + 16));
    }
}

// A sixteen; `limits` are the tokens that this lane's two columns may see.
template <class R>
BUDDY_FN void attend_short(const Attention& of, const Sixteen<R>& tokens, const u32 (&limits)[2], u32 lane, Asked<R>& asked) {
    u32 row = lane / 4, column = lane % 4, token = TOKENS >> 4 * row & 7, w[4][R::FRAGMENTS];
    float halves[2][4] = {}, scores[1][4];
    BUDDY_UNROLL
    for (u32 part = 0; part < R::PARTS; part++) {
        u32 a[8], b[8];
        const u32(&q)[8] = asked.queries[part][0];
        tokens.template quarter<true>(part, token, column, tokens.key_window, a);
        tokens.template quarter<true>(part, token + 8, column, tokens.key_window, b);
        BUDDY_UNROLL
        for (u32 i = 0; i < 4; i++) mma_m16n8k16(halves[i % 2], a[2 * i], b[2 * i], a[2 * i + 1], b[2 * i + 1], q[2 * i], q[2 * i + 1]);
    }
    // Decoded while tensor cores are at the scores.
    BUDDY_UNROLL
    for (u32 k = 0; k < 4; k++) tokens.template values<true>((TOKENS >> 4 * (2 * column + k % 2) & 7) + k / 2 * 8, row, w[k]);
    bool above = false;
    BUDDY_UNROLL
    for (u32 k = 0; k < 4; k++) {
        // Rounded here in every copy of this code, so that results are those of the plain twin to the bit.
        scores[0][k] = __fmul_rn(halves[0][k] + halves[1][k], of.scale);
        if (tokens.base + token + k / 2 * 8 >= limits[k % 2]) scores[0][k] = __int_as_float(0xff800000);
        above |= scores[0][k] > asked.most[0][k % 2] + SLACK;
    }
    if (__any_sync(ALL, above)) asked.raise(scores);
    BUDDY_UNROLL
    for (u32 k = 0; k < 4; k++) scores[0][k] = exp2_fast(scores[0][k] - asked.most[0][k % 2]), asked.sum[0][k % 2] += scores[0][k];
    u32 weights[2] = {turned(to_bf16(scores[0][0], scores[0][1])), turned(to_bf16(scores[0][2], scores[0][3]))};
    BUDDY_UNROLL
    for (u32 f = 0; f < R::FRAGMENTS; f++) {
        u32 a0 = permute_bytes(w[0][f], w[1][f], 0x5410), a1 = permute_bytes(w[0][f], w[1][f], 0x7632);
        u32 a2 = permute_bytes(w[2][f], w[3][f], 0x5410), a3 = permute_bytes(w[2][f], w[3][f], 0x7632);
        mma_m16n8k16(asked.out[f][0], a0, a1, a2, a3, weights[0], weights[1]);
    }
}

// Adds up what warps found, and in a cluster's last block what the others sent, in a fixed order; and sends it there, or writes it.
template <class R>
BUDDY_FN void finish_short(const Attention& of, const ClusterWalk& walk, const Span& span, const R& room, u32 warp, u32 lane, Asked<R>& asked) {
    typedef Pairs<R> P;
    static_assert(R::SETS == 1 && R::THREADS % 8 == 0, "all pairs of a thread are of the same two columns");
    BUDDY_UNROLL
    for (u32 k = 0; k < 2; k++) {
        for (u32 step = 4; step < WARP; step *= 2) asked.sum[0][k] += __shfl_xor_sync(ALL, asked.sum[0][k], step);
    }
    auto put_four = [&](u32 at, float a, float b, float c, float d) {
        sts128(at, make_uint4(__float_as_uint(a), __float_as_uint(b), __float_as_uint(c), __float_as_uint(d)));
    };
    BUDDY_UNROLL
    for (u32 f = 0; f < R::FRAGMENTS; f++) {
        const float(&o)[4] = asked.out[f][0];
        put_four(room.found(warp) + (f * WARP + lane) * 16, o[0], o[1], o[2], o[3]);
    }
    if (lane < 4) put_four(room.found(warp) + R::SUMS + 16 * lane, asked.most[0][0], asked.sum[0][0], asked.most[0][1], asked.sum[0][1]);
    meet<R>();
    u32 last = walk.last(), count = R::WARPS;
    bool is_last = walk.rank() == last;
    if (is_last && last != 0) room.parts_full().wait(0), count += last;
    auto part_of = [&](u32 i) { return i < R::WARPS ? room.found(i) : room.inbox(i - R::WARPS); };
    auto stats_of = [&](u32 part) {
        uint4 v = lds128(part + R::SUMS + 8 * P::column(0));
        return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
    };
    float2 most = make_float2(LOWEST, LOWEST), sums = {}, all[P::EACH] = {};
#pragma unroll 1
    for (u32 i = 0; i < count; i++) {
        float4 stats = stats_of(part_of(i));
        most = make_float2(fmaxf(most.x, stats.x), fmaxf(most.y, stats.z));
    }
#pragma unroll 1
    for (u32 i = 0; i < count; i++) {
        u32 part = part_of(i);
        float4 stats = stats_of(part);
        float2 scale = make_float2(exp2_fast(stats.x - most.x), exp2_fast(stats.z - most.y));
        sums = make_float2(__fmaf_rn(stats.y, scale.x, sums.x), __fmaf_rn(stats.w, scale.y, sums.y));
        BUDDY_UNROLL
        for (u32 k = 0; k < P::EACH; k++) {
            float2 pair = load_pair(part + 8 * P::at(k));
            all[k] = make_float2(__fmaf_rn(pair.x, scale.x, all[k].x), __fmaf_rn(pair.y, scale.y, all[k].y));
        }
    }
    // All blocks have begun, and stay until what is sent to them has come.
    cluster_wait();
    if (is_last) {
        float2 by = make_float2(sums.x == 0 ? 0 : __fdividef(1, sums.x), sums.y == 0 ? 0 : __fdividef(1, sums.y));
        BUDDY_UNROLL
        for (u32 which = 0; which < 2; which++) {
            u32 column = P::column(0) + which;
            if (column >= of.columns()) return;
            unsigned short* out = (unsigned short*)(of.out + of.template column_at<R::FRESH>(span.sequence, span.head, column));
            BUDDY_UNROLL
            for (u32 k = 0; k < P::EACH; k++) out[P::value(k)] = narrow_bf16(which == 0 ? all[k].x * by.x : all[k].y * by.y);
        }
        return;
    }
    u32 to = room.inbox(walk.rank());
    BUDDY_UNROLL
    for (u32 k = 0; k < P::EACH; k++) st_async(to + 8 * P::at(k), last, all[k], room.parts_full());
    if (threadIdx.x >= 8 || threadIdx.x % 2 != 0) return;
    st_async(to + R::SUMS + 8 * threadIdx.x, last, make_float2(most.x, sums.x), room.parts_full());
    st_async(to + R::SUMS + 8 * threadIdx.x + 8, last, make_float2(most.y, sums.y), room.parts_full());
}

}  // namespace buddy
