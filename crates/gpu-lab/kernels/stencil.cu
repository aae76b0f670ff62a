// A 7-point stencil over doubles, from compressed memory into compressed memory. A row of 512 cells is 32 entries: one
// warp's tile. A block takes some rows and walks through the planes; of three planes in shared memory one is being
// fetched, one decoded, one used. Beyond the edge of the grid lies the edge again.
#include "buddy_device.cuh"
#include "bulk.cuh"

using namespace buddy;

// Warps of a block, from Rust. The first and the last only bring in the rows that the others need.
constexpr u32 WARPS = BUDDY_STENCIL_WARPS, INNER = WARPS - 2;
constexpr u32 CELLS = ENTRY / 8, ROW_ENTRIES = WARP, ROW_CELLS = ROW_ENTRIES * CELLS;
constexpr double CENTRE = 0.4, SIDE = 0.1;

struct Grid {
    u32 rows, planes;      // of the field
    u32 planes_per_block;
};

// A field in compressed memory.
struct Packed {
    BuddyView view;

    BUDDY_FN u32 nibble(u64 first) const { return warp::load_nibbles(view, first); }
    BUDDY_FN void fetch_nibbles(uint4* shared, u64 first, u32 lane) const { warp::fetch_nibbles(view, shared, first, lane); }
    BUDDY_FN void fetch(const Tile& tile, u64 first, u32 nibble) const { warp::fetch_entries(view, tile, first, nibble); }
    // This lane's cells; its row holds them as well after it.
    BUDDY_FN void load(const Tile& tile, u64 first, u32 nibble, u32 (&words)[WORDS]) const {
        warp::decode_entry<Planes64>(view, tile, first + tile.lane, nibble, words);
        Row(tile).store_all(words);
    }
    BUDDY_FN void store(const Tile& tile, u64 first, u32 (&words)[WORDS]) const {
        warp::store_entries<Planes64>(view, tile, first, words);
    }
};

// The same in plain memory.
struct Plain {
    double* cells;

    BUDDY_FN u32 nibble(u64) const { return 0; }
    BUDDY_FN void fetch_nibbles(uint4*, u64, u32) const {}
    BUDDY_FN void fetch(const Tile& tile, u64 first, u32) const { fetch_plain(tile, (const uint4*)cells + first * CHUNKS, ALL); }
    BUDDY_FN void load(const Tile& tile, u64, u32, u32 (&words)[WORDS]) const { Row(tile).load_all(words); }
    BUDDY_FN void store(const Tile& tile, u64 first, u32 (&words)[WORDS]) const {
        Row(tile).store_all(words);
        put_plain(tile, (uint4*)cells + first * CHUNKS, ALL);
    }
};

BUDDY_FN double cell(const u32 (&words)[WORDS], u32 i) { return __hiloint2double(words[2 * i + 1], words[2 * i]); }

// Two cells of this lane's row, or of that in another warp's tile.
template <int TILES = 0>
BUDDY_FN double2 load_cells(const Row& row, u32 chunk) {
    uint4 v = row.load_chunk<TILES * (int)(WARP * ENTRY)>(chunk);
    return make_double2(__hiloint2double(v.y, v.x), __hiloint2double(v.w, v.z));
}

// The sums of this lane's 16 cells over all neighbours but those in the plane above.
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

// Makes the compiler compute anew what follows from the two, which is cheaper than the registers that would keep it.
BUDDY_FN void rematerialise(u32& lane, int& z) {
    asm volatile("" : "+r"(lane), "+r"(z));
    lane %= WARP;
}

// A split barrier of all warps: a warp arrives, does other work, and only then waits for the others.
BUDDY_FN void arrive_warp(Barrier barrier, u32 lane) {
    __syncwarp();
    if (lane == 0) barrier.arrive();
}

