// Attention of one warp: 16 tokens at a time against all query columns, in registers.
//
// Scores are keys times queries: the rows of operand A are 16 tokens, four lanes per entry with a
// quarter each; the columns of B are query columns. Outputs are transposed values times weights:
// rows are 16 of a head's values, and a lane pairs the same 8 or 16 values of four tokens. Both
// operands are decoded in the lanes that need them. The order of tokens among the rows is
// arbitrary; `TOKENS` avoids bank conflicts in both products.
#pragma once
#include "attention_source.cuh"

namespace buddy {

// Token of each of eight rows, four bits each: 0 2 1 3 6 4 7 5.
constexpr u32 TOKENS = 0x57463120u;
// Initial maximum of scores; and the excess over the running maximum that triggers a rescale.
constexpr float LOWEST = -1e30f, SLACK = 8;

// Returns 2 to the power of a shift.
BUDDY_FN float power_of(u32 shift) { return __uint_as_float((127 + shift) << 23); }

// Multiplies a quarter by its columns' powers of two, or divides it: stored keys and values are less
// by them, so queries and results are multiplied. Exact but for results beyond bf16's range.
template <bool UP>
BUDDY_FN void scale_quarter(u32 (&words)[8], const u8* shifts) {
    uint4 by = __ldg((const uint4*)shifts);
    if ((by.x | by.y | by.z | by.w) == 0) return;
    const u32 all[4] = {by.x, by.y, by.z, by.w};
    BUDDY_UNROLL
    for (u32 i = 0; i < 8; i++) {
        u32 two = all[i / 2] >> i % 2 * 16, low = two & 0xff, high = two >> 8 & 0xff;
        float a = UP ? power_of(low) : power_of(0u - low), b = UP ? power_of(high) : power_of(0u - high);
        words[i] = to_bf16(from_bf16(words[i]) * a, from_bf16(words[i] >> 16) * b);
    }
}

// Replaces values whose exponent wrapped around by zeros of their sign: they are less than 2^-102.
// Only entries that are not in layout B have any.
static __device__ __noinline__ Quarter without_wrapped(const Quarter& from, const u8* shifts) {
    Quarter out = from;
    for (u32 i = 0; i < 16; i++) {
        u32 place = i % 2 * 16, exponent = out.words[i / 2] >> (place + 7) & 0xff;
        if (exponent != 255 && exponent + shifts[i] > 254) out.words[i / 2] &= ~(0x7fffu << place);
    }
    return out;
}
BUDDY_FN void remove_wrapped(u32 (&words)[8], const u8* shifts) {
    u32 high = 0;
    BUDDY_UNROLL
    for (u32 i = 0; i < 8; i++) high = max_halves(high, words[i] & Bf16::EXPONENTS);
    if (max(high & 0xffff, high >> 16) >> 7 <= 254 - MOST_SHIFT) return;
    Quarter all;
    BUDDY_UNROLL
    for (u32 i = 0; i < 8; i++) all.words[i] = words[i];
    all = without_wrapped(all, shifts);
    BUDDY_UNROLL
    for (u32 i = 0; i < 8; i++) words[i] = all.words[i];
}

// A warp's state of the online softmax over a span, per lane: queries, output accumulators, and the
// running maximum and sum of weights of two columns of each n8 tile.
template <class S>
struct SoftmaxState {
    u32 queries[S::HEAD_ENTRIES][S::N8_TILES][8];
    float out[S::FRAGMENTS][S::N8_TILES][4];
    float max_score[S::N8_TILES][2], sum[S::N8_TILES][2];

