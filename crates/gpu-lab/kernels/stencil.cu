// A 7-point stencil over doubles, from compressed memory to compressed memory (near64 at 2x). Rows
// have 512 cells; cells outside the grid equal the nearest edge cell. A block has some rows,
// computes all but the first and the last, and traverses the planes; a thread has four cells, a
// quarter of an entry, of a few rows.
#include "stencil_field.cuh"

namespace buddy {

// Rows per thread, and threads per block, set by Rust.
constexpr u32 DEEP = BUDDY_STENCIL_DEEP, THREADS = BUDDY_STENCIL_THREADS;
constexpr u32 ROWS = THREADS / QUADS * DEEP, INNER = ROWS - 2;
constexpr double CENTRE = 0.4, SIDE = 0.1;

struct Grid {
    u32 rows, planes;      // of the field
    u32 planes_per_block;
};

// Three planes rotate: below, here, above. Each thread has slots for its cells of a plane in
// flight, and stores its current cells for its neighbours. Cells 0 and 1 are separate from 2 and 3,
// to avoid bank conflicts.
struct Shared {
    uint4 slots[3][DEEP][THREADS];
    double2 low[3][ROWS][QUADS], high[3][ROWS][QUADS];
};

// A thread's cells of a plane.
struct Plane {
    Cells rows[DEEP];
};

// Sums all terms but the plane above; that cell is added last, so that its plane may still be in
// flight.
BUDDY_FN double next_without_above(double here, double left, double right, double front, double back, double below) {
    double sum = __dadd_rn(__dadd_rn(__dadd_rn(left, right), __dadd_rn(front, back)), below);
    return __fma_rn(SIDE, sum, __dmul_rn(CENTRE, here));
}
BUDDY_FN double add_above(double rest, double above) { return __fma_rn(SIDE, above, rest); }

BUDDY_FN void share(Shared& shared, u32 turn, u32 r, u32 c, const Plane& plane) {
    BUDDY_UNROLL
    for (u32 j = 0; j < DEEP; j++) {
        shared.low[turn][r + j][c] = make_double2(plane.rows[j].at(0), plane.rows[j].at(1));
        shared.high[turn][r + j][c] = make_double2(plane.rows[j].at(2), plane.rows[j].at(3));
    }
}

// Returns two cells of a row in front of row `r + j` or behind it: the thread's own, or those of a
// neighbour.
BUDDY_FN double2 two_of(const Plane& here, u32 j, u32 half) {
    return make_double2(here.rows[j].at(2 * half), here.rows[j].at(2 * half + 1));
}

// Sums row `r + j` over all neighbours except those above.
BUDDY_FN Cells gather(const Shared& shared, u32 turn, u32 r, u32 c, u32 j, const Plane& here, const Plane& below) {
    const auto &low = shared.low[turn], &high = shared.high[turn];
    const Cells &own = here.rows[j], &under = below.rows[j];
    u32 row = r + j;
    // A cell outside the grid equals the edge cell.
    double left = c > 0 ? high[row][c - 1].y : low[row][c].x, right = c + 1 < QUADS ? low[row][c + 1].x : high[row][c].y;
    double2 front = j > 0 ? two_of(here, j - 1, 0) : low[row - 1][c], back = j + 1 < DEEP ? two_of(here, j + 1, 0) : low[row + 1][c];
    Cells rest;
    rest.set(0, next_without_above(own.at(0), left, own.at(1), front.x, back.x, under.at(0)));
    rest.set(1, next_without_above(own.at(1), own.at(0), own.at(2), front.y, back.y, under.at(1)));
    front = j > 0 ? two_of(here, j - 1, 1) : high[row - 1][c], back = j + 1 < DEEP ? two_of(here, j + 1, 1) : high[row + 1][c];
    rest.set(2, next_without_above(own.at(2), own.at(1), own.at(3), front.x, back.x, under.at(2)));
    rest.set(3, next_without_above(own.at(3), own.at(2), right, front.y, back.y, under.at(3)));
    return rest;
}

// A thread's part of the grid; `place` is the index of its quads in a plane.
struct Part {
    const Field& from;
    Shared& shared;
    Grid grid;
    u32 place[DEEP];
    Plane planes[3];
    u32 kinds[3][DEEP];  // nibbles

