// Attention over short contexts, a cluster per KV head. A CTA runs its code once, so the cost is
// instruction fetch: about 100 cycles per 128 bytes not yet in the instruction cache. The code is
// therefore kept small: all threads apply RoPE together, all layouts share one path, and one loop
// reduces warps and CTAs. Decoding stays unrolled, which is faster.
#pragma once
#include "attention_sum.cuh"

namespace buddy {

// Loads the item's queries into shared memory, 16 bytes per thread.
template <class S>
BUDDY_FN void load_queries(const Attention& of, const Span& span, const S& smem) {
    constexpr u32 EACH = S::HEAD_ENTRIES * CHUNKS;
    u32 column = threadIdx.x / EACH, chunk = threadIdx.x % EACH;
    if (column >= 8) return;
    uint4 v = {};
    if (column < of.columns()) v = ((const uint4*)(of.queries + of.template column_at<false>(span.sequence, span.head, column)))[chunk];
    sts128(smem.query(column) + chunk * CHUNK, v);
}

// Loads a fresh token's queries with RoPE applied, eight values of either half of a head per
// thread. Its key is stored like a ninth query, and its value after that.
template <class S>
BUDDY_FN void load_fresh(const Attention& of, const Span& span, const S& smem) {
    constexpr u32 EACH = S::HEAD_ENTRIES * CHUNKS / 2, KEY = 8, VALUE = KEY + 1;
    u32 column = min(threadIdx.x / EACH, VALUE), chunk = threadIdx.x - column * EACH;
    const float4* from = (const float4*)of.rope_at(max(span.length, 1u), chunk * 8 % (EACH * 8));
    float4 rope[4];
    BUDDY_UNROLL
    for (u32 i = 0; i < 4; i++) rope[i] = __ldg(from + i);
    wait_on_dependent_grids();
    u32 number = column < KEY ? span.head * of.group + column : of.cache.heads * (of.group + column - KEY) + span.head;
    const uint4* row = (const uint4*)of.fresh_head(span.sequence, number) + chunk;
    u32 to = smem.query(column) + chunk * CHUNK;
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
        first[i] = to_bf16(__fmaf_rn(a, rope[i].x, -b * rope[i].y), __fmaf_rn(c, rope[i].z, -d * rope[i].w));
        second[i] = to_bf16(__fmaf_rn(b, rope[i].x, a * rope[i].y), __fmaf_rn(d, rope[i].z, c * rope[i].w));
    }
    sts128(to, make_uint4(first[0], first[1], first[2], first[3]));
    sts128(to + EACH * CHUNK, make_uint4(second[0], second[1], second[2], second[3]));
}

// Loads this lane's fragment of the queries from shared memory.
template <class S>
BUDDY_FN void load_query_fragments(const S& smem, u32 lane, SoftmaxState<S>& state) {
    BUDDY_UNROLL
    for (u32 part = 0; part < S::HEAD_ENTRIES; part++) {
        u32 at = smem.query(lane / 4) + part * ENTRY + lane % 4 * SECTOR;
        set(state.queries[part][0], lds128(at), lds128(at + 16));
    }
}

// Attends to an mma tile. `limits` is the causal mask of this lane's two columns.
template <class S>
BUDDY_FN void attend_short(const Attention& of, const MmaTile<S>& tokens, const u32 (&limits)[2], u32 lane, SoftmaxState<S>& state) {
    u32 row = lane / 4, column = lane % 4, token = TOKENS >> 4 * row & 7, w[4][S::FRAGMENTS];
    float halves[2][4] = {}, scores[1][4];
    BUDDY_UNROLL
    for (u32 part = 0; part < S::HEAD_ENTRIES; part++) {
        u32 a[8], b[8];
        const u32(&q)[8] = state.queries[part][0];
        tokens.template quarter<true>(part, token, column, tokens.key_window, a);
        tokens.template quarter<true>(part, token + 8, column, tokens.key_window, b);
        BUDDY_UNROLL
        for (u32 i = 0; i < 4; i++) mma_m16n8k16(halves[i % 2], a[2 * i], b[2 * i], a[2 * i + 1], b[2 * i + 1], q[2 * i], q[2 * i + 1]);
    }
    // Decoded while the tensor cores compute the scores.
    BUDDY_UNROLL
    for (u32 k = 0; k < 4; k++) tokens.template values<true>((TOKENS >> 4 * (2 * column + k % 2) & 7) + k / 2 * 8, row, w[k]);
    bool above = false;
    BUDDY_UNROLL
    for (u32 k = 0; k < 4; k++) {
        // Explicit rounding: the result must equal that of the plain-memory kernel bit for bit.
        scores[0][k] = __fmul_rn(halves[0][k] + halves[1][k], of.scale);
        if (tokens.base + token + k / 2 * 8 >= limits[k % 2]) scores[0][k] = __int_as_float(0xff800000);
        above |= scores[0][k] > state.max_score[0][k % 2] + SLACK;
    }
    if (__any_sync(ALL, above)) state.rescale(scores);
    BUDDY_UNROLL
    for (u32 k = 0; k < 4; k++) scores[0][k] = exp2_fast(scores[0][k] - state.max_score[0][k % 2]), state.sum[0][k % 2] += scores[0][k];
    u32 weights[2] = {transpose8x8(to_bf16(scores[0][0], scores[0][1])), transpose8x8(to_bf16(scores[0][2], scores[0][3]))};
    BUDDY_UNROLL
    for (u32 f = 0; f < S::FRAGMENTS; f++) {
        u32 a0 = permute_bytes(w[0][f], w[1][f], 0x5410), a1 = permute_bytes(w[0][f], w[1][f], 0x7632);
        u32 a2 = permute_bytes(w[2][f], w[3][f], 0x5410), a3 = permute_bytes(w[2][f], w[3][f], 0x7632);
        mma_m16n8k16(state.out[f][0], a0, a1, a2, a3, weights[0], weights[1]);
    }
}