    BUDDY_FN void clear() {
        BUDDY_UNROLL
        for (u32 n = 0; n < S::N8_TILES; n++) {
            max_score[n][0] = max_score[n][1] = LOWEST, sum[n][0] = sum[n][1] = 0;
            BUDDY_UNROLL
            for (u32 f = 0; f < S::FRAGMENTS; f++) out[f][n][0] = out[f][n][1] = out[f][n][2] = out[f][n][3] = 0;
        }
    }
    BUDDY_FN void start(const Attention& of, const Span& span, u32 lane) {
        clear();
        if (S::FRESH) start_fresh(of, span, lane);
        BUDDY_UNROLL
        for (u32 n = 0; n < S::N8_TILES; n++) {
            u32 column = 8 * n + lane / 4;
            const uint4* at = (const uint4*)(of.queries + of.template column_at<false>(span.sequence, span.head, column)) + 2 * (lane % 4);
            BUDDY_UNROLL
            for (u32 part = 0; part < S::HEAD_ENTRIES && !S::FRESH; part++) {
                uint4 a = {}, b = {};
                if (column < of.columns()) a = at[8 * part], b = at[8 * part + 1];
                set(queries[part][n], a, b);
            }
        }
        scale_queries(of, span, lane);
    }
    // Multiplies queries by the shifts of the keys. A lane has a quarter of each entry.
    BUDDY_FN void scale_queries(const Attention& of, const Span& span, u32 lane) {
        if (!S::From::HAS_NIBBLES) return;
        BUDDY_UNROLL
        for (u32 part = 0; part < S::HEAD_ENTRIES; part++) {
            BUDDY_UNROLL
            for (u32 n = 0; n < S::N8_TILES; n++) {
                scale_quarter<true>(queries[part][n], of.cache.shift(of.layer, span.head, 0, part * VALUES + lane % 4 * (VALUES / 4)));
            }
        }
    }
    // Loads the queries of a fresh token and applies RoPE. Older tokens are in the cache already;
    // only the new token's rows depend on the preceding kernel.
    BUDDY_FN void start_fresh(const Attention& of, const Span& span, u32 lane) {
        u32 first = lane % 4 * (VALUES / 4);
        const float4* from = (const float4*)of.rope_at(max(span.length, 1u), first);
        float4 rope[8];
        BUDDY_UNROLL
        for (u32 i = 0; i < 8; i++) rope[i] = __ldg(from + i);
        wait_on_dependent_grids();
        BUDDY_UNROLL
        for (u32 n = 0; n < S::N8_TILES; n++) {
            u32 column = 8 * n + lane / 4;
            const uint4* at = (const uint4*)of.fresh_head(span.sequence, span.head * of.group + min(column, of.group - 1)) + 2 * (lane % 4);
            u32 plain[S::HEAD_ENTRIES][8], others[8];
            BUDDY_UNROLL
            for (u32 part = 0; part < S::HEAD_ENTRIES; part++) set(plain[part], at[8 * part], at[8 * part + 1]);
            BUDDY_UNROLL
            for (u32 part = 0; part < S::HEAD_ENTRIES; part++) {
                // The RoPE partner, half a head away, is in the other entry, or two lanes away.
                BUDDY_UNROLL
                for (u32 i = 0; i < 8; i++) others[i] = S::HEAD_ENTRIES == 2 ? plain[S::HEAD_ENTRIES - 1 - part][i] : __shfl_xor_sync(ALL, plain[0][i], 2);
                BUDDY_UNROLL
                for (u32 i = 0; i < 8; i++) queries[part][n][i] = plain[part][i];
                apply_rope(queries[part][n], others, rope, S::HEAD_ENTRIES == 2 ? part == 0 : lane % 4 < 2);
                BUDDY_UNROLL
                for (u32 i = 0; i < 8; i++) queries[part][n][i] = column < of.group ? queries[part][n][i] : 0;
            }
        }
    }

