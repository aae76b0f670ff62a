// Conjugate gradients for one implicit step of heat conduction in a cube of n^3 cells with cold
// walls: 27 on the diagonal, -1 for each of the 26 neighbours. The matrix is in CSR form with 27
// elements per row; elements beyond the walls are zeros in the row's own column. It is plain, or in
// layouts of matrix.cuh: one byte per value, three per column. All sums have a fixed order, so that
// both give bit-identical results.
#include "matrix.cuh"
#include "shared.cuh"

namespace buddy {

// A block has one row per thread, and loads their elements, whole entries, to shared memory, so
// that neighbouring threads gather neighbouring cells.
constexpr u32 ROW = 27, BLOCK = 128, TILE = BLOCK * ROW;
constexpr double DIAGONAL = 27, NEIGHBOUR = -1;

struct Cube {
    u32 n;

    BUDDY_FN u64 rows() const { return (u64)n * n * n; }
    // Elements, rounded up to a whole entry.
    BUDDY_FN u64 elements() const { return (rows() * ROW + MATRIX_ENTRY - 1) / MATRIX_ENTRY * MATRIX_ENTRY; }

    // Finds the cell at an offset of -1, 0 or 1 along each axis; returns false outside the cube.
    BUDDY_FN bool neighbour(u64 cell, int i, int j, int k, u64& there) const {
        u32 x = (u32)(cell % n), y = (u32)(cell / n % n), z = (u32)(cell / n / n);
        there = cell + i + (long long)j * n + (long long)k * n * n;
        return x + i < n && y + j < n && z + k < n;
    }
    // An element's column, and its value's index in the table: 0, NEIGHBOUR, DIAGONAL. Zeros past
    // the last row.
    BUDDY_FN void element(u64 at, u32& column, u32& place) const {
        u64 row = at / ROW < rows() ? at / ROW : rows() - 1, there;
        int k = (int)(at % ROW);
        bool inside = neighbour(row, k % 3 - 1, k / 3 % 3 - 1, k / 9 - 1, there) && at / ROW < rows();
        column = (u32)(inside ? there : row), place = !inside ? 0 : k == ROW / 2 ? 2 : 1;
    }
    // The right-hand side: a hot ball in a cold cube, at uneven temperature.
    BUDDY_FN double heat(u64 cell) const {
        long long x = 2 * (long long)(cell % n) - n, y = 2 * (long long)(cell / n % n) - n, z = 2 * (long long)(cell / n / n) - n;
        bool hot = 4 * (x * x + y * y + z * z) < (long long)n * n;
        return hot ? 1.0 + (double)(cell * 2654435761u % 1024) / 4096 : 0.0;
    }
};

// Builds the packed matrix in place, one thread per entry; counts columns that do not fit.
extern "C" __global__ void cg_make_packed(Cube cube, TableValues values, OffsetColumns columns, u64* others) {
    u64 e = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (e * MATRIX_ENTRY >= cube.elements()) return;
    u32 wide[MATRIX_ENTRY];
    for (u32 i = 0; i < MATRIX_ENTRY; i++) {
        u32 place;
        cube.element(e * MATRIX_ENTRY + i, wide[i], place);
        values.places[e * MATRIX_ENTRY + i] = (u8)place;
    }
    bool fits = OffsetColumns::pack(wide, columns.low + e * MATRIX_ENTRY, columns.high + e * MATRIX_ENTRY, columns.bases[e]);
    if (!fits) atomicAdd(others, 1ull);
}

extern "C" __global__ void cg_make_plain(Cube cube, double* values, u32* columns) {
    u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (at >= cube.elements()) return;
    u32 place;
    cube.element(at, columns[at], place);
    values[at] = place == 2 ? DIAGONAL : place == 1 ? NEIGHBOUR : 0;
}

// Numbers of the iteration: r.r, p.Ap, and r.r after it.
struct State {
    double rr, pap, rr_next;
};

// Sums a block's numbers, in a fixed order, to `partial[block]`.
BUDDY_FN void block_sum(double sum, double* partial) {
    __shared__ double parts[BLOCK / 32];
    BUDDY_UNROLL
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    double all = 0;
    for (u32 i = 0; i < BLOCK / 32; i++) all += parts[i];
    partial[blockIdx.x] = all;
}

// Calls `use` for a thread's cells, one after the other.
template <class Use>
BUDDY_FN void each_cell(u64 cells, Use use) {
    for (u64 i = blockIdx.x * (u64)BLOCK + threadIdx.x; i < cells; i += (u64)gridDim.x * BLOCK) use(i);
}

// One block: sums the partial sums of a kernel's blocks.
extern "C" __global__ void cg_sum(const double* partial, u32 count, double* to) {
    double sum = 0;
    for (u32 i = threadIdx.x; i < count; i += BLOCK) sum += partial[i];
    block_sum(sum, to);
}

// x = 0, r = p = b.
extern "C" __global__ void __launch_bounds__(BLOCK) cg_begin(Cube cube, double* x, double* r, double* p, double* partial) {
    double sum = 0;
    each_cell(cube.rows(), [&](u64 i) {
        double b = cube.heat(i);
        x[i] = 0, r[i] = b, p[i] = b, sum = __fma_rn(b, b, sum);
    });
    block_sum(sum, partial);
}

// Copies contiguous bytes to shared memory with all threads.
template <u32 BYTES>
BUDDY_FN void bring(void* to, const void* from) {
    static_assert(BYTES % 16 == 0, "whole copies");
    for (u32 at = threadIdx.x * 16; at < BYTES; at += BLOCK * 16) cp_async<16>((u8*)to + at, (const u8*)from + at);
}

// A tile of the packed matrix.
struct PackedTile {
    __align__(16) unsigned short low[TILE];
    __align__(16) u8 high[TILE], places[TILE];
    __align__(16) u32 bases[TILE / MATRIX_ENTRY];
    double table[256];