// Reduces the warps' partials, and in the cluster's last CTA the received ones, in a fixed order.
// Then sends the partial to the last CTA, or stores the output.
template <class S>
BUDDY_FN void run_short_epilogue(const Attention& of, const ClusterScheduler& scheduler, const Span& span, const S& smem, u32 warp, u32 lane, SoftmaxState<S>& state) {
    typedef OutputPairs<S> P;
    static_assert(S::N8_TILES == 1 && S::THREADS % 8 == 0, "all pairs of a thread are of the same two columns");
    BUDDY_UNROLL
    for (u32 k = 0; k < 2; k++) {
        for (u32 step = 4; step < WARP; step *= 2) state.sum[0][k] += __shfl_xor_sync(ALL, state.sum[0][k], step);
    }
    auto put_four = [&](u32 at, float a, float b, float c, float d) {
        sts128(at, make_uint4(__float_as_uint(a), __float_as_uint(b), __float_as_uint(c), __float_as_uint(d)));
    };
    BUDDY_UNROLL
    for (u32 f = 0; f < S::FRAGMENTS; f++) {
        const float(&o)[4] = state.out[f][0];
        put_four(smem.warp_partial(warp) + (f * WARP + lane) * 16, o[0], o[1], o[2], o[3]);
    }
    if (lane < 4) put_four(smem.warp_partial(warp) + S::SUMS + 16 * lane, state.max_score[0][0], state.sum[0][0], state.max_score[0][1], state.sum[0][1]);
    sync_consumers<S>();
    u32 last = scheduler.last(), count = S::WARPS;
    bool is_last = scheduler.rank() == last;
    if (is_last && last != 0) smem.partials_full().wait(0), count += last;
    auto partial_of = [&](u32 i) { return i < S::WARPS ? smem.warp_partial(i) : smem.peer_partial(i - S::WARPS); };
    auto stats_of = [&](u32 part) {
        uint4 v = lds128(part + S::SUMS + 8 * P::column(0));
        return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
    };
    float2 max_score = make_float2(LOWEST, LOWEST), sums = {}, all[P::EACH] = {};
#pragma unroll 1
    for (u32 i = 0; i < count; i++) {
        float4 stats = stats_of(partial_of(i));
        max_score = make_float2(fmaxf(max_score.x, stats.x), fmaxf(max_score.y, stats.z));
    }
#pragma unroll 1
    for (u32 i = 0; i < count; i++) {
        u32 part = partial_of(i);
        float4 stats = stats_of(part);
        float2 scale = make_float2(exp2_fast(stats.x - max_score.x), exp2_fast(stats.z - max_score.y));
        sums = make_float2(__fmaf_rn(stats.y, scale.x, sums.x), __fmaf_rn(stats.w, scale.y, sums.y));
        BUDDY_UNROLL
        for (u32 k = 0; k < P::EACH; k++) {
            float2 pair = load_pair(part + 8 * P::at(k));
            all[k] = make_float2(__fmaf_rn(pair.x, scale.x, all[k].x), __fmaf_rn(pair.y, scale.y, all[k].y));
        }
    }
    // All CTAs have started, and none exits before its incoming stores have arrived.
    cluster_wait();
    if (is_last) {
        float2 by = make_float2(sums.x == 0 ? 0 : __fdividef(1, sums.x), sums.y == 0 ? 0 : __fdividef(1, sums.y));
        BUDDY_UNROLL
        for (u32 which = 0; which < 2; which++) {
            u32 column = P::column(0) + which;
            if (column >= of.columns()) return;
            unsigned short* out = (unsigned short*)(of.out + of.template column_at<S::FRESH>(span.sequence, span.head, column));
            BUDDY_UNROLL
            for (u32 k = 0; k < P::EACH; k++) {
                float up = value_scale<S>(of, span, P::value(k));
                out[P::value(k)] = narrow_bf16((which == 0 ? all[k].x * by.x : all[k].y * by.y) * up);
            }
        }
        return;
    }
    u32 to = smem.peer_partial(scheduler.rank());
    BUDDY_UNROLL
    for (u32 k = 0; k < P::EACH; k++) st_async(to + 8 * P::at(k), last, all[k], smem.partials_full());
    if (threadIdx.x >= 8 || threadIdx.x % 2 != 0) return;
    st_async(to + S::SUMS + 8 * threadIdx.x, last, make_float2(max_score.x, sums.x), smem.partials_full());
    st_async(to + S::SUMS + 8 * threadIdx.x + 8, last, make_float2(max_score.y, sums.y), smem.partials_full());
}

}  // namespace buddy
