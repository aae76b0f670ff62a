// Unpacks rows of a bf16 matrix packed at 4/3x, for cuBLASLt. A warp loads `RUN` columns of a
// 16-row tile by bulk copy, decodes them as the linear kernels do, transposes them to whole entries
// in shared memory, and stores these.
#include "linear_producer.cuh"
#include "linear_fragment.cuh"

using namespace buddy;

namespace {

// warps of a CTA; columns of a copy; stages of a warp's ring
constexpr u32 UNPACK_WARPS = 8, RUN = 4, STAGES = 2;

struct Unpacking {
    PackedMatrixView weights;
    u8* to;  // the first tile's first row
    u32 per_row, first_tile, tiles, rows;

    BUDDY_FN u32 per_tile() const { return (per_row + RUN - 1) / RUN; }
    BUDDY_FN u32 runs() const { return tiles * per_tile(); }
    BUDDY_FN u32 columns(u32 run) const { return min(RUN, per_row - run % per_tile() * RUN); }
    // Index in the whole matrix of a run's first column.
    BUDDY_FN u64 column(u32 run) const { return (u64)(first_tile + run / per_tile()) * per_row + run % per_tile() * RUN; }
};

// A warp's shared memory: a ring of runs, an entry of 16 plain rows, barriers, and a word that owns
// no entry.
struct WarpStorage {
    static constexpr u32 AT_OUT = STAGES * RUN * PackedMatrixView::COLUMN, AT_BARRIERS = AT_OUT + TILE_ROWS * ENTRY, BYTES = AT_BARRIERS + 128;
    u32 shared;

    BUDDY_FN u32 column(u32 stage, u32 e) const { return shared + (stage * RUN + e) * PackedMatrixView::COLUMN; }
    BUDDY_FN u32 chunk(u32 row, u32 c) const { return shared + AT_OUT + row * ENTRY + (c ^ row % 8) * CHUNK; }
    BUDDY_FN Barrier full(u32 stage) const { return {shared + AT_BARRIERS + 8 * stage}; }
    BUDDY_FN u32 no_owner() const { return shared + AT_BARRIERS + 64; }
};

BUDDY_FN void load_run(const Unpacking& of, const WarpStorage& smem, u32 run, u32 stage, u64 policy) {
    if (run >= of.runs()) return;
    u32 bytes = of.columns(run) * PackedMatrixView::COLUMN;
    smem.full(stage).arrive_expect_tx(bytes);
    cp_async_bulk(smem.column(stage, 0), of.weights.device + of.column(run) * PackedMatrixView::COLUMN, bytes, smem.full(stage), policy);
}

BUDDY_FN void stmatrix4(u32 at, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// Transposes 16 rows of an entry through shared memory and stores them to `to`, `pitch` bytes
// apart.
BUDDY_FN void store(const WarpStorage& smem, const u32 (&upper)[8], const u32 (&lower)[8], u8* to, u64 pitch, u32 rows) {
    u32 lane = threadIdx.x % WARP, row = FragmentLoader::row_of(lane % 8 * 4), chunk = lane / 8;
    stmatrix4(smem.chunk(row, chunk), upper[0], upper[1], upper[2], upper[3]);
    stmatrix4(smem.chunk(row, chunk + 4), upper[4], upper[5], upper[6], upper[7]);
    stmatrix4(smem.chunk(row + 8, chunk), lower[0], lower[1], lower[2], lower[3]);
    stmatrix4(smem.chunk(row + 8, chunk + 4), lower[4], lower[5], lower[6], lower[7]);
    __syncwarp();
    BUDDY_UNROLL
    for (u32 i = 0; i < 4; i++) {
        u32 of = 4 * i + lane / 8;
        uint4 v = lds128(smem.chunk(of, lane % 8));
        if (of < rows) *(uint4*)(to + of * pitch + lane % 8 * CHUNK) = v;
    }
    __syncwarp();
}

}  // namespace

static_assert(UNPACK_WARPS * WarpStorage::BYTES == BUDDY_UNPACK_SHARED, "Rust asks for the shared memory that the kernel uses");

extern "C" __global__ void __launch_bounds__(UNPACK_WARPS* WARP, 2) linear_unpack(const __grid_constant__ Unpacking of) {
    extern __shared__ __align__(128) u8 memory[];
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, all = gridDim.x * UNPACK_WARPS;
    WarpStorage smem = {keep(shared_address(memory) + warp * WarpStorage::BYTES)};
    u64 policy = evict_first_policy(), pitch = (u64)of.per_row * ENTRY;
    if (lane == 0) {
        for (u32 i = 0; i < STAGES; i++) smem.full(i).init(1);
        sts32(smem.no_owner(), ~0u);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (u32 i = 0; i < STAGES; i++) load_run(of, smem, warp + blockIdx.x * UNPACK_WARPS + i * all, i, policy);
    }
    __syncwarp();
    FragmentLoader loader(of.weights);
    PipelineState<STAGES> state;
#pragma unroll 1
    for (u32 run = warp + blockIdx.x * UNPACK_WARPS; run < of.runs(); run += all, state.advance()) {
        u32 columns = of.columns(run), tile = run / of.per_tile();
        u64 first = of.column(run);
        uint2 mine = lane < columns ? __ldg((const uint2*)of.weights.nibbles + first + lane) : make_uint2(0, 0);
        u8* to = of.to + (u64)tile * TILE_ROWS * pitch + run % of.per_tile() * (RUN * ENTRY);
        smem.full(state.stage).wait(state.phase);
#pragma unroll 1
        for (u32 e = 0; e < columns; e++) {
            u32 upper[8], lower[8];
            uint2 irregular = irregular_mask(make_uint2(__shfl_sync(ALL, mine.x, e), __shfl_sync(ALL, mine.y, e)));
            loader.load(smem.column(state.stage, e), upper, lower);
            if (irregular.x | irregular.y) {
                loader.load_irregular_rows(smem.no_owner(), 0, 0, smem.column(state.stage, e), (first + e) * TILE_ROWS, irregular, upper, lower);
            }
            store(smem, upper, lower, to + e * ENTRY, pitch, min(TILE_ROWS, of.rows - tile * TILE_ROWS));
        }
        if (lane == 0) load_run(of, smem, run + STAGES * all, state.stage, policy);
    }
}
