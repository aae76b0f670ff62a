// Linear layer y = W x with frozen bf16 weights for few tokens, on any GPU of compute capability
// 8.0 or later: cp.async and mma.sync.
//
// A CTA takes tiles of 16 rows, one after the other. Its warps share the columns of a tile: warp w
// takes columns w, w + WARPS, and so on. Each warp has a ring of packed columns in shared memory of
// its own, filled by cp.async ahead of the mma, across tiles. The warps' accumulators are added in
// a fixed order through shared memory, so that results are deterministic. x is read through L1.
#include "linear_fragment.cuh"

using namespace buddy;

namespace {

constexpr u32 PORTABLE_WARPS = 8, DEPTH = 4, N8 = BUDDY_PORTABLE_N8_TILES, COLUMN_CHUNKS = PackedMatrixView::COLUMN / CHUNK;

// Shared memory: rings, the warps' accumulators, barriers, and a word that owns no entry.
struct PortableStorage {
    static constexpr u32 AT_SUMS = PORTABLE_WARPS * DEPTH * PackedMatrixView::COLUMN, AT_BARRIERS = AT_SUMS + PORTABLE_WARPS * N8 * WARP * 16;
    static constexpr u32 AT_NO_OWNER = AT_BARRIERS + PORTABLE_WARPS * DEPTH * 8, BYTES = AT_NO_OWNER + 128;
    u32 shared;

    BUDDY_FN u32 column(u32 warp, u32 stage) const { return shared + (warp * DEPTH + stage) * PackedMatrixView::COLUMN; }
    BUDDY_FN u32 sums(u32 warp, u32 n8) const { return shared + AT_SUMS + ((warp * N8 + n8) * WARP + threadIdx.x % WARP) * 16; }
    BUDDY_FN Barrier full(u32 warp, u32 stage) const { return {shared + AT_BARRIERS + (warp * DEPTH + stage) * 8}; }
    BUDDY_FN u32 no_owner() const { return shared + AT_NO_OWNER; }
};
static_assert(PortableStorage::BYTES == BUDDY_PORTABLE_SHARED, "Rust asks for the shared memory that the kernel uses");

// A column of a warp: its tile and its place in the row.
struct WarpColumn {
    u32 tile, k;

    BUDDY_FN void advance(u32 warp, u32 per_row) {
        k += PORTABLE_WARPS;
        if (k >= per_row) k = warp, tile += gridDim.x;
    }
    // A warp without columns of its own has none in any tile.
    BUDDY_FN bool exists(u32 tiles, u32 per_row) const { return tile < tiles && k < per_row; }
};

BUDDY_FN void load_column(const Linear& linear, const PortableStorage& smem, const WarpColumn& column, u32 warp, u32 stage) {
    u32 lane = threadIdx.x % WARP, to = smem.column(warp, stage);
    const u8* from = linear.weights.device + ((u64)column.tile * linear.per_row() + column.k) * PackedMatrixView::COLUMN;
    BUDDY_UNROLL
    for (u32 i = lane; i < COLUMN_CHUNKS; i += WARP) cp_async<CHUNK>(to + i * CHUNK, from + i * CHUNK);
    cp_async_mbarrier_arrive(smem.full(warp, stage));
}

// Multiplies an entry of two rows by the same columns of x: a lane has a token and a pair of values
// of every eight.
BUDDY_FN void multiply(const Linear& linear, float (&sums)[N8][4], const u32 (&upper)[8], const u32 (&lower)[8], u32 k) {
    u32 lane = threadIdx.x % WARP;
    BUDDY_UNROLL
    for (u32 t = 0; t < N8; t++) {
        u32 token = min(8 * t + lane / 4, linear.tokens - 1);
        const u32* x = (const u32*)(linear.x + ((u64)token * linear.per_row() + k) * ENTRY) + lane % 4;
        u32 words[8];
        BUDDY_UNROLL
        for (u32 i = 0; i < 8; i++) words[i] = __ldg(x + 4 * i);
        BUDDY_UNROLL
        for (u32 i = 0; i < 4; i++) mma_m16n8k16(sums[t], upper[2 * i], lower[2 * i], upper[2 * i + 1], lower[2 * i + 1], words[2 * i], words[2 * i + 1]);
    }
}

}  // namespace

// x and weights are aligned to 16 bytes.
extern "C" __global__ void __launch_bounds__(PORTABLE_WARPS* WARP, 2) linear_portable(const __grid_constant__ Linear linear) {
    BUDDY_DYNAMIC_SHARED(u8, memory);
    PortableStorage smem = {shared_address(memory)};
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, per_row = linear.per_row(), tiles = (linear.outputs + TILE_ROWS - 1) / TILE_ROWS;
    if (lane == 0) {
        for (u32 i = 0; i < DEPTH; i++) smem.full(warp, i).init(WARP);
        if (warp == 0) sts32(smem.no_owner(), NO_OWNER);
    }
    __syncthreads();
    WarpColumn ahead = {blockIdx.x, warp};
    for (u32 i = 0; i < DEPTH && ahead.exists(tiles, per_row); i++, ahead.advance(warp, per_row)) load_column(linear, smem, ahead, warp, i);
    FragmentLoader loader(linear.weights);
    PipelineState<DEPTH> state;
#pragma unroll 1
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        float sums[N8][4] = {};
#pragma unroll 1
        for (u32 k = warp; k < per_row; k += PORTABLE_WARPS, state.advance()) {
            u64 at = (u64)tile * per_row + k;
            uint2 irregular = irregular_mask(__ldg((const uint2*)linear.weights.nibbles + at));
            u32 upper[8], lower[8], column = smem.column(warp, state.stage);
            smem.full(warp, state.stage).wait(state.phase);
            loader.load(column, upper, lower);
            if (irregular.x | irregular.y) loader.load_irregular_rows(smem.no_owner(), 0, 0, column, at * TILE_ROWS, irregular, upper, lower);
            // All lanes have read the column.
            __syncwarp();
            if (ahead.exists(tiles, per_row)) load_column(linear, smem, ahead, warp, state.stage), ahead.advance(warp, per_row);
            multiply(linear, sums, upper, lower, k);
        }
        BUDDY_UNROLL
        for (u32 t = 0; t < N8; t++) {
            const float* v = sums[t];
            sts128(smem.sums(warp, t), make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3])));
        }
        __syncthreads();
        // A warp adds up eight tokens.
        if (warp < N8) {
            float all[4] = {};
            for (u32 w = 0; w < PORTABLE_WARPS; w++) {
                uint4 v = lds128(smem.sums(w, warp));
                all[0] += __uint_as_float(v.x), all[1] += __uint_as_float(v.y), all[2] += __uint_as_float(v.z), all[3] += __uint_as_float(v.w);
            }
            u32 row = tile * TILE_ROWS + FragmentLoader::row_of(lane), token = 8 * warp + lane % 4 * 2;
            store_outputs(linear, row, token, all[0], all[2]), store_outputs(linear, row, token + 1, all[1], all[3]);
        }
        __syncthreads();
    }
}
