// Test data for linear layers: bf16 weights, the plain weights in tile order, and a check of the
// results in fp64.
#include "bulk.cuh"
#include "fill.cuh"
#include "frozen.cuh"
#include "tile.cuh"

using namespace buddy;

// A linear layer's sizes: `rows` outputs, `columns` inputs, both in values.
struct Shape {
    u32 rows, columns, tokens;
};

// Fills `entries` entries with normal bf16 values, sigma 0.02. Out of 65536 entries `share` are
// irregular: a third zeros, a third values of any magnitude, which overflow, and a third a few
// values among zeros.
extern "C" __global__ void linear_fill(u32* to, u64 entries, u64 seed, u32 share) {
    launch_dependent_grids();
    for (u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x; at < entries * WORDS; at += gridDim.x * (u64)blockDim.x) {
        u64 random = mix(seed ^ mix(at)), of_entry = mix(seed ^ mix(at / WORDS + (1ull << 61)));
        u32 first = float_bits(0.02f * normal(random)) >> 16, second = float_bits(0.02f * normal(mix(random))) >> 16;
        u32 word = first | second << 16, kind = (u32)(of_entry >> 16) % 3;
        if ((of_entry & 0xffff) < share) {
            u32 any = (u32)(random >> 32);
            word = kind == 0 ? 0 : kind == 1 ? (any & 0x807f807fu) | ((any & 0x00700070u) + 0x00200020u) << 7 : any % 5 == 0 ? word : 0;
        }
        to[at] = word;
    }
}

// Reorders plain weights to the tile order of a frozen matrix, and the words of each entry to the
// order in which the linear kernels read plain weights (linear_fragment.cuh): the two halves of a
// quarter are 64 bytes apart, swapped in every other pair of rows. `row` is the entries of a row.
extern "C" __global__ void linear_tiles(const u32* from, u32* to, u64 entries, u32 row) {
    launch_dependent_grids();
    Order order = {entries, row};
    for (u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x; at < entries * WORDS; at += gridDim.x * (u64)blockDim.x) {
        // The inverse of `Order::word_at`.
        u32 word = at % WORDS, quarter = word % 4, i = word / 4;
        u64 place = order.place_of(at / WORDS);
        u32 chunk = (quarter + i / 4 * 4) ^ place % Order::ROWS / 2 % 2 * 4;
        to[place * WORDS + chunk * 4 + i % 4] = from[at];
    }
}

// Counts the results whose distance from the fp64 sum exceeds `limit` times the sum of magnitudes.
// One warp per row.
extern "C" __global__ void linear_check(const u32* weights, const u32* x, const float* y, double limit, Shape shape, u64* wrong) {
    u32 row = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (row >= shape.rows) return;
    for (u32 token = 0; token < shape.tokens; token++) {
        double sum = 0, size = 0;
        for (u32 at = lane; at < shape.columns / 2; at += WARP) {
            u32 w = weights[(u64)row * (shape.columns / 2) + at], v = x[token * (shape.columns / 2) + at];
            double low = (double)__uint_as_float(w << 16) * __uint_as_float(v << 16);
            double high = (double)__uint_as_float(w & 0xffff0000u) * __uint_as_float(v & 0xffff0000u);
            sum += low + high, size += fabs(low) + fabs(high);
        }
        for (u32 step = WARP / 2; step > 0; step /= 2) {
            sum += __shfl_xor_sync(ALL, sum, step), size += __shfl_xor_sync(ALL, size, step);
        }
        double found = y[(u64)token * shape.rows + row];
        if (lane == 0 && !(fabs(found - sum) <= limit * size)) atomicAdd(wrong, 1ull);
    }
}
