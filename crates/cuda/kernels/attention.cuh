// One warp's share of attention: sixteen tokens at a time against all columns, in registers.
//
// Scores are keys times queries: the rows of the first operand are sixteen tokens, four lanes to an entry, each with a quarter of
// it, and the second operand's columns are heads that ask. Results are values, turned, times weights: rows are sixteen of a
// head's values, and a lane has the same 8 or 16 values of four tokens, which it pairs. So both operands are decoded where they
// are needed. The order of tokens among the rows is free: theirs below lets lanes of both products read from different banks.
#pragma once
#include "attention_source.cuh"

namespace buddy {

// Eight rows' tokens, four bits to each: 0 2 1 3 6 4 7 5.
constexpr u32 TOKENS = 0x57463120u;
// A score that is far below any, and what a larger one may exceed the largest so far by before sums are scaled anew.
constexpr float LOWEST = -1e30f, SLACK = 8;

// What a lane keeps of a span: its share of queries, sums, and of two columns of each set the largest score and the sum of weights.
template <class R>
struct Asked {
    u32 queries[R::PARTS][R::SETS][8];
    float out[R::FRAGMENTS][R::SETS][4];
    float most[R::SETS][2], sum[R::SETS][2];

    // Nothing was found yet.
    BUDDY_FN void clear() {
        BUDDY_UNROLL
        for (u32 n = 0; n < R::SETS; n++) {
            most[n][0] = most[n][1] = LOWEST, sum[n][0] = sum[n][1] = 0;
            BUDDY_UNROLL
            for (u32 f = 0; f < R::FRAGMENTS; f++) out[f][n][0] = out[f][n][1] = out[f][n][2] = out[f][n][3] = 0;
        }
    }
    BUDDY_FN void start(const Attention& of, const Span& span, u32 lane) {
        clear();
        if (R::FRESH) start_fresh(of, span, lane);
        BUDDY_UNROLL
        for (u32 n = 0; n < R::SETS; n++) {
            u32 column = 8 * n + lane / 4;
            const uint4* at = (const uint4*)(of.queries + of.template column_at<false>(span.sequence, span.head, column)) + 2 * (lane % 4);
            BUDDY_UNROLL
            for (u32 part = 0; part < R::PARTS && !R::FRESH; part++) {
                uint4 a = {}, b = {};
                if (column < of.columns()) a = at[8 * part], b = at[8 * part + 1];
                set(queries[part][n], a, b);
            }
        }
    }
    // The queries of a fresh token, turned. What is older than it lies in the cache since before the kernel before this one, so
    // that all but its own rows is there already.
    BUDDY_FN void start_fresh(const Attention& of, const Span& span, u32 lane) {
        u32 first = lane % 4 * (VALUES / 4);
        const float4* from = (const float4*)of.turns_of(max(span.length, 1u), first);
        float4 turns[8];
        BUDDY_UNROLL
        for (u32 i = 0; i < 8; i++) turns[i] = __ldg(from + i);
        wait_on_dependent_grids();
        BUDDY_UNROLL
        for (u32 n = 0; n < R::SETS; n++) {
            u32 column = 8 * n + lane / 4;
            const uint4* at = (const uint4*)of.fresh_head(span.sequence, span.head * of.group + min(column, of.group - 1)) + 2 * (lane % 4);
            u32 plain[R::PARTS][8], others[8];
            BUDDY_UNROLL
            for (u32 part = 0; part < R::PARTS; part++) set(plain[part], at[8 * part], at[8 * part + 1]);
            BUDDY_UNROLL
            for (u32 part = 0; part < R::PARTS; part++) {
                // The value half a head away is the other part's, or two lanes away.
                BUDDY_UNROLL
                for (u32 i = 0; i < 8; i++) others[i] = R::PARTS == 2 ? plain[R::PARTS - 1 - part][i] : __shfl_xor_sync(ALL, plain[0][i], 2);
                BUDDY_UNROLL
                for (u32 i = 0; i < 8; i++) queries[part][n][i] = plain[part][i];
                turn(queries[part][n], others, turns, R::PARTS == 2 ? part == 0 : lane % 4 < 2);
                BUDDY_UNROLL
                for (u32 i = 0; i < 8; i++) queries[part][n][i] = column < of.group ? queries[part][n][i] : 0;
            }
        }
    }