    BUDDY_FN u32 quad(u32 z, u32 j) const { return (z < grid.planes ? z : grid.planes - 1) * (grid.rows * QUADS) + place[j]; }
    BUDDY_FN void ask(u32 turn, u32 z) {
        BUDDY_UNROLL
        for (u32 j = 0; j < DEEP; j++) {
            kinds[turn][j] = from.kinds(quad(z, j));
            from.fetch(&shared.slots[turn][j][threadIdx.x], quad(z, j));
        }
        cp_async_commit();
    }
    // Takes a plane that has arrived; frees its slots for plane `next`.
    BUDDY_FN void take(u32 turn, u32 z, u32 next) {
        cp_async_wait<2>();
        BUDDY_UNROLL
        for (u32 j = 0; j < DEEP; j++)
            planes[turn].rows[j] = from.take(shared.slots[turn][j][threadIdx.x], quad(z, j), kinds[turn][j]);
        ask(turn, next);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) stencil_fused(BuddyView source, BuddyView result, Grid grid) {
    BUDDY_DYNAMIC_SHARED(Shared, shared);
    const Field from = {source}, to = {result};
    const u32 r = threadIdx.x / QUADS * DEEP, c = threadIdx.x % QUADS, after = blockIdx.x * INNER + r;  // rows from `after - 1` on
    const u32 begin = blockIdx.y * grid.planes_per_block, wanted = begin + grid.planes_per_block;
    const u32 end = wanted < grid.planes ? wanted : grid.planes, before = begin == 0 ? 0 : begin - 1;
    Part part = {from, *shared, grid, {}, {}, {}};
    BUDDY_UNROLL
    for (u32 j = 0; j < DEEP; j++) {
        u32 row = after + j;
        part.place[j] = (row == 0 ? 0 : row > grid.rows ? grid.rows - 1 : row - 1) * QUADS + c;
    }
    part.ask(2, before), part.ask(0, begin), part.ask(1, begin + 1);
    part.take(2, before, begin + 2), part.take(0, begin, begin + 3);
    BUDDY_ROLLED
    for (u32 first = begin; first < end; first += 3) {
        BUDDY_UNROLL
        for (u32 turn = 0; turn < 3; turn++) {
            u32 z = first + turn;
            if (z >= end) break;
            const Plane &here = part.planes[turn], &below = part.planes[(turn + 2) % 3], &above = part.planes[(turn + 1) % 3];
            share(*shared, turn, r, c, here);
            part.take((turn + 1) % 3, z + 1, z + 4);
            __syncthreads();
            BUDDY_UNROLL
            for (u32 j = 0; j < DEEP; j++) {
                if (r + j == 0 || r + j == ROWS - 1 || after + j > grid.rows) continue;
                Cells next = gather(*shared, turn, r, c, j, here, below);
                BUDDY_UNROLL
                for (u32 i = 0; i < 4; i++) next.set(i, add_above(next.at(i), above.rows[j].at(i)));
                to.put(part.quad(z, j), next);
            }
        }
    }
    cp_async_wait<0>();
}

// A conventional plain stencil: two cells per thread, which traverses the planes; rows are in L1.
extern "C" __global__ void __launch_bounds__(1024) stencil_simple(const double* from, double* to, Grid grid) {
    constexpr u32 CELLS = 4 * QUADS;
    u32 x = threadIdx.x % 256 * 2, y = blockIdx.x * 4 + threadIdx.x / 256, begin = blockIdx.y * grid.planes_per_block;
    if (y >= grid.rows) return;
    u32 wanted = begin + grid.planes_per_block, end = wanted < grid.planes ? wanted : grid.planes;
    u64 plane = (u64)grid.rows * CELLS, at = begin * plane + (u64)y * CELLS + x;
    u64 in_front = y > 0 ? at - CELLS : at, behind = y + 1 < grid.rows ? at + CELLS : at;
    u64 left = x > 0 ? at - 1 : at, right = x + 2 < CELLS ? at + 2 : at + 1;
    double2 here = *(const double2*)(from + at), below = begin > 0 ? *(const double2*)(from + at - plane) : here;
    for (u32 z = begin; z < end; z++) {
        u64 step = (z - begin) * plane;
        double2 above = z + 1 < grid.planes ? *(const double2*)(from + at + step + plane) : here;
        double2 front = *(const double2*)(from + in_front + step), back = *(const double2*)(from + behind + step);
        double first = next_without_above(here.x, from[left + step], here.y, front.x, back.x, below.x);
        double second = next_without_above(here.y, here.x, from[right + step], front.y, back.y, below.y);
        __stcs((double2*)(to + at + step), make_double2(add_above(first, above.x), add_above(second, above.y)));
        below = here, here = above;
    }
}

}  // namespace buddy
