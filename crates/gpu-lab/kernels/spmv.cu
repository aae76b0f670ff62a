// y = A x with a sparse matrix in CSR form: values (doubles) and columns in compressed memory, x gathered at random from
// plain memory. A warp takes some rows and walks through their elements, 1024 at a time: 32 entries of columns and 64 of
// values. The lane of an element is its number modulo 32, here as in plain memory, so both give the same sums.
#include "buddy_device.cuh"
#include "fill.cuh"

using namespace buddy;

// From Rust: warps of a block, gathers of a lane that are on their way at once.
constexpr u32 WARPS = BUDDY_SPMV_WARPS, AT_ONCE = BUDDY_SPMV_AT_ONCE;
constexpr u32 CHUNK_ELEMENTS = WARP * WORDS;

struct Matrix {
    const u32* starts;  // of each row, and the end
    u32 rows, columns;
    u32 rows_per_warp;
};

struct Packed {
    BuddyView values, columns;

    // Elements from 1024 * chunk on into three tiles: columns, and twice values.
    BUDDY_FN void load(u64 chunk, const Tile (&tiles)[3]) const {
        u64 column = chunk * WARP, value = chunk * (2 * WARP);
        u32 nibbles[3] = {nibble_of(columns, column), nibble_of(values, value), nibble_of(values, value + WARP)};
        warp::fetch_entries(columns, tiles[0], column, nibbles[0]);
        warp::fetch_entries(values, tiles[1], value, nibbles[1]);
        warp::fetch_entries(values, tiles[2], value + WARP, nibbles[2]);
        cp_async_wait_warp();
        warp::decode_entry<Bpc>(columns, tiles[0], column + tiles[0].lane, nibbles[0]);
        warp::decode_entry<Planes64>(values, tiles[1], value + tiles[1].lane, nibbles[1]);
        warp::decode_entry<Planes64>(values, tiles[2], value + WARP + tiles[2].lane, nibbles[2]);
        __syncwarp();
    }

    // The last tile may end past the buffer.
    static BUDDY_FN u32 nibble_of(const BuddyView& view, u64 first) {
        return load_nibble(view.memory, first + threadIdx.x % WARP, first + threadIdx.x % WARP < view.memory.entries);
    }
};

struct Plain {
    const double* values;
    const u32* columns;
    u64 elements;

    BUDDY_FN void load(u64 chunk, const Tile (&tiles)[3]) const {
        fetch_some(tiles[0], (const uint4*)columns, chunk * WARP, elements / WORDS);
        fetch_some(tiles[1], (const uint4*)values, chunk * (2 * WARP), elements / (WORDS / 2));
        fetch_some(tiles[2], (const uint4*)values, chunk * (2 * WARP) + WARP, elements / (WORDS / 2));
        cp_async_wait_warp();
    }

    static BUDDY_FN void fetch_some(const Tile& tile, const uint4* from, u64 first, u64 entries) {
        u32 active = first >= entries ? 0 : entries - first >= WARP ? ALL : ALL >> (WARP - (u32)(entries - first));
        fetch_plain(tile, from + first * CHUNKS, active);
    }
};

// Element `i * 32 + lane` of the chunk: its column, and where its value lies.
BUDDY_FN u32 column_of(const Tile& tile, u32 i) { return ((const u32*)tile.at(i, tile.lane / 4))[tile.lane % 4]; }

// The two tiles of values follow each other.
BUDDY_FN double* value_at(const Tile& values, u32 i) {
    return (double*)values.at(2 * i + values.lane / 16, values.lane % 16 / 2) + values.lane % 2;
}

