// The 7-point stencil of stencil.cu over plain memory, as fast as we could make it, for comparison.
// A row of 512 cells is a warp's tile of 4 KiB; a block has some rows and traverses the planes; of
// three planes in shared memory one is in flight.
#include "bulk.cuh"
#include "tile.cuh"

using namespace buddy;

// Warps per block, set by Rust. The first and the last only load the rows that the others need.
constexpr u32 WARPS = BUDDY_TILES_WARPS, INNER = WARPS - 2;
constexpr u32 CELLS = ENTRY / 8, ROW_ENTRIES = WARP, ROW_CELLS = ROW_ENTRIES * CELLS;
constexpr double CENTRE = 0.4, SIDE = 0.1;

struct Grid {
    u32 rows, planes;      // of the field
    u32 planes_per_block;
};

BUDDY_FN void fetch_row(const Tile& tile, const double* cells, u64 first) { fetch_plain(tile, (const uint4*)cells + first * CHUNKS, ALL); }

BUDDY_FN double cell(const u32 (&words)[WORDS], u32 i) { return __hiloint2double(words[2 * i + 1], words[2 * i]); }

// Returns two cells of this lane's row, or of that in another warp's tile.
template <int TILES = 0>
BUDDY_FN double2 load_cells(const Row& row, u32 chunk) {
    uint4 v = row.load_chunk<TILES * (int)(WARP * ENTRY)>(chunk);
    return make_double2(__hiloint2double(v.y, v.x), __hiloint2double(v.w, v.z));
}

// Sums this lane's 16 cells over all neighbours except those in the plane above.
BUDDY_FN void add_neighbours(const Row& row, const Row& below, u32 lane, double (&sums)[CELLS]) {
    u32 here[WORDS];
    row.load_all(here);
    double left = __shfl_up_sync(ALL, cell(here, CELLS - 1), 1), right = __shfl_down_sync(ALL, cell(here, 0), 1);
    if (lane == 0) left = cell(here, 0);
    if (lane == WARP - 1) right = cell(here, CELLS - 1);
    BUDDY_UNROLL
    for (u32 c = 0; c < CHUNKS; c++) {
        double2 a = load_cells<-1>(row, c), b = load_cells<1>(row, c), d = load_cells(below, c);
        BUDDY_UNROLL
        for (u32 k = 0; k < 2; k++) {
            u32 i = 2 * c + k;
            double x = __dadd_rn(i > 0 ? cell(here, i - 1) : left, i + 1 < CELLS ? cell(here, i + 1) : right);
            double y = k == 0 ? __dadd_rn(a.x, b.x) : __dadd_rn(a.y, b.y);
            double sum = __dadd_rn(__dadd_rn(x, y), k == 0 ? d.x : d.y);
            sums[i] = __fma_rn(SIDE, sum, __dmul_rn(CENTRE, cell(here, i)));
        }
    }
}

// Makes the compiler recompute values derived from the two, which is cheaper than the registers
// that would hold them.
BUDDY_FN void rematerialise(u32& lane, int& z) {
    asm volatile("" : "+r"(lane), "+r"(z));
    lane %= WARP;
}

// A split barrier of all warps: a warp arrives, does other work, and then waits.
BUDDY_FN void arrive_warp(Barrier barrier, u32 lane) {
    __syncwarp();
    if (lane == 0) barrier.arrive();
}

extern "C" __global__ void __launch_bounds__(WARPS* WARP, 1) stencil_tiles(const double* from, double* to, Grid grid) {
    extern __shared__ __align__(128) uint4 chunks[];
    u32 lane = threadIdx.x % WARP, warp = __shfl_sync(ALL, threadIdx.x / WARP, 0);
    int begin = blockIdx.y * grid.planes_per_block, end = min(begin + grid.planes_per_block, grid.planes);
    // Returns this warp's tile of a plane; three planes rotate. The tile of the plane below also
    // receives the results and then the next fetch.
    auto tile_of = [&](int z) { return Tile{chunks + ((u32)(z + 1 - begin) % 3 * WARPS + warp) * (WARP * CHUNKS), lane}; };
    auto row = [&] { return (int)(blockIdx.x * INNER + warp) - 1; };
    auto inner = [&] { return warp > 0 && warp < WARPS - 1 && row() < (int)grid.rows; };
    auto first_entry = [&](int z) {
        u32 plane = min(max(z, 0), (int)grid.planes - 1), y = min(max(row(), 0), (int)grid.rows - 1);
        return (u64)(plane * grid.rows + y) * ROW_ENTRIES;
    };
    __shared__ u64 mbarrier;
    Barrier barrier = {shared_address(&mbarrier)};
    asm volatile("" : "+r"(barrier.at));
    if (threadIdx.x == 0) barrier.init(WARPS);
    __syncthreads();
    BUDDY_UNROLL
    for (int i = 0; i < 3; i++) fetch_row(tile_of(begin - 1 + i), from, first_entry(begin - 1 + i));
    cp_async_wait_warp();
    arrive_warp(barrier, lane);
    BUDDY_ROLLED
    for (int z = begin; z < end; z++) {
        rematerialise(lane, z);
        barrier.wait((u32)(z - begin) % 2);
        double sums[CELLS];
        if (inner()) {
            add_neighbours(Row(tile_of(z)), Row(tile_of(z - 1)), lane, sums);
        } else {
            // Otherwise values would be kept in registers from one plane to the next.
            BUDDY_UNROLL
            for (u32 i = 0; i < CELLS; i++) asm volatile("mov.b64 %0, 0;" : "=d"(sums[i]));
        }
        cp_async_wait_warp();
        rematerialise(lane, z);
        u32 words[WORDS];
        Row(tile_of(z + 1)).load_all(words);
        arrive_warp(barrier, lane);
        rematerialise(lane, z);
        if (inner()) {
            BUDDY_UNROLL
            for (u32 i = 0; i < CELLS; i++) {
                double value = __fma_rn(SIDE, cell(words, i), sums[i]);
                words[2 * i] = __double2loint(value), words[2 * i + 1] = __double2hiint(value);
            }
            Row(tile_of(z - 1)).store_all(words);
            put_plain(tile_of(z - 1), (uint4*)to + first_entry(z) * CHUNKS, ALL);
        }
        __syncwarp();
        if (z + 1 < end) fetch_row(tile_of(z + 2), from, first_entry(z + 2));
    }
}
