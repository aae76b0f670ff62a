// Reads a tight matrix (docs/reference/format.md, "Tight matrices"): rows, or single entries. For
// every GPU; a warp reads a column of sixteen rows, four lanes a single entry.
#include "tight_view.cuh"

using namespace buddy;

namespace {

constexpr u32 LANES = 32, READERS = 128, ALL_LANES = 0xffffffffu, TILE = 16, CHUNKS = 8;  // chunks of 16 bytes of an entry

struct TightReading {
    TightView from;
    uint4* to;
    u32 rows;  // of the matrix
    u32 first, count;  // rows to read; the first is a multiple of 16
    u32 reserved;
};

// Exchanges words among the four lanes of an entry, so that a lane has chunks q and q + 4 of it
// instead of every fourth word.
BUDDY_FN void transpose_quarters(u32 (&words)[8], u32 q) {
    BUDDY_UNROLL
    for (u32 step = 1; step < 4; step *= 2) {
        BUDDY_UNROLL
        for (u32 i = 0; i < 8; i++) {
            if (i & step) continue;
            u32 &low = words[i], &high = words[i + step], sent = q & step ? low : high;
            u32 got = __shfl_xor_sync(ALL_LANES, sent, step);
            if (q & step) low = got;
            else high = got;
        }
    }
}

BUDDY_FN void store(uint4* entry, const u32 (&words)[8], u32 q) {
    entry[q] = make_uint4(words[0], words[1], words[2], words[3]);
    entry[q + 4] = make_uint4(words[4], words[5], words[6], words[7]);
}

}  // namespace

// A warp to a column of a tile.
extern "C" __global__ void __launch_bounds__(READERS) tight_read(const __grid_constant__ TightReading of) {
    u32 per_row = of.from.per_row, lane = threadIdx.x % LANES, q = lane % 4;
    u64 column = ((u64)blockIdx.x * READERS + threadIdx.x) / LANES;
    u32 tile = (u32)(column / per_row), k = (u32)(column % per_row);
    if (tile * TILE >= of.count) return;
    u32 upper[8], lower[8];
    of.from.load(of.first / TILE + tile, k, lane, upper, lower);
    transpose_quarters(upper, q), transpose_quarters(lower, q);
    u32 row = tile * TILE + Tight::row_byte(lane / 4) / 2;
    uint4* to = of.to + ((u64)row * per_row + k) * CHUNKS;
    if (row < of.count) store(to, upper, q);
    if (row + 8 < of.count) store(to + 8ull * per_row * CHUNKS, lower, q);
}

// The i-th of `to` becomes entry list[i]; one that does not exist is zeros.
extern "C" __global__ void __launch_bounds__(READERS) tight_gather(const __grid_constant__ TightReading of, const u32* list, u64 count) {
    u32 per_row = of.from.per_row, q = threadIdx.x % 4;
    u64 at = ((u64)blockIdx.x * READERS + threadIdx.x) / 4;
    u32 entry = at < count ? list[at] : ~0u, row = entry / per_row;
    u32 upper[8] = {}, lower[8];
    if (at < count && row < of.rows) {
        // Rows r and r + 8 of a tile lie in one slot: `load` returns both, and this entry is of one.
        of.from.load(row / TILE, entry % per_row, Tight::row_byte(row % 8) / 2 * 4 + q, upper, lower);
        BUDDY_UNROLL
        for (u32 i = 0; i < 8; i++) upper[i] = row % TILE < 8 ? upper[i] : lower[i];
    }
    transpose_quarters(upper, q);
    if (at < count) store(of.to + at * CHUNKS, upper, q);
}
