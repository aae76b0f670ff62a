// Small kernels between the linear layers of a decode step: residual add with RMSNorm, gates, and
// greedy sampling. All use programmatic dependent launch, so that the next linear layer loads its
// weights meanwhile. Values are bf16, rounded after each step as frameworks do.
#include "bulk.cuh"

using namespace buddy;

// Values of a chunk, 16 bytes.
constexpr u32 CHUNK_VALUES = 8, LANES = 32, ALL_LANES = 0xffffffffu;

BUDDY_FN float low_of(u32 two) { return from_bf16(two); }
BUDDY_FN float high_of(u32 two) { return __uint_as_float(two & 0xffff0000u); }

// Combines the values of two chunks elementwise, and rounds.
template <class Join>
BUDDY_FN uint4 join(uint4 a, uint4 b, Join join) {
    auto two = [&](u32 a, u32 b) { return to_bf16(join(low_of(a), low_of(b)), join(high_of(a), high_of(b))); };
    return make_uint4(two(a.x, b.x), two(a.y, b.y), two(a.z, b.z), two(a.w, b.w));
}

// The values of a chunk in fp32.
struct Values {
    float v[CHUNK_VALUES];
};

BUDDY_FN Values unrounded(uint4 chunk) {
    u32 pairs[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
    Values values;
    BUDDY_UNROLL
    for (u32 i = 0; i < 4; i++) values.v[2 * i] = low_of(pairs[i]), values.v[2 * i + 1] = high_of(pairs[i]);
    return values;
}

BUDDY_FN uint4 rounded(const Values& of) {
    auto pair = [&](u32 i) { return to_bf16(of.v[i], of.v[i + 1]); };
    return make_uint4(pair(0), pair(2), pair(4), pair(6));
}

// Block-wide reduction with `join`, whose identity is zero; every thread gets the result. `warps`
// has 32 elements.
template <class Value, class Join>
BUDDY_FN Value join_block(Value value, Value* warps, Join join) {
    for (u32 step = LANES / 2; step > 0; step /= 2) value = join(value, __shfl_xor_sync(ALL_LANES, value, step));
    if (threadIdx.x % LANES == 0) warps[threadIdx.x / LANES] = value;
    __syncthreads();
    value = threadIdx.x % LANES < blockDim.x / LANES ? warps[threadIdx.x % LANES] : Value(0);
    for (u32 step = LANES / 2; step > 0; step /= 2) value = join(value, __shfl_xor_sync(ALL_LANES, value, step));
    return value;
}

// Calls `work(i, chunk)` for this thread's chunks of a row, at most `MOST`.
template <u32 MOST, typename Work>
BUDDY_FN void each_chunk(u32 chunks, Work work) {
    BUDDY_UNROLL
    for (u32 i = 0; i < MOST; i++) {
        u32 at = threadIdx.x + i * blockDim.x;
        if (at < chunks) work(i, at);
    }
}

// Adds to a residual stream and applies RMSNorm; one CTA per row.
struct Norm {
    const uint4* stream;
    uint4* sum;          // stream plus added; may be the stream
    const uint4* added;  // or null
    const uint4* weights;
    uint4* out;
    u32 chunks;  // of a row
    float epsilon;
    u32 rounds_once;  // the result alone is rounded, not the sum and the scaled values before it
    u32 reserved;
};

template <u32 MOST>
BUDDY_FN void norm_row(const Norm& norm) {
    __shared__ float warps[LANES];
    launch_dependent_grids();
    u64 row = (u64)blockIdx.x * norm.chunks;
    uint4 weights[MOST];
    Values values[MOST];
    each_chunk<MOST>(norm.chunks, [&](u32 i, u32 at) { weights[i] = norm.weights[at]; });
    wait_on_dependent_grids();
    float sum = 0;
    each_chunk<MOST>(norm.chunks, [&](u32 i, u32 at) {
        float(&v)[CHUNK_VALUES] = values[i].v;
        values[i] = unrounded(norm.stream[row + at]);
        if (norm.added != nullptr) {
            Values added = unrounded(norm.added[row + at]);
            BUDDY_UNROLL
            for (u32 k = 0; k < CHUNK_VALUES; k++) v[k] += added.v[k];
            uint4 total = rounded(values[i]);
            norm.sum[row + at] = total;
            if (!norm.rounds_once) values[i] = unrounded(total);
        }
        BUDDY_UNROLL
        for (u32 k = 0; k < CHUNK_VALUES; k += 2) sum += v[k] * v[k] + v[k + 1] * v[k + 1];
    });
    sum = join_block(sum, warps, [](float a, float b) { return a + b; });
    float scale = rsqrtf(sum / (norm.chunks * CHUNK_VALUES) + norm.epsilon);
    each_chunk<MOST>(norm.chunks, [&](u32 i, u32 at) {
        Values scaled = values[i], weight = unrounded(weights[i]);
        BUDDY_UNROLL
        for (u32 k = 0; k < CHUNK_VALUES; k++) scaled.v[k] *= scale;
        if (!norm.rounds_once) scaled = unrounded(rounded(scaled));
        BUDDY_UNROLL
        for (u32 k = 0; k < CHUNK_VALUES; k++) scaled.v[k] *= weight.v[k];
        norm.out[row + at] = rounded(scaled);
    });
}

// One chunk per thread needs less code; such a kernel's time is mostly instruction fetch.
extern "C" __global__ void __launch_bounds__(1024) decode_norm(const __grid_constant__ Norm norm) { norm_row<1>(norm); }
extern "C" __global__ void __launch_bounds__(1024) decode_norm_long(const __grid_constant__ Norm norm) { norm_row<4>(norm); }

// SwiGLU, silu(gate) * value: a token's row has all gates, then all values; or interleaved, eight
// gates, then eight values. blockIdx.y is the token.
struct Gate {
    const uint4* both;
    uint4* out;
    u32 chunks;  // of a row of results
    u32 interleaved;
};

extern "C" __global__ void __launch_bounds__(128) decode_gate(const __grid_constant__ Gate gate) {
    launch_dependent_grids();
    wait_on_dependent_grids();
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= gate.chunks) return;
    const uint4* row = gate.both + (u64)blockIdx.y * 2 * gate.chunks;
    bool interleaved = gate.interleaved;
    uint4 gates = row[interleaved ? 2 * at : at], values = row[interleaved ? 2 * at + 1 : gate.chunks + at];
    uint4 open = join(gates, gates, [](float a, float) { return a / (1.0f + __expf(-a)); });
    gate.out[(u64)blockIdx.y * gate.chunks + at] = join(open, values, [](float a, float b) { return a * b; });
}

