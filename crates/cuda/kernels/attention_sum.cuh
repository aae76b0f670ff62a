// Epilogue of a span: reduces the warps' accumulators in a fixed order and stores the output. If
// other CTAs share the item, stores a partial, and the last CTA reduces them (stream-K fix-up).
#pragma once
#include "attention.cuh"

namespace buddy {

template <class S>
BUDDY_FN void sync_consumers() {
    named_barrier<S::THREADS>();
}

BUDDY_FN float2 load_pair(u32 at) {
    uint2 v = lds64(at);
    return make_float2(__uint_as_float(v.x), __uint_as_float(v.y));
}

// Output elements of a thread: two neighbouring columns of one of a head's values, in the order of
// the lanes' accumulators.
template <class S>
struct OutputPairs {
    static constexpr u32 TOTAL = S::FRAGMENTS * S::N8_TILES * WARP * 2, EACH = (TOTAL + S::THREADS - 1) / S::THREADS;
    // Floats of a CTA's partial.
    static constexpr u32 PARTIAL = S::PARTIAL / 4;
    static_assert(PARTIAL == 2 * TOTAL + 16 * S::N8_TILES, "the pairs, and the largest score and the sum of each column");

    static BUDDY_FN bool has(u32 i) { return TOTAL % S::THREADS == 0 || at(i) < TOTAL; }
    static BUDDY_FN u32 at(u32 i) { return threadIdx.x + i * S::THREADS; }
    static BUDDY_FN u32 column(u32 i) { return at(i) / 64 % S::N8_TILES * 8 + at(i) / 2 % 4 * 2; }
    static BUDDY_FN u32 value(u32 i) { return at(i) % 64 / 8 * (2 * S::FRAGMENTS) + at(i) / 64 / S::N8_TILES * 2 + at(i) % 2; }
};

// Returns a column's maximum score and sum of weights over all warps.
template <class S>
BUDDY_FN float2 reduce_stats(const S& smem, u32 column) {
    float max_score = LOWEST, sum = 0;
    for (u32 warp = 0; warp < S::WARPS; warp++) max_score = fmaxf(max_score, load_pair(smem.stats(warp, column)).x);
    for (u32 warp = 0; warp < S::WARPS; warp++) {
        float2 one = load_pair(smem.stats(warp, column));
        sum += one.y * exp2_fast(one.x - max_score);
    }
    return make_float2(max_score, sum);
}

// Reduces the warps' accumulators through shared memory, `TEAMS` warps at a time. Leaves the totals
// of maxima and sums in `state`.
template <class S>
BUDDY_FN void reduce_warps(const S& smem, u32 warp, u32 lane, SoftmaxState<S>& state, float2 (&total)[OutputPairs<S>::EACH]) {
    BUDDY_UNROLL
    for (u32 n = 0; n < S::N8_TILES; n++) {
        BUDDY_UNROLL
        for (u32 k = 0; k < 2; k++) {
            float& sum = state.sum[n][k];
            for (u32 step = 4; step < WARP; step *= 2) sum += __shfl_xor_sync(ALL, sum, step);
            if (lane < 4) sts64(smem.stats(warp, 8 * n + 2 * lane + k), make_uint2(__float_as_uint(state.max_score[n][k]), __float_as_uint(sum)));
        }
    }
    sync_consumers<S>();
    float scale[S::N8_TILES][2];
    BUDDY_UNROLL
    for (u32 n = 0; n < S::N8_TILES; n++) {
        BUDDY_UNROLL
        for (u32 k = 0; k < 2; k++) {
            float2 all = reduce_stats<S>(smem, 8 * n + lane % 4 * 2 + k);
            scale[n][k] = exp2_fast(state.max_score[n][k] - all.x);
            state.max_score[n][k] = all.x, state.sum[n][k] = all.y;
        }
    }
    BUDDY_UNROLL
    for (u32 i = 0; i < OutputPairs<S>::EACH; i++) total[i] = make_float2(0, 0);
    for (u32 round = 0; round < TEAM; round++) {
        if (warp / S::TEAMS == round) {
            BUDDY_UNROLL
            for (u32 f = 0; f < S::FRAGMENTS; f++) {
                BUDDY_UNROLL
                for (u32 n = 0; n < S::N8_TILES; n++) {
                    const float(&o)[4] = state.out[f][n];
                    sts128(smem.sums(warp % S::TEAMS) + ((f * S::N8_TILES + n) * WARP + lane) * 16,
                               make_uint4(__float_as_uint(o[0] * scale[n][0]), __float_as_uint(o[1] * scale[n][1]),
                                          __float_as_uint(o[2] * scale[n][0]), __float_as_uint(o[3] * scale[n][1])));
                }
            }
        }
        sync_consumers<S>();
        BUDDY_UNROLL
        for (u32 i = 0; i < OutputPairs<S>::EACH; i++) {
            for (u32 w = 0; w < S::TEAMS && OutputPairs<S>::has(i); w++) {
                float2 one = load_pair(smem.sums(w) + OutputPairs<S>::at(i) * 8);
                total[i].x += one.x, total[i].y += one.y;
            }
        }
        sync_consumers<S>();
    }
}

// Returns the factor by which the stored values of a head's output are less.
template <class S>
BUDDY_FN float value_scale(const Attention& of, const Span& span, u32 value) {
    return S::From::HAS_NIBBLES ? power_of(__ldg(of.cache.shift(of.layer, span.head, 1, value))) : 1;
}

template <class S>
BUDDY_FN void store_output(const Attention& of, const Span& span, u32 i, float2 total, float first_sum, float second_sum) {
    u32 column = OutputPairs<S>::column(i);
    float up = value_scale<S>(of, span, OutputPairs<S>::value(i));
    u32 both = to_bf16(first_sum == 0 ? 0 : __fdividef(total.x, first_sum) * up, second_sum == 0 ? 0 : __fdividef(total.y, second_sum) * up);
    unsigned short* out = (unsigned short*)of.out + OutputPairs<S>::value(i);
    if (column < of.columns()) out[of.template column_at<S::FRESH>(span.sequence, span.head, column) / 2] = (unsigned short)both;
    if (column + 1 < of.columns()) out[of.template column_at<S::FRESH>(span.sequence, span.head, column + 1) / 2] = (unsigned short)(both >> 16);
}

// Merges a partial of two columns into running totals.
BUDDY_FN void merge_partial(float4 stats, float2 pair, float2& max_score, float2& all, float2& sums) {
    float2 now = make_float2(fmaxf(max_score.x, stats.x), fmaxf(max_score.y, stats.z));
    float2 old = make_float2(exp2_fast(max_score.x - now.x), exp2_fast(max_score.y - now.y));
    float2 its = make_float2(exp2_fast(stats.x - now.x), exp2_fast(stats.z - now.y));
    all = make_float2(__fmaf_rn(pair.x, its.x, all.x * old.x), __fmaf_rn(pair.y, its.y, all.y * old.y));
    sums = make_float2(__fmaf_rn(stats.y, its.x, sums.x * old.x), __fmaf_rn(stats.w, its.y, sums.y * old.y));
    max_score = now;
}

// Stream-K fix-up: stores this CTA's partial; the last CTA of the item reduces all of them.
template <class S>
BUDDY_FN void fix_up(const Attention& of, const TileScheduler& scheduler, const Span& span, const S& smem, const SoftmaxState<S>& state, const float2 (&total)[OutputPairs<S>::EACH]) {
    typedef OutputPairs<S> P;
    auto partial_of = [&](u32 block, u32 which) { return (float2*)(of.partials + (u64)(2 * block + which) * P::PARTIAL); };
    float2* mine = partial_of(blockIdx.x, span.from == 0);
    BUDDY_UNROLL
    for (u32 i = 0; i < P::EACH; i++) {
        if (P::has(i)) __stcg(mine + P::at(i), total[i]);
    }
    BUDDY_UNROLL
    for (u32 n = 0; n < S::N8_TILES; n++) {
        float4 two = make_float4(state.max_score[n][0], state.sum[n][0], state.max_score[n][1], state.sum[n][1]);
        if (threadIdx.x < 4) __stcg((float4*)(mine + P::TOTAL) + 4 * n + threadIdx.x, two);
    }
    u32 from = scheduler.owner(span.first), to = scheduler.owner(span.first + span.tiles - 1);
    sync_consumers<S>();
    if (threadIdx.x == 0) {
        u32* count = of.counters + (u64)span.sequence * of.cache.heads + span.head;
        bool last = atomic_add_release(count, 1) == to - from;
        if (last) *count = 0, fence_acq_rel();
        sts64(smem.last(), make_uint2(last, 0));
    }
    sync_consumers<S>();
    if (lds64(smem.last()).x == 0) return;
    // Loads of `AT_ONCE` CTAs are in flight together.
    constexpr u32 AT_ONCE = P::EACH <= 2 ? 4 : 1;
    float2 all[P::EACH] = {}, sums[P::EACH] = {}, max_score[P::EACH];
    BUDDY_UNROLL
    for (u32 i = 0; i < P::EACH; i++) max_score[i] = make_float2(LOWEST, LOWEST);
#pragma unroll 1
    for (u32 block = from; block <= to; block += AT_ONCE) {
        float4 stats[P::EACH][AT_ONCE];  // of two columns: maximum and sum
        float2 pairs[P::EACH][AT_ONCE];
        BUDDY_UNROLL
        for (u32 k = 0; k < P::EACH * AT_ONCE; k++) {
            u32 i = k / AT_ONCE, of_block = min(block + k % AT_ONCE, to);
            if (!P::has(i)) continue;
            const float2* part = partial_of(of_block, of_block == from);
            stats[i][k % AT_ONCE] = __ldcg((const float4*)(part + P::TOTAL + P::column(i))), pairs[i][k % AT_ONCE] = __ldcg(part + P::at(i));
        }
        BUDDY_UNROLL
        for (u32 k = 0; k < P::EACH * AT_ONCE; k++) {
            u32 i = k / AT_ONCE;
            if (P::has(i) && block + k % AT_ONCE <= to) merge_partial(stats[i][k % AT_ONCE], pairs[i][k % AT_ONCE], max_score[i], all[i], sums[i]);
        }
    }
    BUDDY_UNROLL
    for (u32 i = 0; i < P::EACH; i++) {
        if (P::has(i)) store_output<S>(of, span, i, all[i], sums[i].x, sums[i].y);
    }
}

template <class S>
BUDDY_FN void run_epilogue(const Attention& of, const TileScheduler& scheduler, const Span& span, const S& smem, u32 warp, u32 lane, SoftmaxState<S>& state) {
    float2 total[OutputPairs<S>::EACH];
    reduce_warps(smem, warp, lane, state, total);
    if (!span.whole()) return fix_up(of, scheduler, span, smem, state, total);
    BUDDY_UNROLL
    for (u32 i = 0; i < OutputPairs<S>::EACH; i++) {
        // The lane that holds the pair's two columns.
        u32 column = OutputPairs<S>::column(i), from = column / 2 % 4;
        float first = 0, second = 0;
        BUDDY_UNROLL
        for (u32 n = 0; n < S::N8_TILES; n++) {
            float a = __shfl_sync(ALL, state.sum[n][0], from), b = __shfl_sync(ALL, state.sum[n][1], from);
            if (column / 8 == n) first = a, second = b;
        }
        if (OutputPairs<S>::has(i)) store_output<S>(of, span, i, total[i], first, second);
    }
}

}  // namespace buddy