template <class Source>
BUDDY_FN void spmv(const Source& source, const Matrix& matrix, const double* x, double* y) {
    __shared__ __align__(128) uint4 chunks[WARPS * 3 * WARP * CHUNKS];
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint4* mine = chunks + warp * (3 * WARP * CHUNKS);
    const Tile tiles[3] = {{mine, lane}, {mine + WARP * CHUNKS, lane}, {mine + 2 * WARP * CHUNKS, lane}};
    u32 row = (blockIdx.x * WARPS + warp) * matrix.rows_per_warp, rows_end = min(row + matrix.rows_per_warp, matrix.rows);
    if (row >= matrix.rows) return;
    u32 begin = matrix.starts[row], end = matrix.starts[rows_end], row_end = matrix.starts[row + 1];
    double sum = 0;
    for (u32 chunk = begin / CHUNK_ELEMENTS; chunk * CHUNK_ELEMENTS < end; chunk++) {
        u32 base = chunk * CHUNK_ELEMENTS, limit = min(end - base, CHUNK_ELEMENTS);
        source.load(chunk, tiles);
        // All gathers of a batch are on their way before the first is used.
#pragma unroll 1
        for (u32 i = 0; i < WARP; i += AT_ONCE) {
            double gathered[AT_ONCE];
            BUDDY_UNROLL
            for (u32 k = 0; k < AT_ONCE; k++) {
                u32 element = base + (i + k) * WARP + lane;
                gathered[k] = element >= begin && element < end ? __ldg(x + column_of(tiles[0], i + k)) : 0;
            }
            BUDDY_UNROLL
            for (u32 k = 0; k < AT_ONCE; k++) *value_at(tiles[1], i + k) *= gathered[k];
        }
        u32 from = begin > base ? begin - base : 0;
        while (row < rows_end) {
            u32 to = min(row_end - base, limit);
            for (u32 at = from + ((lane - from) & (WARP - 1)); at < to; at += WARP) sum += *value_at(tiles[1], at / WARP);
            if (row_end - base > limit) break;
            for (u32 step = WARP / 2; step > 0; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
            if (lane == 0) y[row] = sum;
            sum = 0, row++, from = to;
            if (row < rows_end) row_end = matrix.starts[row + 1];
            if (from == limit && row_end - base != limit) break;
        }
        __syncwarp();
    }
    // Rows at the end that hold nothing.
    for (; row < rows_end; row++) {
        if (lane == 0) y[row] = 0;
    }
}

extern "C" __global__ void __launch_bounds__(WARPS* WARP)
    spmv_fused(BuddyView values, BuddyView columns, Matrix matrix, const double* x, double* y) {
    spmv(Packed{values, columns}, matrix, x, y);
}

extern "C" __global__ void __launch_bounds__(WARPS* WARP)
    spmv_plain(const double* values, const u32* columns, u64 elements, Matrix matrix, const double* x, double* y) {
    spmv(Plain{values, columns, elements}, matrix, x, y);
}

// The plain product as one would write it without us: a warp to a row.
extern "C" __global__ void spmv_simple(const double* values, const u32* columns, Matrix matrix, const double* x, double* y) {
    u32 row = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (row >= matrix.rows) return;
    u32 end = matrix.starts[row + 1];
    double sum = 0;
#pragma unroll 4
    for (u32 at = matrix.starts[row] + lane; at < end; at += WARP) sum += __ldcs(values + at) * __ldg(x + __ldcs(columns + at));
    for (u32 step = WARP / 2; step > 0; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
    if (lane == 0) y[row] = sum;
}

// Where rows begin: `mean` elements each on average, half as many to one and a half times as many; the total is exact.
extern "C" __global__ void spmv_fill_starts(u32* starts, u32 rows, u32 mean) {
    u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row > rows) return;
    starts[row] = row * mean + (row == 0 || row == rows ? 0 : (u32)(mix(row) % (mean / 2)) - mean / 4);
}

// Columns: one at random in each of as many equal strips as the row has elements. Values: normal, of single precision.
extern "C" __global__ void spmv_fill(double* values, u32* columns, Matrix matrix) {
    u32 row = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (row >= matrix.rows) return;
    u32 begin = matrix.starts[row], end = matrix.starts[row + 1];
    for (u32 at = begin + lane; at < end; at += WARP) {
        u64 random = mix(at);
        double place = (at - begin + (random >> 40) * (1.0 / 16777216)) / (end - begin);
        columns[at] = min((u32)(place * matrix.columns), matrix.columns - 1);
        values[at] = normal(mix(random));
    }
}

extern "C" __global__ void spmv_fill_vector(double* x, u32 columns) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < columns) x[at] = normal(mix(at + (1ull << 40)));
}

// Counts rows whose sum is further from the plain one than rounding explains.
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