    // Raises the running maximum and rescales sums and accumulators.
    BUDDY_FN void rescale(const float (&scores)[S::N8_TILES][4]) {
        BUDDY_UNROLL
        for (u32 n = 0; n < S::N8_TILES; n++) {
            BUDDY_UNROLL
            for (u32 k = 0; k < 2; k++) {
                float now = fmaxf(scores[n][k], scores[n][k + 2]);
                for (u32 step = 4; step < WARP; step *= 2) now = fmaxf(now, __shfl_xor_sync(ALL, now, step));
                now = fmaxf(now, max_score[n][k]);
                float scale = exp2_fast(max_score[n][k] - now);
                max_score[n][k] = now, sum[n][k] *= scale;
                BUDDY_UNROLL
                for (u32 f = 0; f < S::FRAGMENTS; f++) out[f][n][k] *= scale, out[f][n][k + 2] *= scale;
            }
        }
    }
};

// Returns a quarter of one of a fresh token's entries, keys before values. RoPE is applied to keys.
template <class S>
BUDDY_FN void fresh_quarter(const Attention& of, const Span& span, u32 entry, u32 quarter, u32 (&words)[8]) {
    u32 which = entry / S::HEAD_ENTRIES, first = entry % S::HEAD_ENTRIES * VALUES + quarter * (VALUES / 4), values = S::HEAD_ENTRIES * VALUES;
    const unsigned short* row = of.fresh_head(span.sequence, of.cache.heads * (of.group + which) + span.head);
    const uint4 *own = (const uint4*)(row + first), *away = (const uint4*)(row + (first + values / 2) % values);
    u32 others[8];
    set(words, own[0], own[1]);
    if (which != 0) return;
    set(others, away[0], away[1]);
    apply_rope(words, others, (const float4*)of.rope_at(span.length, first), first < values / 2);
}

// The 16 tokens of an mma tile, in shared memory.
template <class S>
struct MmaTile {
    typedef typename S::From From;
    u32 data, nibbles, tails;
    u32 key_window, value_window;
    u32 base, length;     // first token, and tokens of the sequence
    u32 irregular[S::HEAD_ENTRIES];    // a bit for each expanded entry
    u32 fresh;            // clusters: shared address of a fresh token's key; its value follows

    // Returns true if all entries are in layout B and no token is masked for any column.
    BUDDY_FN bool is_regular(u32 tokens) const {
        u32 other = base + MMA_TOKENS + tokens > length + 1;
        BUDDY_UNROLL
        for (u32 i = 0; i < S::NIBBLE_BYTES && From::HAS_NIBBLES; i += 16) {
            uint4 four = lds128(nibbles + i);
            const u32 all = (RAW + 1) * 0x11111111u;
            other |= (four.x ^ all) | (four.y ^ all) | (four.z ^ all) | (four.w ^ all);
        }
        return other == 0;
    }

    // Returns true if the fresh token, the last of the sequence, is in this tile.
    BUDDY_FN bool has_fresh() const { return S::FRESH && length - base <= MMA_TOKENS; }

