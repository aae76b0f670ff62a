// y = A x with a packed sparse matrix (`crates/codec/src/csr`), for up to eight columns of x and y,
// which lie beside each other. For every GPU.
//
// A CTA takes a tile, a thread a segment of a row. Elements are stored in jagged order: lanes decode
// neighbouring codes, and gather neighbouring values of x where rows are alike. A thread adds its
// elements in the row's order, without fused operations, as the CPU does; sums of a row's segments
// are added in order by one thread. Results are those of the CPU, bit for bit.
#include "bits.cuh"

using namespace buddy;

namespace {

constexpr u32 SEGMENTS = 128, AHEAD = 4;
constexpr u8 RELATIVE = 1, SEVERAL = 2;

// `CsrTile` of Rust, which documents it.
struct CsrTile {
    u64 payload, value_base;
    u32 counts[2];
    u32 first_row, column_base, part;
    unsigned short elements, value_codes;
    u8 segments, longest, row_bits, column_bits, value_bits, value_shift, column_codes, flags;
};
static_assert(sizeof(CsrTile) == 48, "the struct of Rust");

// A row that lies in several tiles.
struct CsrJoin {
    u32 row, first, parts;
};

struct CsrProduct {
    const CsrTile* tiles;
    const u8* payload;
    const CsrJoin* joins;
    const void* x;
    void* y;
    void* parts;  // sums of the parts of joined rows
    u32 columns, joined;
};

// Code `at` of an array of codes of up to 32 bits. Reads the word behind it too.
BUDDY_FN u32 narrow_code(const u32* words, u32 at, u32 bits) {
    u32 bit = at * bits;
    return funnel_right(__ldg(words + bit / 32), __ldg(words + bit / 32 + 1), bit) & (u32)((1ull << bits) - 1);
}
// The same for fewer than 64 bits. Reads two words behind it.
BUDDY_FN u64 wide_code(const u32* words, u32 at, u32 bits) {
    u32 bit = at * bits;
    const u32* from = words + bit / 32;
    u32 middle = __ldg(from + 1);
    u64 code = (u64)funnel_right(middle, __ldg(from + 2), bit) << 32 | funnel_right(__ldg(from), middle, bit);
    return code & ((1ull << bits) - 1);
}

BUDDY_FN double of_bits(u64 bits, double) { return __longlong_as_double((long long)bits); }
BUDDY_FN float of_bits(u64 bits, float) { return __uint_as_float((u32)bits); }
BUDDY_FN double add_product(double sum, double a, double b) { return __dadd_rn(sum, __dmul_rn(a, b)); }
BUDDY_FN float add_product(float sum, float a, float b) { return __fadd_rn(sum, __fmul_rn(a, b)); }
BUDDY_FN double add(double a, double b) { return __dadd_rn(a, b); }
BUDDY_FN float add(float a, float b) { return __fadd_rn(a, b); }

BUDDY_FN u32 room(u32 count, u32 bits) { return (count * bits + 63) / 64 * 8; }

// The three codings of a tile's values.
template <class V>
struct RawValues {
    const V* values;
    BUDDY_FN V load(u32 at) const { return __ldcs(values + at); }
};
template <class V>
struct TabledValues {
    const u32* codes;
    const V* table;
    u32 bits;
    BUDDY_FN V load(u32 at) const { return __ldg(table + narrow_code(codes, at, bits)); }
};
template <class V>
struct OffsetValues {
    const u32* codes;
    u64 base;
    u32 bits, shift;
    BUDDY_FN V load(u32 at) const {
        u64 code = wide_code(codes, at, bits);
        return of_bits((base + (code >> 1 << shift)) | (code & 1) << (8 * sizeof(V) - 1), V());
    }
};

struct Columns {
    const u32* codes;
    const u32* table;  // null without
    u32 bits, base;    // base: the row too, if columns are relative to it
    BUDDY_FN u32 load(u32 at) const {
        u32 code = narrow_code(codes, at, bits);
        return base + (table ? __ldg(table + code) : code);
    }
};

// Adds the elements of this thread's segment.
template <class V, u32 K, class Values>
BUDDY_FN void add_segment(const Values& values, const Columns& columns, const CsrTile& tile, const u32* counts, const V* x, u32 width, V (&sums)[K]) {
    constexpr u32 STEP = K >= AHEAD ? 1 : AHEAD / K;
    u32 at = threadIdx.x, longer = tile.counts[0], next = tile.counts[1];
    BUDDY_ROLLED
    for (u32 k = 0; k < tile.longest; k += AHEAD) {
        // Counts are loaded two rounds ahead, so that codes do not wait for them.
        u32 later = k + 2 * AHEAD < tile.longest ? __ldg(counts + k / AHEAD) : 0;
        // Segments are sorted by length.
        if (threadIdx.x >= (longer & 255)) return;
        BUDDY_UNROLL
        for (u32 first = 0; first < AHEAD; first += STEP) {
            V value[STEP], gathered[STEP][K];
            bool mine[STEP];
            // All gathers of a step are in flight before the first is used.
            BUDDY_UNROLL
            for (u32 i = 0; i < STEP; i++) {
                u32 count = longer >> 8 * (first + i) & 255;
                mine[i] = threadIdx.x < count;
                if (mine[i]) {
                    value[i] = values.load(at);
                    const V* from = x + (u64)columns.load(at) * width;
                    BUDDY_UNROLL
                    for (u32 j = 0; j < K; j++) gathered[i][j] = j < width ? __ldg(from + j) : V();
                }
                at += count;
            }
            BUDDY_UNROLL
            for (u32 i = 0; i < STEP; i++) {
                BUDDY_UNROLL
                for (u32 j = 0; j < K; j++) sums[j] = mine[i] ? add_product(sums[j], value[i], gathered[i][j]) : sums[j];
            }
        }
        longer = next, next = later;
    }
}

// The sum over the segments of a row, in order, of column `j`; false if an earlier segment has the
// row.
template <class V, u32 K>
BUDDY_FN bool add_row(const V (&sums)[K][SEGMENTS], const u32* rows, u32 segments, u32 j, V& sum) {
    u32 row = rows[threadIdx.x];
    sum = V();
    BUDDY_ROLLED
    for (u32 t = 0; t < segments; t++) {
        if (rows[t] != row) continue;
        if (t < threadIdx.x) return false;
        sum = add(sum, sums[j][t]);
    }
    return true;
}

template <class V, u32 K>
BUDDY_FN void multiply(const CsrProduct& of) {
    __shared__ V shared_sums[K][SEGMENTS];
    __shared__ u32 shared_rows[SEGMENTS];
    const CsrTile tile = of.tiles[blockIdx.x];
    const u8* at = of.payload + tile.payload;
    auto next = [&](u32 count, u32 bits) {
        const u8* array = at;
        at += room(count, bits);
        return (const u32*)array;
    };
    constexpr u32 BITS = 8 * sizeof(V);
    const u32 *value_codes = next(tile.elements, tile.value_bits), *column_codes = next(tile.elements, tile.column_bits);
    const u32 *values = next(tile.value_codes, BITS), *distances = next(tile.column_codes, 32);
    const u32 *rows = next(tile.segments, tile.row_bits), *counts = (const u32*)at;

    u32 segment = threadIdx.x;
    bool mine = segment < tile.segments;
    u32 row = tile.first_row + (tile.row_bits == 0 ? segment : mine ? narrow_code(rows, segment, tile.row_bits) : 0);
    u32 base = (tile.column_codes ? 0 : tile.column_base) + (tile.flags & RELATIVE ? row : 0);
    Columns columns = {column_codes, tile.column_codes ? distances : nullptr, tile.column_bits, base};
    const V* x = (const V*)of.x;
    V* y = (V*)of.y;
    V sums[K] = {};
    if (tile.value_codes) {
        add_segment<V, K>(TabledValues<V>{value_codes, (const V*)values, tile.value_bits}, columns, tile, counts, x, of.columns, sums);
    } else if (tile.value_bits == BITS) {
        add_segment<V, K>(RawValues<V>{(const V*)value_codes}, columns, tile, counts, x, of.columns, sums);
    } else {
        OffsetValues<V> offsets = {value_codes, tile.value_base, tile.value_bits, tile.value_shift};
        add_segment<V, K>(offsets, columns, tile, counts, x, of.columns, sums);
    }
    if (tile.part == 0 && !(tile.flags & SEVERAL)) {
        BUDDY_UNROLL
        for (u32 j = 0; j < K; j++) {
            if (mine && j < of.columns) y[(u64)row * of.columns + j] = sums[j];
        }
        return;
    }
    BUDDY_UNROLL
    for (u32 j = 0; j < K; j++) shared_sums[j][segment] = sums[j];
    shared_rows[segment] = row;
    __syncthreads();
    for (u32 j = 0; mine && j < of.columns; j++) {
        V sum;
        if (!add_row(shared_sums, shared_rows, tile.segments, j, sum)) break;
        if (tile.part == 0) y[(u64)row * of.columns + j] = sum;
        else ((V*)of.parts)[(u64)(tile.part - 1) * of.columns + j] = sum;
    }
}

// Adds the parts of rows that lie in several tiles, a thread to a row and column.
template <class V>
BUDDY_FN void join(const CsrProduct& of) {
    u32 at = blockIdx.x * SEGMENTS + threadIdx.x, j = at % of.columns;
    if (at / of.columns >= of.joined) return;
    const CsrJoin join = of.joins[at / of.columns];
    V sum = V();
    for (u32 part = 0; part < join.parts; part++) sum = add(sum, ((const V*)of.parts)[(u64)(join.first + part) * of.columns + j]);
    ((V*)of.y)[(u64)join.row * of.columns + j] = sum;
}

}  // namespace

#define BUDDY_CSR_KERNEL(name, call) \
    extern "C" __global__ void __launch_bounds__(SEGMENTS) name(const __grid_constant__ CsrProduct of) { call(of); }

BUDDY_CSR_KERNEL(csr_double_1, (multiply<double, 1>))
BUDDY_CSR_KERNEL(csr_double_2, (multiply<double, 2>))
BUDDY_CSR_KERNEL(csr_double_4, (multiply<double, 4>))
BUDDY_CSR_KERNEL(csr_double_8, (multiply<double, 8>))
BUDDY_CSR_KERNEL(csr_float_1, (multiply<float, 1>))
BUDDY_CSR_KERNEL(csr_float_2, (multiply<float, 2>))
BUDDY_CSR_KERNEL(csr_float_4, (multiply<float, 4>))
BUDDY_CSR_KERNEL(csr_float_8, (multiply<float, 8>))
BUDDY_CSR_KERNEL(csr_double_join, join<double>)
BUDDY_CSR_KERNEL(csr_float_join, join<float>)
