// y = A x with a sparse matrix in CSR form, whose values and columns are plain or in a layout of
// matrix.cuh; x is gathered at random from plain memory. Several lanes share a row, four elements
// per lane at a time. The lane of an element and the order of additions are the same in every
// layout, so that sums are bit-identical.
#include "fill.cuh"
#include "matrix.cuh"

namespace buddy {

// Lanes per row, set by Rust.
constexpr u32 LANES = BUDDY_SPMV_LANES;
constexpr u32 BLOCK = 256;

struct Matrix {
    const u32* starts;  // first element of each row, and the end
    u32 rows, columns;
};

template <class Values, class Columns>
BUDDY_FN void spmv(const Values& values, const Columns& columns, const Matrix& matrix, const double* x, double* y) {
    __shared__ double table[256];
    values.prepare(table);
    u32 row = (blockIdx.x * BLOCK + threadIdx.x) / LANES, lane = threadIdx.x % LANES;
    bool mine = row < matrix.rows;
    u32 begin = mine ? matrix.starts[row] : 0, end = mine ? matrix.starts[row + 1] : 0;
    double sum = 0;
    for (u32 at = begin / 4 * 4 + lane * 4; at < end; at += LANES * 4) {
        Columns4 c = columns.load(at);
        Values4 v = values.load(at, table);
        // All four gathers are in flight before the first is used.
        double gathered[4];
        BUDDY_UNROLL
        for (u32 i = 0; i < 4; i++) gathered[i] = at + i >= begin && at + i < end ? __ldg(x + c.at[i]) : 0.0;
        BUDDY_UNROLL
        for (u32 i = 0; i < 4; i++) sum = at + i >= begin && at + i < end ? __fma_rn(v.at[i], gathered[i], sum) : sum;
    }
    BUDDY_UNROLL
    for (u32 step = LANES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (mine && lane == 0) y[row] = sum;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    spmv_narrow(NarrowValues values, OffsetColumns columns, Matrix matrix, const double* x, double* y) {
    spmv(values, columns, matrix, x, y);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    spmv_table(TableValues values, OffsetColumns columns, Matrix matrix, const double* x, double* y) {
    spmv(values, columns, matrix, x, y);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    spmv_plain(PlainValues values, PlainColumns columns, Matrix matrix, const double* x, double* y) {
    spmv(values, columns, matrix, x, y);
}

// A conventional plain kernel: one warp per row.
extern "C" __global__ void spmv_simple(const double* values, const u32* columns, Matrix matrix, const double* x, double* y) {
    u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= matrix.rows) return;
    u32 end = matrix.starts[row + 1];
    double sum = 0;
    for (u32 at = matrix.starts[row] + lane; at < end; at += 32) sum += __ldcs(values + at) * __ldg(x + __ldcs(columns + at));
    for (u32 step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0) y[row] = sum;
}

// Returns an index in `others` for an entry that does not fit, if there is room; counts all.
BUDDY_FN bool other(u64* count, u32 room, u32& number) {
    number = (u32)atomicAdd(count, 1ull);
    return number < room;
}

// Packs, one thread per entry.
extern "C" __global__ void pack_columns(const u32* columns, OffsetColumns to, u32 entries, u32 room, u64* count) {
    u32 e = blockIdx.x * blockDim.x + threadIdx.x, number;
    if (e >= entries) return;
    const u32* from = columns + (u64)e * MATRIX_ENTRY;
    if (OffsetColumns::pack(from, to.low + (u64)e * MATRIX_ENTRY, to.high + (u64)e * MATRIX_ENTRY, to.bases[e])) return;
    if (!other(count, room, number)) return;
    to.bases[e] = OffsetColumns::OTHER | number;
    for (u32 i = 0; i < MATRIX_ENTRY; i++) to.others[(u64)number * MATRIX_ENTRY + i] = from[i];
}

extern "C" __global__ void pack_narrow(const double* values, NarrowValues to, u32 entries, u32 room, u64* count) {
    u32 e = blockIdx.x * blockDim.x + threadIdx.x, number;
    if (e >= entries) return;
    const double* from = values + (u64)e * MATRIX_ENTRY;
    to.kinds[e] = 0;
    if (NarrowValues::pack(from, to.narrow + (u64)e * MATRIX_ENTRY)) return;
    if (!other(count, room, number)) return;
    to.kinds[e] = number + 1;
    for (u32 i = 0; i < MATRIX_ENTRY; i++) to.others[(u64)number * MATRIX_ENTRY + i] = from[i];
}

// The table is sorted and has `used` values; counts values that are not in it.
extern "C" __global__ void pack_table(const double* values, TableValues to, u32 used, u32 elements, u64* missing) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x, low = 0, high = used;
    if (at >= elements) return;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (to.table[middle] < values[at]) low = middle + 1;
        else high = middle;
    }
    to.places[at] = (u8)low;
    if (low >= used || to.table[low] != values[at]) atomicAdd(missing, 1ull);
}

// Fills the first elements of rows: `mean` elements per row on average, half to one and a half
// times as many each; the total is exact.
extern "C" __global__ void spmv_fill_starts(u32* starts, u32 rows, u32 mean) {
    u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row > rows) return;
    starts[row] = row * mean + (row == 0 || row == rows ? 0 : (u32)(mix(row) % (mean / 2)) - mean / 4);
}

// Columns: a random one in each of as many equal strips as the row has elements. Values: one of
// `different` doubles that are no floats; or, if that is zero, normal floats.
extern "C" __global__ void spmv_fill(double* values, u32* columns, Matrix matrix, u32 different) {
    u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= matrix.rows) return;
    u32 begin = matrix.starts[row], end = matrix.starts[row + 1];
    for (u32 at = begin + lane; at < end; at += 32) {
        u64 random = mix(at);
        double place = (at - begin + (random >> 40) * (1.0 / 16777216)) / (end - begin);
        u32 column = (u32)(place * matrix.columns);
        columns[at] = column < matrix.columns ? column : matrix.columns - 1;
        u64 again = mix(random);
        values[at] = different == 0 ? normal(again) : 0.5 + (double)(again % different) / 7.0;
    }
}

extern "C" __global__ void spmv_fill_vector(double* x, u32 columns) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < columns) x[at] = normal(mix(at + (1ull << 40)));
}

// Counts the rows whose sum differs from the plain one by more than rounding.
extern "C" __global__ void spmv_check(const double* values, const u32* columns, Matrix matrix, const double* x, const double* y, u64* wrong) {
    u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= matrix.rows) return;
    double sum = 0, size = 0;
    for (u32 at = matrix.starts[row]; at < matrix.starts[row + 1]; at++) {
        double term = values[at] * x[columns[at]];
        sum += term, size += fabs(term);
    }
    if (!(fabs(y[row] - sum) <= 1e-13 * size)) atomicAdd(wrong, 1ull);
}

}  // namespace buddy