    // Expands entries that are not in layout B to plain values, four lanes per entry: three
    // quarters in stage, the last one in the warp's tails. Tokens past the end become zeros. A
    // fresh token's entries are replaced, since memory still holds stale ones.
    BUDDY_FN void expand(const Attention& of, const Span& span, u32 lane) {
        u32 fresh = has_fresh() ? length - 1 - base : MMA_TOKENS, others = has_fresh() ? ~(0x00010001u << fresh) : ~0u;
        BUDDY_UNROLL
        for (u32 i = 0; i < S::HEAD_ENTRIES; i++) irregular[i] = __ballot_sync(ALL, nibble(WARP * i + lane) != RAW + 1) | ~others;
        u64 rest = S::HEAD_ENTRIES == 2 ? (u64)(irregular[S::HEAD_ENTRIES - 1] & others) << 32 | (irregular[0] & others) : irregular[0] & others;
#pragma unroll 1
        while (rest != 0) {
            // The first group of eight entries that has an irregular one.
            u32 first = (u32)(__ffsll((long long)rest) - 1) & ~7u, eight = (u32)(rest >> first) & 0xff;
            rest &= ~(0xffull << first);
            u32 entry = first + lane / 4, quarter = lane % 4, out[8], at = data + entry * From::BYTES;
            bool mine = eight >> lane / 4 & 1;
            auto overflow = [&] { return (const uint4*)(of.cache.memory.buddy + (first_entry(of, span) + entry) * SECTOR); };
            if (mine) From::load_irregular(at, overflow, nibble(entry), quarter, out);
            if (mine && From::HAS_NIBBLES) remove_wrapped(out, shifts_of(of, span, entry, quarter));
            __syncwarp();
            u32 to = From::expanded_at(at, tails + entry * SECTOR, quarter);
            if (mine) sts128(to, make_uint4(out[0], out[1], out[2], out[3])), sts128(to + 16, make_uint4(out[4], out[5], out[6], out[7]));
        }
        u32 entry = lane / 4 * MMA_TOKENS + fresh, at = data + entry * From::BYTES;
        if (fresh < MMA_TOKENS && lane / 4 < 2 * S::HEAD_ENTRIES) {
            u32 out[8], to = From::expanded_at(at, tails + entry * SECTOR, lane % 4);
            u32 from = this->fresh + lane / 4 / S::HEAD_ENTRIES * S::QUERY + lane / 4 % S::HEAD_ENTRIES * ENTRY + lane % 4 * SECTOR;
            if (S::CLUSTERED) set(out, lds128(from), lds128(from + 16));
            else fresh_quarter<S>(of, span, lane / 4, lane % 4, out);
            if (From::HAS_NIBBLES) scale_quarter<false>(out, shifts_of(of, span, entry, lane % 4));
            sts128(to, make_uint4(out[0], out[1], out[2], out[3])), sts128(to + 16, make_uint4(out[4], out[5], out[6], out[7]));
        }
        // Orders these stores before the next bulk copy into the stage.
        fence_proxy_async();
        __syncwarp();
    }
    // Returns the shifts of a quarter of an entry.
    BUDDY_FN const u8* shifts_of(const Attention& of, const Span& span, u32 entry, u32 quarter) const {
        u32 piece = entry / MMA_TOKENS, first = piece % S::HEAD_ENTRIES * VALUES + quarter * (VALUES / 4);
        return of.cache.shift(of.layer, span.head, piece / S::HEAD_ENTRIES, first);
    }
    BUDDY_FN u64 first_entry(const Attention& of, const Span& span) const {
        u32 page = (u32)__ldg(of.table + (u64)span.sequence * of.table_stride + base / of.cache.page_tokens);
        return of.cache.first_entry(of.layer, page, span.head, base % of.cache.page_tokens);
    }
    // Plain memory has no nibbles; all entries count as layout B.
    BUDDY_FN u32 nibble(u32 entry) const {
        if (base + entry % MMA_TOKENS >= length) return ZERO;
        return From::HAS_NIBBLES ? SharedStream{nibbles + entry / 8 * 4}.load(0) >> entry % 8 * 4 & 15 : (u32)RAW + 1;
    }
    BUDDY_FN bool was_expanded(u32 piece, u32 token) const { return irregular[piece / 2] >> (piece % 2 * MMA_TOKENS + token) & 1; }

    // Loads a quarter of an entry; a piece is the 16 entries of an mma tile. `IRREGULAR` requires
    // `expand` first.
    template <bool IRREGULAR>
    BUDDY_FN void quarter(u32 piece, u32 token, u32 which, u32 window, u32 (&out)[8]) const {
        u32 entry = piece * MMA_TOKENS + token, at = data + entry * From::BYTES;
        From::load(at, which, window, out);
        if (IRREGULAR && From::HAS_NIBBLES && was_expanded(piece, token)) {
            u32 from = From::expanded_at(at, tails + entry * SECTOR, which);
            set(out, lds128(from), lds128(from + 16));
        }
    }