    // A larger score: sums so far are scaled to it.
    BUDDY_FN void raise(const float (&scores)[R::SETS][4]) {
        BUDDY_UNROLL
        for (u32 n = 0; n < R::SETS; n++) {
            BUDDY_UNROLL
            for (u32 k = 0; k < 2; k++) {
                float now = fmaxf(scores[n][k], scores[n][k + 2]);
                for (u32 step = 4; step < WARP; step *= 2) now = fmaxf(now, __shfl_xor_sync(ALL, now, step));
                now = fmaxf(now, most[n][k]);
                float scale = exp2_fast(most[n][k] - now);
                most[n][k] = now, sum[n][k] *= scale;
                BUDDY_UNROLL
                for (u32 f = 0; f < R::FRAGMENTS; f++) out[f][n][k] *= scale, out[f][n][k + 2] *= scale;
            }
        }
    }
};

// A quarter of one of a fresh token's entries, keys before values, as it is: keys are turned.
template <class R>
BUDDY_FN void fresh_quarter(const Attention& of, const Span& span, u32 entry, u32 quarter, u32 (&words)[8]) {
    u32 which = entry / R::PARTS, first = entry % R::PARTS * VALUES + quarter * (VALUES / 4), values = R::PARTS * VALUES;
    const unsigned short* row = of.fresh_head(span.sequence, of.cache.heads * (of.group + which) + span.head);
    const uint4 *own = (const uint4*)(row + first), *away = (const uint4*)(row + (first + values / 2) % values);
    u32 others[8];
    set(words, own[0], own[1]);
    if (which != 0) return;
    set(others, away[0], away[1]);
    turn(words, others, (const float4*)of.turns_of(span.length, first), first < values / 2);
}

// Sixteen tokens in shared memory.
template <class R>
struct Sixteen {
    typedef typename R::From From;
    u32 data, nibbles, sides;
    u32 key_window, value_window;
    u32 base, length;     // its first token, and the tokens of the sequence
    u32 odd[R::PARTS];    // a bit for each entry that was unfolded
    u32 fresh;            // of a cluster: where the key of a fresh token lies, its value after it

    // Whether all entries are in layout B, and no token is past what any column may see.
    BUDDY_FN bool usual(u32 tokens) const {
        u32 other = base + SIXTEEN + tokens > length + 1;
        BUDDY_UNROLL
        for (u32 i = 0; i < R::NIBBLE_BYTES && From::HAS_NIBBLES; i += 16) {
            uint4 four = lds128(nibbles + i);
            const u32 all = (RAW + 1) * 0x11111111u;
            other |= (four.x ^ all) | (four.y ^ all) | (four.z ^ all) | (four.w ^ all);
        }
        return other == 0;
    }

    // Whether a fresh token is among them, the last of its sequence.
    BUDDY_FN bool has_fresh() const { return R::FRESH && length - base <= SIXTEEN; }