// Greedy sampling: takes the token of the highest logit, the first of equal ones, and appends it.
// One CTA per sequence.
struct Pick {
    const uint4* scores;  // logits, bf16
    int* history;         // tokens of each sequence by position
    int* lengths;
    u32* entries;         // entries of the token's embedding, to gather
    u32 chunks;           // of a row of logits
    u32 history_stride, row;  // entries of an embedding
    u32 reserved;
};

// Returns a sortable key: the logit in an order-preserving code, then the inverted token, so that
// the first of equal ones is the largest.
BUDDY_FN u64 ranked(u32 score, u32 token) {
    u32 order = score & 0x8000 ? ~score & 0xffff : score | 0x8000;
    return (u64)order << 32 | ~token;
}

extern "C" __global__ void __launch_bounds__(1024) decode_pick(const __grid_constant__ Pick pick) {
    __shared__ u64 warps[LANES];
    launch_dependent_grids();
    wait_on_dependent_grids();
    u32 sequence = blockIdx.x;
    u64 best = 0;
    auto larger = [](u64 a, u64 b) { return a > b ? a : b; };
    auto look = [&](u32 two, u32 token) { best = larger(best, larger(ranked(two & 0xffff, token), ranked(two >> 16, token + 1))); };
#pragma unroll 4
    for (u32 at = threadIdx.x; at < pick.chunks; at += blockDim.x) {
        uint4 v = pick.scores[(u64)sequence * pick.chunks + at];
        u32 first = at * CHUNK_VALUES;
        look(v.x, first), look(v.y, first + 2), look(v.z, first + 4), look(v.w, first + 6);
    }
    u32 token = ~(u32)join_block(best, warps, larger);
    for (u32 i = threadIdx.x; i < pick.row; i += blockDim.x) pick.entries[sequence * pick.row + i] = token * pick.row + i;
    if (threadIdx.x != 0) return;
    int length = pick.lengths[sequence];
    if (length >= 0 && (u32)length < pick.history_stride) pick.history[(u64)sequence * pick.history_stride + length] = (int)token;
    pick.lengths[sequence] = length + 1;
}