    BUDDY_FN void prepare(const TableValues& values, const OffsetColumns&) { values.prepare(table); }
    BUDDY_FN void fetch(const TableValues& values, const OffsetColumns& columns, u64 first) {
        bring<sizeof low>(low, columns.low + first), bring<sizeof high>(high, columns.high + first);
        bring<sizeof places>(places, values.places + first), bring<sizeof bases>(bases, columns.bases + first / MATRIX_ENTRY);
    }
    BUDDY_FN u32 column(u32 at) const { return bases[at / MATRIX_ENTRY] + ((u32)high[at] << 16 | low[at]); }
    BUDDY_FN double value(u32 at) const { return table[places[at]]; }
};

// A tile of the plain matrix.
struct PlainTile {
    __align__(16) double values[TILE];
    __align__(16) u32 columns[TILE];

    BUDDY_FN void prepare(const PlainValues&, const PlainColumns&) {}
    BUDDY_FN void fetch(const PlainValues& from, const PlainColumns& from_columns, u64 first) {
        bring<sizeof values>(values, from.values + first), bring<sizeof columns>(columns, from_columns.columns + first);
    }
    BUDDY_FN u32 column(u32 at) const { return columns[at]; }
    BUDDY_FN double value(u32 at) const { return values[at]; }
};

// q = A p, and partial sums of p.q.
template <class Tile, class Values, class Columns>
BUDDY_FN void product(const Values& values, const Columns& columns, const Cube& cube, const double* p, double* q, double* partial) {
    __shared__ Tile tile;
    tile.prepare(values, columns);
    const u64 rows = cube.rows();
    double dot = 0;
    for (u64 first = blockIdx.x * (u64)BLOCK; first < rows; first += (u64)gridDim.x * BLOCK) {
        tile.fetch(values, columns, first * ROW);
        cp_async_commit(), cp_async_wait<0>();
        __syncthreads();
        u64 row = first + threadIdx.x;
        double sum = 0;
        BUDDY_UNROLL
        for (u32 k = 0; k < ROW; k++) {
            u32 at = threadIdx.x * ROW + k;
            if (row < rows) sum = __fma_rn(tile.value(at), __ldg(p + tile.column(at)), sum);
        }
        if (row < rows) q[row] = sum, dot = __fma_rn(sum, p[row], dot);
        __syncthreads();
    }
    block_sum(dot, partial);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    cg_product_packed(TableValues values, OffsetColumns columns, Cube cube, const double* p, double* q, double* partial) {
    product<PackedTile>(values, columns, cube, p, q, partial);
}
extern "C" __global__ void __launch_bounds__(BLOCK)
    cg_product_plain(PlainValues values, PlainColumns columns, Cube cube, const double* p, double* q, double* partial) {
    product<PlainTile>(values, columns, cube, p, q, partial);
}

// x += a p, r -= a q, and partial sums of r.r.
extern "C" __global__ void __launch_bounds__(BLOCK)
    cg_update(u64 rows, const State* state, double* x, double* r, const double* p, const double* q, double* partial) {
    double a = state->rr / state->pap, sum = 0;
    each_cell(rows, [&](u64 i) {
        x[i] = __fma_rn(a, p[i], x[i]);
        r[i] = __fma_rn(-a, q[i], r[i]), sum = __fma_rn(r[i], r[i], sum);
    });
    block_sum(sum, partial);
}

// p = r + b p.
extern "C" __global__ void __launch_bounds__(BLOCK) cg_direction(u64 rows, const State* state, const double* r, double* p) {
    double b = state->rr_next / state->rr;
    each_cell(rows, [&](u64 i) { p[i] = __fma_rn(b, p[i], r[i]); });
}
extern "C" __global__ void cg_next(State* state) { state->rr = state->rr_next; }

// Partial sums of |b - Ax|^2, with A computed from its definition instead of its storage: checks
// the solver and the matrix.
extern "C" __global__ void __launch_bounds__(BLOCK) cg_residual(Cube cube, const double* x, double* partial) {
    double all = 0;
    each_cell(cube.rows(), [&](u64 cell) {
        double sum = DIAGONAL * x[cell];
        for (int k = 0; k < (int)ROW; k++) {
            u64 there;
            bool inside = cube.neighbour(cell, k % 3 - 1, k / 3 % 3 - 1, k / 9 - 1, there);
            if (inside && k != ROW / 2) sum = __fma_rn(NEIGHBOUR, x[there], sum);
        }
        double rest = cube.heat(cell) - sum;
        all = __fma_rn(rest, rest, all);
    });
    block_sum(all, partial);
}

}  // namespace buddy