    // Entries that are not in layout B become plain: three quarters in their places, the last at the warp's side. Four lanes to
    // an entry. Those of tokens past the end become zeros, and those of a fresh one, of which memory holds what was there before, what it brings.
    BUDDY_FN void unfold(const Attention& of, const Span& span, u32 lane) {
        u32 fresh = has_fresh() ? length - 1 - base : SIXTEEN, others = has_fresh() ? ~(0x00010001u << fresh) : ~0u;
        BUDDY_UNROLL
        for (u32 i = 0; i < R::PARTS; i++) odd[i] = __ballot_sync(ALL, nibble(WARP * i + lane) != RAW + 1) | ~others;
        u64 rest = R::PARTS == 2 ? (u64)(odd[R::PARTS - 1] & others) << 32 | (odd[0] & others) : odd[0] & others;
#pragma unroll 1
        while (rest != 0) {
            // The first eight entries that have such a one.
            u32 first = (u32)(__ffsll((long long)rest) - 1) & ~7u, eight = (u32)(rest >> first) & 0xff;
            rest &= ~(0xffull << first);
            u32 entry = first + lane / 4, quarter = lane % 4, out[8], at = data + entry * From::BYTES;
            bool mine = eight >> lane / 4 & 1;
            auto far = [&] { return (const uint4*)(of.cache.memory.buddy + (first_entry(of, span) + entry) * SECTOR); };
            if (mine) From::load_any(at, far, nibble(entry), quarter, out);
            __syncwarp();
            u32 to = From::unfolded(at, sides + entry * SECTOR, quarter);
            if (mine) sts128(to, make_uint4(out[0], out[1], out[2], out[3])), sts128(to + 16, make_uint4(out[4], out[5], out[6], out[7]));
        }
        u32 entry = lane / 4 * SIXTEEN + fresh, at = data + entry * From::BYTES;
        if (fresh < SIXTEEN && lane / 4 < 2 * R::PARTS) {
            u32 out[8], to = From::unfolded(at, sides + entry * SECTOR, lane % 4);
            u32 from = this->fresh + lane / 4 / R::PARTS * R::QUERY + lane / 4 % R::PARTS * ENTRY + lane % 4 * SECTOR;
            if (R::CLUSTERED) set(out, lds128(from), lds128(from + 16));
            else fresh_quarter<R>(of, span, lane / 4, lane % 4, out);
            sts128(to, make_uint4(out[0], out[1], out[2], out[3])), sts128(to + 16, make_uint4(out[4], out[5], out[6], out[7]));
        }
        // The copy engine will write there after these stores.
        fence_proxy_async();
        __syncwarp();
    }
    BUDDY_FN u64 first_entry(const Attention& of, const Span& span) const {
        u32 page = (u32)__ldg(of.table + (u64)span.sequence * of.table_stride + base / of.cache.page_tokens);
        return of.cache.first_entry(of.layer, page, span.head, base % of.cache.page_tokens);
    }
    // Plain memory has none, and all are as layout B's: as they are.
    BUDDY_FN u32 nibble(u32 entry) const {
        if (base + entry % SIXTEEN >= length) return ZERO;
        return From::HAS_NIBBLES ? SharedStream{nibbles + entry / 8 * 4}.load(0) >> entry % 8 * 4 & 15 : (u32)RAW + 1;
    }
    BUDDY_FN bool was_unfolded(u32 piece, u32 token) const { return odd[piece / 2] >> (piece % 2 * SIXTEEN + token) & 1; }

    // A quarter of an entry of a piece, one of its keys' or values' 16. CAREFUL is after `unfold`.
    template <bool CAREFUL>
    BUDDY_FN void quarter(u32 piece, u32 token, u32 which, u32 window, u32 (&out)[8]) const {
        u32 entry = piece * SIXTEEN + token, at = data + entry * From::BYTES;
        From::load(at, which, window, out);
        if (CAREFUL && From::HAS_NIBBLES && was_unfolded(piece, token)) {
            u32 from = From::unfolded(at, sides + entry * SECTOR, which);
            set(out, lds128(from), lds128(from + 16));
        }
    }

