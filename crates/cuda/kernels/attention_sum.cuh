// The end of a span: what its warps found is added up, in a fixed order, and written; or, where other blocks have the item's other
// tiles, left for the last of them.
#pragma once
#include "attention.cuh"

namespace buddy {

template <class R>
BUDDY_FN void meet() {
    named_barrier<R::THREADS>();
}

BUDDY_FN float2 load_pair(u32 at) {
    uint2 v = lds64(at);
    return make_float2(__uint_as_float(v.x), __uint_as_float(v.y));
}

// Two neighbouring columns of one of a head's values: what a thread adds up. Pairs are in the order of the lanes' sums.
template <class R>
struct Pairs {
    static constexpr u32 ALL_OF_THEM = R::FRAGMENTS * R::SETS * WARP * 2, EACH = (ALL_OF_THEM + R::THREADS - 1) / R::THREADS;
    // Floats that a block leaves of an item.
    static constexpr u32 PART = R::PART / 4;
    static_assert(PART == 2 * ALL_OF_THEM + 16 * R::SETS, "the pairs, and the largest score and the sum of each column");

    static BUDDY_FN bool has(u32 i) { return ALL_OF_THEM % R::THREADS == 0 || at(i) < ALL_OF_THEM; }
    static BUDDY_FN u32 at(u32 i) { return threadIdx.x + i * R::THREADS; }
    static BUDDY_FN u32 column(u32 i) { return at(i) / 64 % R::SETS * 8 + at(i) / 2 % 4 * 2; }
    static BUDDY_FN u32 value(u32 i) { return at(i) % 64 / 8 * (2 * R::FRAGMENTS) + at(i) / 64 / R::SETS * 2 + at(i) % 2; }
};

// The largest score of a column among all warps and the sum of its weights.
template <class R>
BUDDY_FN float2 joined(const R& room, u32 column) {
    float most = LOWEST, sum = 0;
    for (u32 warp = 0; warp < R::WARPS; warp++) most = fmaxf(most, load_pair(room.stats(warp, column)).x);
    for (u32 warp = 0; warp < R::WARPS; warp++) {
        float2 one = load_pair(room.stats(warp, column));
        sum += one.y * exp2_fast(one.x - most);
    }
    return make_float2(most, sum);
}

// Adds up the warps' sums, as many at a time as have room. What a lane has of largest scores and sums of weights is all warps' after.
template <class R>
BUDDY_FN void add_up(const R& room, u32 warp, u32 lane, Asked<R>& asked, float2 (&total)[Pairs<R>::EACH]) {
    BUDDY_UNROLL
    for (u32 n = 0; n < R::SETS; n++) {
        BUDDY_UNROLL
        for (u32 k = 0; k < 2; k++) {
            float& sum = asked.sum[n][k];
            for (u32 step = 4; step < WARP; step *= 2) sum += __shfl_xor_sync(ALL, sum, step);
            if (lane < 4) sts64(room.stats(warp, 8 * n + 2 * lane + k), make_uint2(__float_as_uint(asked.most[n][k]), __float_as_uint(sum)));
        }
    }
    meet<R>();
    float scale[R::SETS][2];
    BUDDY_UNROLL
    for (u32 n = 0; n < R::SETS; n++) {
        BUDDY_UNROLL
        for (u32 k = 0; k < 2; k++) {
            float2 all = joined<R>(room, 8 * n + lane % 4 * 2 + k);
            scale[n][k] = exp2_fast(asked.most[n][k] - all.x);
            asked.most[n][k] = all.x, asked.sum[n][k] = all.y;
        }
    }
    BUDDY_UNROLL
    for (u32 i = 0; i < Pairs<R>::EACH; i++) total[i] = make_float2(0, 0);
    for (u32 turn = 0; turn < TEAM; turn++) {
        if (warp / R::TEAMS == turn) {
            BUDDY_UNROLL
            for (u32 f = 0; f < R::FRAGMENTS; f++) {
                BUDDY_UNROLL
                for (u32 n = 0; n < R::SETS; n++) {
                    const float(&o)[4] = asked.out[f][n];
                    sts128(room.sums(warp % R::TEAMS) + ((f * R::SETS + n) * WARP + lane) * 16,
                               make_uint4(__float_as_uint(o[0] * scale[n][0]), __float_as_uint(o[1] * scale[n][1]),
                                          __float_as_uint(o[2] * scale[n][0]), __float_as_uint(o[3] * scale[n][1])));
                }
            }
        }
        meet<R>();
        BUDDY_UNROLL
        for (u32 i = 0; i < Pairs<R>::EACH; i++) {
            for (u32 w = 0; w < R::TEAMS && Pairs<R>::has(i); w++) {
                float2 one = load_pair(room.sums(w) + Pairs<R>::at(i) * 8);
                total[i].x += one.x, total[i].y += one.y;
            }
        }
        meet<R>();
    }
}

template <class R>
BUDDY_FN void put(const Attention& of, const Span& span, u32 i, float2 total, float first_sum, float second_sum) {
    u32 column = Pairs<R>::column(i);
    u32 both = to_bf16(first_sum == 0 ? 0 : __fdividef(total.x, first_sum), second_sum == 0 ? 0 : __fdividef(total.y, second_sum));
    unsigned short* out = (unsigned short*)of.out + Pairs<R>::value(i);
    if (column < of.columns()) out[of.template column_at<R::FRESH>(span.sequence, span.head, column) / 2] = (unsigned short)both;
    if (column + 1 < of.columns()) out[of.template column_at<R::FRESH>(span.sequence, span.head, column + 1) / 2] = (unsigned short)(both >> 16);
}

// Joins what one more block found of two columns with what others did.
BUDDY_FN void join(float4 stats, float2 pair, float2& most, float2& all, float2& sums) {
    float2 now = make_float2(fmaxf(most.x, stats.x), fmaxf(most.y, stats.z));
    float2 old = make_float2(exp2_fast(most.x - now.x), exp2_fast(most.y - now.y));
    float2 its = make_float2(exp2_fast(stats.x - now.x), exp2_fast(stats.z - now.y));
    all = make_float2(__fmaf_rn(pair.x, its.x, all.x * old.x), __fmaf_rn(pair.y, its.y, all.y * old.y));
    sums = make_float2(__fmaf_rn(stats.y, its.x, sums.x * old.x), __fmaf_rn(stats.w, its.y, sums.y * old.y));
    most = now;
}

// Leaves a block's part of an item, and adds up all of them if it is the last.
template <class R>
BUDDY_FN void share(const Attention& of, const Walk& walk, const Span& span, const R& room, const Asked<R>& asked, const float2 (&total)[Pairs<R>::EACH]) {
    typedef Pairs<R> P;
    auto part_of = [&](u32 block, u32 which) { return (float2*)(of.parts + (u64)(2 * block + which) * P::PART); };
    float2* mine = part_of(blockIdx.x, span.from == 0);
    BUDDY_UNROLL
    for (u32 i = 0; i < P::EACH; i++) {
        if (P::has(i)) __stcg(mine + P::at(i), total[i]);
    }
    BUDDY_UNROLL
    for (u32 n = 0; n < R::SETS; n++) {
        float4 two = make_float4(asked.most[n][0], asked.sum[n][0], asked.most[n][1], asked.sum[n][1]);
        if (threadIdx.x < 4) __stcg((float4*)(mine + P::ALL_OF_THEM) + 4 * n + threadIdx.x, two);
    }
    u32 from = walk.owner(span.first), to = walk.owner(span.first + span.tiles - 1);
    meet<R>();
    if (threadIdx.x == 0) {
        u32* count = of.counts + (u64)span.sequence * of.cache.heads + span.head;
        bool last = atomic_add_release(count, 1) == to - from;
        if (last) *count = 0, fence_acq_rel();
        sts64(room.last(), make_uint2(last, 0));
    }
    meet<R>();
    if (lds64(room.last()).x == 0) return;
    // All that a thread needs of some blocks is asked for at once: one way to memory and back instead of one for each.
    constexpr u32 AT_ONCE = P::EACH <= 2 ? 4 : 1;
    float2 all[P::EACH] = {}, sums[P::EACH] = {}, most[P::EACH];
    BUDDY_UNROLL
    for (u32 i = 0; i < P::EACH; i++) most[i] = make_float2(LOWEST, LOWEST);
#pragma unroll 1
    for (u32 block = from; block <= to; block += AT_ONCE) {
        float4 stats[P::EACH][AT_ONCE];  // of two columns: the largest score and the sum
        float2 pairs[P::EACH][AT_ONCE];
        BUDDY_UNROLL
        for (u32 k = 0; k < P::EACH * AT_ONCE; k++) {
            u32 i = k / AT_ONCE, of_block = min(block + k % AT_ONCE, to);
            if (!P::has(i)) continue;
            const float2* part = part_of(of_block, of_block == from);
            stats[i][k % AT_ONCE] = __ldcg((const float4*)(part + P::ALL_OF_THEM + P::column(i))), pairs[i][k % AT_ONCE] = __ldcg(part + P::at(i));
        }
        BUDDY_UNROLL
        for (u32 k = 0; k < P::EACH * AT_ONCE; k++) {
            u32 i = k / AT_ONCE;
            if (P::has(i) && block + k % AT_ONCE <= to) join(stats[i][k % AT_ONCE], pairs[i][k % AT_ONCE], most[i], all[i], sums[i]);
        }
    }
    BUDDY_UNROLL
    for (u32 i = 0; i < P::EACH; i++) {
        if (P::has(i)) put<R>(of, span, i, all[i], sums[i].x, sums[i].y);
    }
}

template <class R>
BUDDY_FN void finish(const Attention& of, const Walk& walk, const Span& span, const R& room, u32 warp, u32 lane, Asked<R>& asked) {
    float2 total[Pairs<R>::EACH];
    add_up(room, warp, lane, asked, total);
    if (!span.whole()) return share(of, walk, span, room, asked, total);
    BUDDY_UNROLL
    for (u32 i = 0; i < Pairs<R>::EACH; i++) {
        // The lane that has the pair's two columns.
        u32 column = Pairs<R>::column(i), from = column / 2 % 4;
        float first = 0, second = 0;
        BUDDY_UNROLL
        for (u32 n = 0; n < R::SETS; n++) {
            float a = __shfl_sync(ALL, asked.sum[n][0], from), b = __shfl_sync(ALL, asked.sum[n][1], from);
            if (column / 8 == n) first = a, second = b;
        }
        if (Pairs<R>::has(i)) put<R>(of, span, i, total[i], first, second);
    }
}

}  // namespace buddy