template <class Field>
BUDDY_FN void stencil(const Field& from, const Field& to, const Grid& grid) {
    extern __shared__ __align__(128) uint4 chunks[];
    u32 lane = threadIdx.x % WARP, warp = __shfl_sync(ALL, threadIdx.x / WARP, 0);
    int begin = blockIdx.y * grid.planes_per_block, end = min(begin + grid.planes_per_block, grid.planes);
    // A plane's tile of this warp; three planes take turns. In that of the plane below are also put what is written and
    // then what is fetched.
    auto tile_of = [&](int z) { return Tile{chunks + ((u32)(z + 1 - begin) % 3 * WARPS + warp) * (WARP * CHUNKS), lane}; };
    auto row = [&] { return (int)(blockIdx.x * INNER + warp) - 1; };
    auto inner = [&] { return warp > 0 && warp < WARPS - 1 && row() < (int)grid.rows; };
    auto first_entry = [&](int z) {
        u32 plane = min(max(z, 0), (int)grid.planes - 1), y = min(max(row(), 0), (int)grid.rows - 1);
        return (u64)(plane * grid.rows + y) * ROW_ENTRIES;
    };
    __shared__ u64 mbarrier;
    __shared__ uint4 nibbles[WARPS];
    Barrier barrier = {shared_address(&mbarrier)};
    asm volatile("" : "+r"(barrier.at));
    if (threadIdx.x == 0) barrier.init(WARPS);
    __syncthreads();
    u32 nibble, words[WORDS];
    u32 first[3] = {from.nibble(first_entry(begin - 1)), from.nibble(first_entry(begin)), from.nibble(first_entry(begin + 1))};
    BUDDY_UNROLL
    for (int i = 0; i < 3; i++) from.fetch(tile_of(begin - 1 + i), first_entry(begin - 1 + i), first[i]);
    from.fetch_nibbles(nibbles + warp, first_entry(begin + 2), lane);
    cp_async_wait_warp();
    from.load(tile_of(begin - 1), first_entry(begin - 1), first[0], words);
    from.load(tile_of(begin), first_entry(begin), first[1], words);
    nibble = first[2];
    arrive_warp(barrier, lane);
#pragma unroll 1
    for (int z = begin; z < end; z++) {
        rematerialise(lane, z);
        barrier.wait((u32)(z - begin) % 2);
        double sums[CELLS];
        if (inner()) {
            add_neighbours(Row(tile_of(z)), Row(tile_of(z - 1)), lane, sums);
        } else {
            // Or what they were would be kept from one plane to the next.
            BUDDY_UNROLL
            for (u32 i = 0; i < CELLS; i++) asm volatile("mov.b64 %0, 0;" : "=d"(sums[i]));
        }
        cp_async_wait_warp();
        rematerialise(lane, z);
        from.load(tile_of(z + 1), first_entry(z + 1), nibble, words);
        arrive_warp(barrier, lane);
        rematerialise(lane, z);
        if (inner()) {
            BUDDY_UNROLL
            for (u32 i = 0; i < CELLS; i++) {
                double value = __fma_rn(SIDE, cell(words, i), sums[i]);
                words[2 * i] = __double2loint(value), words[2 * i + 1] = __double2hiint(value);
            }
            to.store(tile_of(z - 1), first_entry(z), words);
        }
        nibble = warp::fetched_nibble(nibbles + warp, lane);
        __syncwarp();
        if (z + 1 < end) {
            from.fetch(tile_of(z + 2), first_entry(z + 2), nibble);
            from.fetch_nibbles(nibbles + warp, first_entry(z + 3), lane);
        }
    }
}

extern "C" __global__ void __launch_bounds__(WARPS* WARP, 1) stencil_fused(BuddyView from, BuddyView to, Grid grid) {
    stencil(Packed{from}, Packed{to}, grid);
}

extern "C" __global__ void __launch_bounds__(WARPS* WARP, 1) stencil_plain(double* from, double* to, Grid grid) {
    stencil(Plain{from}, Plain{to}, grid);
}

// The plain stencil as one would write it without us: two cells to a thread, and caches for the rest.
extern "C" __global__ void stencil_simple(const double* from, double* to, Grid grid) {
    u32 x = threadIdx.x * 2, y = blockIdx.x, z = blockIdx.y;
    u64 row = ((u64)z * grid.rows + y) * ROW_CELLS, at = row + x, plane = (u64)grid.rows * ROW_CELLS;
    double2 here = *(const double2*)(from + at);
    double left = x > 0 ? from[at - 1] : here.x, right = x + 2 < ROW_CELLS ? from[at + 2] : here.y;
    double2 a = *(const double2*)(from + (y > 0 ? at - ROW_CELLS : at));
    double2 b = *(const double2*)(from + (y + 1 < grid.rows ? at + ROW_CELLS : at));
    double2 d = *(const double2*)(from + (z > 0 ? at - plane : at));
    double2 u = *(const double2*)(from + (z + 1 < grid.planes ? at + plane : at));
    double first = __dadd_rn(__dadd_rn(__dadd_rn(left, here.y), __dadd_rn(a.x, b.x)), d.x);
    double second = __dadd_rn(__dadd_rn(__dadd_rn(here.x, right), __dadd_rn(a.y, b.y)), d.y);
    double2 out = make_double2(__fma_rn(SIDE, u.x, __fma_rn(SIDE, first, __dmul_rn(CENTRE, here.x))),
                               __fma_rn(SIDE, u.y, __fma_rn(SIDE, second, __dmul_rn(CENTRE, here.y))));
    __stcs((double2*)(to + at), out);
}