    // Loads a lane's part of a token's values: a quarter of one of two entries, or an eighth of the
    // only one.
    template <bool IRREGULAR>
    BUDDY_FN void values(u32 token, u32 row, u32 (&out)[S::FRAGMENTS]) const {
        if constexpr (S::HEAD_ENTRIES == 2) {
            quarter<IRREGULAR>(2 + row / 4, token, row % 4, value_window, out);
        } else {
            u32 entry = MMA_TOKENS + token, at = data + entry * From::BYTES;
            From::load_eighth(at, row, value_window, out);
            if (IRREGULAR && From::HAS_NIBBLES && was_expanded(1, token)) {
                set(out, lds128(From::expanded_at(at, tails + entry * SECTOR, row / 2) + row % 2 * 16));
            }
        }
    }
};

// Appends a fresh token to the cache. Not inlined: rare, and it would cost registers.
template <class S>
static __device__ __noinline__ void append_fresh(const Attention& of, const Span& span, u32 lane) {
    u32 entry = lane / 4, position = span.length - 1, words[8];
    if (entry >= 2 * S::HEAD_ENTRIES) return;
    fresh_quarter<S>(of, span, entry, lane % 4, words);
    u32 page = (u32)of.table[(u64)span.sequence * of.table_stride + position / of.cache.page_tokens];
    long long slot = (long long)page * of.cache.page_tokens + position % of.cache.page_tokens;
    append(of.cache, {of.layer, span.head, entry / S::HEAD_ENTRIES, entry % S::HEAD_ENTRIES, slot}, lane % 4, words);
}

template <class S, bool IRREGULAR>
BUDDY_FN void attend(const Attention& of, const MmaTile<S>& tokens, u32 lane, SoftmaxState<S>& state) {
    u32 row = lane / 4, column = lane % 4, token = TOKENS >> 4 * row & 7;
    float halves[2][S::N8_TILES][4] = {}, scores[S::N8_TILES][4];
    BUDDY_UNROLL
    for (u32 part = 0; part < S::HEAD_ENTRIES; part++) {
        u32 a[8], b[8];
        tokens.template quarter<IRREGULAR>(part, token, column, tokens.key_window, a);
        tokens.template quarter<IRREGULAR>(part, token + 8, column, tokens.key_window, b);
        BUDDY_UNROLL
        for (u32 i = 0; i < 4; i++) {
            BUDDY_UNROLL
            for (u32 n = 0; n < S::N8_TILES; n++) {
                const u32(&q)[8] = state.queries[part][n];
                mma_m16n8k16(halves[i % 2][n], a[2 * i], b[2 * i], a[2 * i + 1], b[2 * i + 1], q[2 * i], q[2 * i + 1]);
            }
        }
    }
    // Decoded while the tensor cores compute the scores.
    u32 w[4][S::FRAGMENTS];
    BUDDY_UNROLL
    for (u32 k = 0; k < 4; k++) tokens.template values<IRREGULAR>((TOKENS >> 4 * (2 * column + k % 2) & 7) + k / 2 * 8, row, w[k]);
    bool above = false;
    BUDDY_UNROLL
    for (u32 n = 0; n < S::N8_TILES; n++) {
        BUDDY_UNROLL
        for (u32 k = 0; k < 4; k++) {
            // Explicit rounding: the result must equal that of the plain-memory kernel bit for bit.
            scores[n][k] = __fmul_rn(halves[0][n][k] + halves[1][n][k], of.scale);
            if (IRREGULAR && tokens.base + token + k / 2 * 8 >= of.template limit<S::FRESH>(tokens.length, 8 * n + 2 * column + k % 2)) scores[n][k] = __int_as_float(0xff800000);
            above |= scores[n][k] > state.max_score[n][k % 2] + SLACK;
        }
    }
    if (__any_sync(ALL, above)) state.rescale(scores);
    u32 weights[S::N8_TILES][2];
    BUDDY_UNROLL
    for (u32 n = 0; n < S::N8_TILES; n++) {
        BUDDY_UNROLL
        for (u32 k = 0; k < 4; k++) {
            scores[n][k] = exp2_fast(scores[n][k] - state.max_score[n][k % 2]);
            state.sum[n][k % 2] += scores[n][k];
        }
        weights[n][0] = transpose8x8(to_bf16(scores[n][0], scores[n][1])), weights[n][1] = transpose8x8(to_bf16(scores[n][2], scores[n][3]));
    }
    BUDDY_UNROLL
    for (u32 f = 0; f < S::FRAGMENTS; f++) {
        u32 a0 = permute_bytes(w[0][f], w[1][f], 0x5410), a1 = permute_bytes(w[0][f], w[1][f], 0x7632);
        u32 a2 = permute_bytes(w[2][f], w[3][f], 0x5410), a3 = permute_bytes(w[2][f], w[3][f], 0x7632);
        BUDDY_UNROLL
        for (u32 n = 0; n < S::N8_TILES; n++) mma_m16n8k16(state.out[f][n], a0, a1, a2, a3, weights[n][0], weights[n][1]);
    }
}

}  // namespace buddy