    // A lane's share of a token's values: the quarter of two entries' or the eighth of one's that goes with its rows.
    template <bool CAREFUL>
    BUDDY_FN void values(u32 token, u32 row, u32 (&out)[R::FRAGMENTS]) const {
        if constexpr (R::PARTS == 2) {
            quarter<CAREFUL>(2 + row / 4, token, row % 4, value_window, out);
        } else {
            u32 entry = SIXTEEN + token, at = data + entry * From::BYTES;
            From::load_eighth(at, row, value_window, out);
            if (CAREFUL && From::HAS_NIBBLES && was_unfolded(1, token)) {
                set(out, lds128(From::unfolded(at, sides + entry * SECTOR, row / 2) + row % 2 * 16));
            }
        }
    }
};

// Appends a fresh token, the last of its sequence, to memory. Not inlined: it is rare, and registers are dear.
template <class R>
static __device__ __noinline__ void append_fresh(const Attention& of, const Span& span, u32 lane) {
    u32 entry = lane / 4, position = span.length - 1, words[8];
    if (entry >= 2 * R::PARTS) return;
    fresh_quarter<R>(of, span, entry, lane % 4, words);
    u32 page = (u32)of.table[(u64)span.sequence * of.table_stride + position / of.cache.page_tokens];
    long long slot = (long long)page * of.cache.page_tokens + position % of.cache.page_tokens;
    append(of.cache, {of.layer, span.head, entry / R::PARTS, entry % R::PARTS, slot}, lane % 4, words);
}

template <class R, bool CAREFUL>
BUDDY_FN void attend(const Attention& of, const Sixteen<R>& tokens, u32 lane, Asked<R>& asked) {
    u32 row = lane / 4, column = lane % 4, token = TOKENS >> 4 * row & 7;
    float halves[2][R::SETS][4] = {}, scores[R::SETS][4];
    BUDDY_UNROLL
    for (u32 part = 0; part < R::PARTS; part++) {
        u32 a[8], b[8];
        tokens.template quarter<CAREFUL>(part, token, column, tokens.key_window, a);
        tokens.template quarter<CAREFUL>(part, token + 8, column, tokens.key_window, b);
        BUDDY_UNROLL
        for (u32 i = 0; i < 4; i++) {
            BUDDY_UNROLL
            for (u32 n = 0; n < R::SETS; n++) {
                const u32(&q)[8] = asked.queries[part][n];
                mma_m16n8k16(halves[i % 2][n], a[2 * i], b[2 * i], a[2 * i + 1], b[2 * i + 1], q[2 * i], q[2 * i + 1]);
            }
        }
    }
    // Decoded while tensor cores are at the scores.
    u32 w[4][R::FRAGMENTS];
    BUDDY_UNROLL
    for (u32 k = 0; k < 4; k++) tokens.template values<CAREFUL>((TOKENS >> 4 * (2 * column + k % 2) & 7) + k / 2 * 8, row, w[k]);
    bool above = false;
    BUDDY_UNROLL
    for (u32 n = 0; n < R::SETS; n++) {
        BUDDY_UNROLL
        for (u32 k = 0; k < 4; k++) {
            // Rounded here in every copy of this code, so that results are those of the plain twin to the bit.
            scores[n][k] = __fmul_rn(halves[0][n][k] + halves[1][n][k], of.scale);
            if (CAREFUL && tokens.base + token + k / 2 * 8 >= of.template limit<R::FRESH>(tokens.length, 8 * n + 2 * column + k % 2)) scores[n][k] = __int_as_float(0xff800000);
            above |= scores[n][k] > asked.most[n][k % 2] + SLACK;
        }
    }
    if (__any_sync(ALL, above)) asked.raise(scores);
    u32 weights[R::SETS][2];
    BUDDY_UNROLL
    for (u32 n = 0; n < R::SETS; n++) {
        BUDDY_UNROLL
        for (u32 k = 0; k < 4; k++) {
            scores[n][k] = exp2_fast(scores[n][k] - asked.most[n][k % 2]);
            asked.sum[n][k % 2] += scores[n][k];
        }
        weights[n][0] = turned(to_bf16(scores[n][0], scores[n][1])), weights[n][1] = turned(to_bf16(scores[n][2], scores[n][3]));
    }
    BUDDY_UNROLL
    for (u32 f = 0; f < R::FRAGMENTS; f++) {
        u32 a0 = permute_bytes(w[0][f], w[1][f], 0x5410), a1 = permute_bytes(w[0][f], w[1][f], 0x7632);
        u32 a2 = permute_bytes(w[2][f], w[3][f], 0x5410), a3 = permute_bytes(w[2][f], w[3][f], 0x7632);
        BUDDY_UNROLL
        for (u32 n = 0; n < R::SETS; n++) mma_m16n8k16(asked.out[f][n], a0, a1, a2, a3, weights[n][0], weights[n][1]);
    }
}

}  // namespace buddy
