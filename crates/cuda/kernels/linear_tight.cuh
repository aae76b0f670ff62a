// Weights in the tight layout for the linear kernels: what producers load besides the columns
// themselves, and how a consumer decodes a column. linear_fragment.cuh includes it.
#pragma once
#include "linear_pipeline.cuh"
#include "tight_view.cuh"

namespace buddy {

// Metadata of a column, which a producer lane loads before the stage is free.
struct TightColumn {
    uint2 flags;  // of lanes: which have an extra word for their upper row, and for their lower one
    u32 other;    // extra words of the pair's other column
    u32 begin, end;  // the pair's extra words, exceptions included
    u32 odd;

    // Columns past the end have none.
    static BUDDY_FN TightColumn load(const PackedMatrixView& weights, u32 per_row, u32 tile, u32 k, bool is) {
        if (!is) return {make_uint2(0, 0), 0, 0, 0, 0};
        const uint2* at = (const uint2*)weights.nibbles + (u64)tile * per_row + k;
        const u32* index = weights.index + (u64)tile * ((per_row + 1) / 2) + k / 2;
        uint2 other = (k ^ 1) < per_row ? __ldg(k % 2 ? at - 1 : at + 1) : make_uint2(0, 0);
        return {__ldg(at), ones_in(other.x) + ones_in(other.y), __ldg(index), __ldg(index + 1), k % 2};
    }

    // Copies the extra words of the columns of lanes `first` to `last`, which lie one after the
    // other, to `to`, and writes a descriptor for each column: the flags, the shared address of its
    // extra words, and its exceptions: how many, and in the upper half their offset in bytes; `FAR`
    // if not all is there. A lane without a descriptor passes 0. Returns the bytes that the barrier
    // will get, in lane `first`.
    BUDDY_FN u32 copy(const PackedMatrixView& weights, u32 lane, u32 first, u32 last, bool is, u32 to, u32 reserve, u32 descriptor, Barrier done) const {
        u32 start = __shfl_sync(ALL, begin, first) & ~7u, stop = min(__shfl_sync(ALL, end, last), weights.sectors);
        u32 words = start < stop ? min((stop - start + 7) & ~7u, reserve / 2) : 0, bytes = is && lane == first ? 2 * words : 0;
        if (bytes > 0) cp_async_bulk(to, weights.overflow + 2 * (u64)start, bytes, done);
        if (!is) {
            if (descriptor != 0) sts128(descriptor, make_uint4(0, 0, to, 0));
            return 0;
        }
        u32 own = ones_in(flags.x) + ones_in(flags.y), both = own + other, mine = begin - start + odd * other;
        bool is_near = begin >= start && end - begin <= MOST && end - begin >= both && end - start <= words;
        u32 exceptions = (end - begin - both) / 2 | 2 * (begin - start + both - mine) << 16;
        sts128(descriptor, is_near ? make_uint4(flags.x, flags.y, to + 2 * mine, exceptions & 0xffff ? exceptions : 0) : make_uint4(0, 0, to, FAR));
        return bytes;
    }

    static constexpr u32 FAR = ~0u, MOST = 1 << 14;
};

// Loads and decodes a lane's part of a column in the tight layout.
struct TightLoader {
    const PackedMatrixView& weights;
    u32 lane, row;

    BUDDY_FN explicit TightLoader(const PackedMatrixView& weights) : weights(weights), lane(threadIdx.x % WARP), row(row_of(threadIdx.x % WARP)) {}
    // As `FragmentLoader::row_of`.
    static BUDDY_FN u32 row_of(u32 lane) { return Tight::row_byte(lane / 4) / 2; }

    struct Stored {
        uint4 bytes[2];
        uint2 codes;
        u32 signs, lowest, extra, at, exceptions;
    };
    BUDDY_FN u32 lowest(u32 rows) const { return Tight::lowest(lds16(rows + lane / 4 * 2)); }
    BUDDY_FN Stored fetch(u32 column, u32 descriptor, u32 lowest) const {
        uint4 d = lds128(descriptor);
        Stored out = {{lds128(column + 16 * lane), lds128(column + 512 + 16 * lane)}, lds64(column + Tight::CODES + 8 * lane), lds32(column + Tight::SIGNS + 4 * lane), lowest, 0, d.z, d.w};
        u32 mine = 1u << lane, before = mine - 1;
        u32 upper = lds16_if(d.x & mine, d.z + 2 * ones_in(d.x & before));
        u32 lower = lds16_if(d.y & mine, d.z + 2 * (ones_in(d.x) + ones_in(d.y & before)));
        out.extra = permute_bytes(upper, lower, 0x5410);
        return out;
    }
    BUDDY_FN void decode(const Stored& stored, u32 per_row, u32 tile, u32 k, u32 (&upper)[8], u32 (&lower)[8]) const {
        const u32 codes[2] = {stored.codes.x, stored.codes.y};
        u32 high[8];
        Tight::high_bytes(codes, stored.signs, stored.extra, stored.lowest, high);
        // Rare from here on.
        if (__builtin_expect(stored.exceptions != 0, 0)) {
            TightView all = {weights.device, weights.nibbles, weights.overflow, weights.index, nullptr, weights.sectors, per_row};
            if (stored.exceptions == TightColumn::FAR) all.high_bytes(tile, k, lane, codes, stored.signs, stored.lowest, high);
            else patch(stored.at + (stored.exceptions >> 16), stored.exceptions & 0xffff, k % 2, high);
        }
        const u32 up[4] = {stored.bytes[0].x, stored.bytes[0].y, stored.bytes[0].z, stored.bytes[0].w};
        const u32 low[4] = {stored.bytes[1].x, stored.bytes[1].y, stored.bytes[1].z, stored.bytes[1].w};
        BUDDY_UNROLL
        for (u32 i = 0; i < 8; i++) upper[i] = Tight::upper_pair(up[i / 2], i, high[i]), lower[i] = Tight::lower_pair(low[i / 2], i, high[i]);
    }
    BUDDY_FN void patch(u32 at, u32 count, u32 odd, u32 (&high)[8]) const {
        BUDDY_ROLLED
        for (u32 i = 0; i < count; i++, at += 4) Tight::patch(lds16(at) | lds16(at + 2) << 16, lane, odd, high);
    }
};

}  // namespace buddy
