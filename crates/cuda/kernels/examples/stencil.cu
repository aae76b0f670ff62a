// A 7-point stencil over doubles, from compressed memory into compressed memory. A row of 512 cells is 32 entries: one
// warp's tile. A block takes some rows and walks through the planes; of three planes in shared memory one is being
// fetched, one decoded, one used. Beyond the edge of the grid lies the edge again.
#include "buddy_device.cuh"

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
    BUDDY_FN void fetch(const Tile& tile, u64 first, u32) const { fetch_plain(tile, (const uint4*)cells + first * CHUNKS, ALL); }
    BUDDY_FN void load(const Tile& tile, u64, u32, u32 (&words)[WORDS]) const { Row(tile).load_all(words); }
    BUDDY_FN void store(const Tile& tile, u64 first, u32 (&words)[WORDS]) const {
        Row(tile).store_all(words);
        put_plain(tile, (uint4*)cells + first * CHUNKS, ALL);
    }
};

BUDDY_FN double cell(const u32 (&words)[WORDS], u32 i) { return __hiloint2double(words[2 * i + 1], words[2 * i]); }

// Two cells of this lane's row.
BUDDY_FN double2 load_cells(const Row& row, u32 chunk) {
    uint4 v = row.load_chunk(chunk);
    return make_double2(__hiloint2double(v.y, v.x), __hiloint2double(v.w, v.z));
}

// All but the plane above, of this lane's 16 cells. `below` is the plane below, and becomes the result.
BUDDY_FN void add_neighbours(const u32 (&here)[WORDS], const Row& before, const Row& after, u32 lane, double (&below)[CELLS]) {
    double left = __shfl_up_sync(ALL, cell(here, CELLS - 1), 1), right = __shfl_down_sync(ALL, cell(here, 0), 1);
    if (lane == 0) left = cell(here, 0);
    if (lane == WARP - 1) right = cell(here, CELLS - 1);
    BUDDY_UNROLL
    for (u32 c = 0; c < CHUNKS; c++) {
        double2 a = load_cells(before, c), b = load_cells(after, c);
        BUDDY_UNROLL
        for (u32 k = 0; k < 2; k++) {
            u32 i = 2 * c + k;
            double x = __dadd_rn(i > 0 ? cell(here, i - 1) : left, i + 1 < CELLS ? cell(here, i + 1) : right);
            double sum = __dadd_rn(__dadd_rn(x, k == 0 ? __dadd_rn(a.x, b.x) : __dadd_rn(a.y, b.y)), below[i]);
            below[i] = __fma_rn(SIDE, sum, __dmul_rn(CENTRE, cell(here, i)));
        }
    }
}

template <class Field>
BUDDY_FN void stencil(const Field& from, const Field& to, const Grid& grid) {
    extern __shared__ __align__(128) uint4 chunks[];
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    // Of a warp's three tiles one is read by neighbours, one holds the plane above, and one is for what is written and
    // then for what is fetched.
    auto tile_at = [&](u32 plane, u32 warp) { return Tile{chunks + (plane * WARPS + warp) * (WARP * CHUNKS), lane}; };
    int row = (int)(blockIdx.x * INNER + warp) - 1, y = min(max(row, 0), (int)grid.rows - 1);
    bool inner = warp > 0 && warp < WARPS - 1 && row < (int)grid.rows;
    int begin = blockIdx.y * grid.planes_per_block, end = min(begin + grid.planes_per_block, grid.planes);
    auto first_entry = [&](int z) { return ((u64)min(max(z, 0), (int)grid.planes - 1) * grid.rows + y) * ROW_ENTRIES; };
    u32 spare = 0, here = 1, above = 2;
    u32 nibbles[3] = {from.nibble(first_entry(begin - 1)), from.nibble(first_entry(begin)), from.nibble(first_entry(begin + 1))};
    from.fetch(tile_at(spare, warp), first_entry(begin - 1), nibbles[0]);
    from.fetch(tile_at(here, warp), first_entry(begin), nibbles[1]);
    arrive();
    from.fetch(tile_at(above, warp), first_entry(begin + 1), nibbles[2]);
    u32 words[WORDS];
    double cells[CELLS];
    from.load(tile_at(spare, warp), first_entry(begin - 1), nibbles[0], words);
    BUDDY_UNROLL
    for (u32 i = 0; i < CELLS; i++) cells[i] = cell(words, i);
    from.load(tile_at(here, warp), first_entry(begin), nibbles[1], words);
    u32 nibble = nibbles[2], next = from.nibble(first_entry(begin + 2));
    __syncthreads();
    // `cells` is the plane below, `words` this one.
#pragma unroll 1
    for (int z = begin; z < end; z++) {
        if (inner) add_neighbours(words, Row(tile_at(here, warp - 1)), Row(tile_at(here, warp + 1)), lane, cells);
        arrive();
        from.load(tile_at(above, warp), first_entry(z + 1), nibble, words);
        if (inner) {
            u32 out[WORDS];
            BUDDY_UNROLL
            for (u32 i = 0; i < CELLS; i++) {
                double value = __fma_rn(SIDE, cell(words, i), cells[i]);
                out[2 * i] = __double2loint(value), out[2 * i + 1] = __double2hiint(value);
            }
            to.store(tile_at(spare, warp), first_entry(z), out);
            // This row is the one below the next; it lies in its tile still.
            BUDDY_UNROLL
            for (u32 c = 0; c < CHUNKS; c++) {
                double2 v = load_cells(Row(tile_at(here, warp)), c);
                cells[2 * c] = v.x, cells[2 * c + 1] = v.y;
            }
        }
        __syncwarp();
        if (z + 1 < end) from.fetch(tile_at(spare, warp), first_entry(z + 2), next);
        nibble = next;
        if (z + 2 < end) next = from.nibble(first_entry(z + 3));
        u32 free = spare;
        spare = here, here = above, above = free;
        __syncthreads();
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
