// y = W x with bf16 weights in compressed memory: the decode step of a language model, 1 to 8 right-hand sides.
//
// Weights go from their places to tensor cores without being plain anywhere but in registers. The sixteen rows of a
// fragment are sixteen rows of W. Four lanes share an entry of a row, each with a quarter of it: 16 values that follow
// one another, four of them to each of four fragments. The order of columns in a product is free as long as both
// operands have the same one, so a lane's share of x is 16 values that follow one another too.
//
// A block takes a tile of rows and a part of the columns: x of that part lies in shared memory, weights come straight
// into registers, some entries ahead of their use. Entries of rare layouts and those that overflow come after the
// others, by themselves: the loop over the others calls nothing and spills nothing. The last part of a tile to end adds all of them up, in order.
#include "buddy_device.cuh"
#include "fill.cuh"

using namespace buddy;

// The shape, from Rust: warps, with 16 rows each; entries of a row in a part; entries that are fetched at once.
constexpr u32 WARPS = BUDDY_PRODUCT_WARPS, PART = BUDDY_PRODUCT_PART, BATCH = BUDDY_PRODUCT_BATCH;
constexpr u32 ROWS = 16 * WARPS, VALUES = ENTRY / 2, SIDES = 8;
// Sides are 16 bytes apart modulo 128: what eight lanes load at once lies in different banks.
constexpr u32 PITCH = PART * ENTRY / 16 + 1;
static_assert(PART == 8 || PART == 16, "the nibbles of a part are one word");

struct Shape {
    u32 rows, columns, sides;
};

// One product of fragments: 16 rows, 16 columns, 8 sides.
BUDDY_FN void multiply(float (&sum)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// A quarter of any entry, by a thread's slow way. Not inlined: it is rare, and registers are dear.
__device__ __noinline__ void load_rare(const BuddyView* view, u64 entry, u32 quarter, u32* out) {
    u32 words[WORDS];
    thread::load_entry<Bf16>(*view, entry, words);
    for (u32 i = 0; i < 8; i++) out[i] = words[8 * quarter + i];
}

// Compressed weights at 4/3x.
struct Packed {
    BuddyView view;

    // A lane's quarters of a batch of a row.
    struct Fetched {
        uint4 bytes[BATCH];
        uint2 codes[BATCH];
    };

    // The nibbles of a row's part, 0 where they say layout B.
    BUDDY_FN u64 find_odd(u64 entry) const {
        const u8* at = view.memory.nibbles + entry / 2;
        return PART == 16 ? *(const u64*)at ^ (RAW + 1) * 0x1111111111111111ull : *(const u32*)at ^ (RAW + 1) * 0x11111111u;
    }

    BUDDY_FN void fetch(u64 entry, u32 quarter, Fetched& to) const {
        const u8* at = view.memory.device + entry * (3 * SECTOR);
        BUDDY_UNROLL
        for (u32 i = 0; i < BATCH; i++) {
            to.bytes[i] = __ldcs((const uint4*)(at + i * (3 * SECTOR)) + quarter);
            to.codes[i] = __ldcs((const uint2*)(at + i * (3 * SECTOR) + 64) + quarter);
        }
    }

    BUDDY_FN void decode(const Fetched& from, u32 i, u32 (&out)[8]) const {
        const u32 bytes[4] = {from.bytes[i].x, from.bytes[i].y, from.bytes[i].z, from.bytes[i].w};
        const u32 codes[2] = {from.codes[i].x, from.codes[i].y};
        Bf16::read_window_quarter(bytes, codes, view.params.window, out);
    }

    // The quarter of an entry that `decode` does not know, by its four bits of `odd`: layout C, or anything.
    BUDDY_FN void decode_odd(u64 entry, u32 odd, u32 quarter, u32 (&out)[8]) const {
        if ((odd ^ (RAW + 1)) == RAW + 2) {
            const uint4* at = (const uint4*)(view.memory.device + entry * (3 * SECTOR));
            uint4 m = at[quarter], a = at[4], b = at[5];
            const u32 bytes[4] = {m.x, m.y, m.z, m.w}, rest[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
            Bf16::read_own_quarter(bytes, rest, quarter, out);
        } else {
            u32 words[8];
            load_rare(&view, entry, quarter, words);
            BUDDY_UNROLL
            for (u32 k = 0; k < 8; k++) out[k] = words[k];
        }
    }
};

// The same on plain memory.
struct Plain {
    const uint4* weights;

    struct Fetched {
        uint4 first[BATCH], second[BATCH];
    };

    BUDDY_FN u64 find_odd(u64) const { return 0; }

    BUDDY_FN void fetch(u64 entry, u32 quarter, Fetched& to) const {
        BUDDY_UNROLL
        for (u32 i = 0; i < BATCH; i++) {
            to.first[i] = __ldcs(weights + (entry + i) * CHUNKS + 2 * quarter);
            to.second[i] = __ldcs(weights + (entry + i) * CHUNKS + 2 * quarter + 1);
        }
    }

    BUDDY_FN void decode(const Fetched& from, u32 i, u32 (&out)[8]) const {
        uint4 a = from.first[i], b = from.second[i];
        out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
    }

    BUDDY_FN void decode_odd(u64, u32, u32, u32 (&)[8]) const {}
};

// Plain weights in the order of compressed ones: what is odd there comes after the others here too, so that sums are the
// same to the bit. For the proof alone.
struct Ordered {
    Plain plain;
    Packed packed;

    typedef Plain::Fetched Fetched;

    BUDDY_FN u64 find_odd(u64 entry) const { return packed.find_odd(entry); }
    BUDDY_FN void fetch(u64 entry, u32 quarter, Fetched& to) const { plain.fetch(entry, quarter, to); }
    BUDDY_FN void decode(const Fetched& from, u32 i, u32 (&out)[8]) const { plain.decode(from, i, out); }

    BUDDY_FN void decode_odd(u64 entry, u32, u32 quarter, u32 (&out)[8]) const {
        for (u32 k = 0; k < 8; k++) out[k] = ((const u32*)(plain.weights + entry * CHUNKS))[8 * quarter + k];
    }
};

// A warp's sums of 16 rows: c[0], c[1] are two sides of row `lane / 4`, c[2], c[3] of eight rows below.
BUDDY_FN void put_sums(float* y, const Shape& shape, u32 row, const float (&c)[4]) {
    u32 lane = threadIdx.x % WARP, side = lane % 4 * 2, at = row + lane / 4;
    BUDDY_UNROLL
    for (u32 i = 0; i < 4; i++) {
        if (side + i % 2 < shape.sides) y[(u64)(side + i % 2) * shape.rows + at + i / 2 * 8] = c[i];
    }
}

// Ends a warp's part of a tile. Parts lie in `sums`, four floats to a lane; `counts` says how many have come, and is zero
// again after.
BUDDY_FN void finish(const Shape& shape, u32 tile, u32 part, u32 parts, const float (&c)[4], float* y, float4* sums, u32* counts) {
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, row = tile * ROWS + warp * 16, come = 0;
    if (parts == 1) return put_sums(y, shape, row, c);
    auto sum_of = [&](u32 part) { return sums + ((tile * parts + part) * WARPS + warp) * WARP + lane; };
    bool used = lane % 4 * 2 < shape.sides;
    if (used) __stcg(sum_of(part), make_float4(c[0], c[1], c[2], c[3]));
    __threadfence();
    __syncwarp();
    if (lane == 0) come = atomicAdd(counts + tile * WARPS + warp, 1);
    if (__shfl_sync(ALL, come, 0) != parts - 1) return;
    __threadfence();
    float sum[4] = {};
    for (u32 i = 0; used && i < parts; i++) {
        float4 v = __ldcg(sum_of(i));
        sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
    }
    if (lane == 0) counts[tile * WARPS + warp] = 0;
    put_sums(y, shape, row, sum);
}

template <class Weights>
BUDDY_FN void product(const Weights& weights, const uint4* x, float* y, float4* sums, u32* counts, const Shape& shape) {
    __shared__ uint4 sides[SIDES * PITCH];
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, quarter = lane % 4, side = lane / 4;
    u32 per_row = shape.columns / VALUES, parts = per_row / PART, tile = blockIdx.x / parts, part = blockIdx.x % parts;
    u64 entry = (u64)(tile * ROWS + warp * 16 + lane / 4) * per_row + part * PART, below = 8 * (u64)per_row;
    u64 odd[2] = {weights.find_odd(entry), weights.find_odd(entry + below)};
    typename Weights::Fetched next[2], now[2];
    weights.fetch(entry, quarter, next[0]);
    weights.fetch(entry + below, quarter, next[1]);
    for (u32 at = threadIdx.x; at < shape.sides * (PART * CHUNKS); at += WARPS * WARP) {
        u32 row = at / (PART * CHUNKS), column = at % (PART * CHUNKS);
        sides[row * PITCH + column] = __ldg(x + (row * per_row + part * PART) * CHUNKS + column);
    }
    __syncthreads();
    u64 any = odd[0] | odd[1];
    any = (u64)__reduce_or_sync(ALL, (u32)(any >> 32)) << 32 | __reduce_or_sync(ALL, (u32)any);
    const uint4* mine = sides + side * PITCH + quarter * 2;
    float c[4][4] = {};
    auto add = [&](u32 i, const u32(&a)[8], const u32(&b)[8]) {
        uint4 v = make_uint4(0, 0, 0, 0), w = v;
        if (side < shape.sides) v = mine[i * CHUNKS], w = mine[i * CHUNKS + 1];
        multiply(c[0], a[0], b[0], a[1], b[1], v.x, v.y);
        multiply(c[1], a[2], b[2], a[3], b[3], v.z, v.w);
        multiply(c[2], a[4], b[4], a[5], b[5], w.x, w.y);
        multiply(c[3], a[6], b[6], a[7], b[7], w.z, w.w);
    };
    // Entries that are not in layout B are left out here; four bits say so of each.
#pragma unroll BUDDY_PRODUCT_UNROLL
    for (u32 batch = 0; batch < PART; batch += BATCH) {
        now[0] = next[0], now[1] = next[1];
        if (batch + BATCH < PART) {
            weights.fetch(entry + batch + BATCH, quarter, next[0]);
            weights.fetch(entry + below + batch + BATCH, quarter, next[1]);
        }
        BUDDY_UNROLL
        for (u32 i = 0; i < BATCH; i++) {
            u32 a[8], b[8], shift = 4 * (batch + i);
            weights.decode(now[0], i, a);
            weights.decode(now[1], i, b);
            if (any >> shift & 15) {
                BUDDY_UNROLL
                for (u32 k = 0; k < 8; k++) {
                    a[k] = odd[0] >> shift & 15 ? 0 : a[k];
                    b[k] = odd[1] >> shift & 15 ? 0 : b[k];
                }
            }
            add(batch + i, a, b);
        }
    }
    // Now they come by themselves, one to a lane at a time, with zeros in all other rows.
#pragma unroll 1
    for (u32 i = 0; any >> 4 * i != 0; i++) {
        u32 left[2] = {(u32)(odd[0] >> 4 * i) & 15, (u32)(odd[1] >> 4 * i) & 15};
#pragma unroll 1
        while (__any_sync(ALL, left[0] | left[1])) {
            u32 a[8], b[8], out[8] = {};
            bool second = left[0] == 0;
            if (left[0] | left[1]) {
                weights.decode_odd(entry + i + (second ? below : 0), second ? left[1] : left[0], quarter, out);
            }
            __syncwarp();
            BUDDY_UNROLL
            for (u32 k = 0; k < 8; k++) a[k] = second ? 0 : out[k], b[k] = second ? out[k] : 0;
            add(i, a, b);
            (second ? left[1] : left[0]) = 0;
        }
    }
    float sum[4];
    BUDDY_UNROLL
    for (u32 i = 0; i < 4; i++) sum[i] = (c[0][i] + c[1][i]) + (c[2][i] + c[3][i]);
    finish(shape, tile, part, parts, sum, y, sums, counts);
}

// Rows are a multiple of ROWS, columns of a part's; x has its sides one after the other, y likewise.
extern "C" __global__ void __launch_bounds__(WARPS* WARP, BUDDY_PRODUCT_BLOCKS)
    product_fused(const __grid_constant__ BuddyView weights, const uint4* x, float* y, float4* sums, u32* counts, Shape shape) {
    product(Packed{weights}, x, y, sums, counts, shape);
}

extern "C" __global__ void __launch_bounds__(WARPS* WARP, BUDDY_PRODUCT_BLOCKS)
    product_plain(const uint4* weights, const uint4* x, float* y, float4* sums, u32* counts, Shape shape) {
    product(Plain{weights}, x, y, sums, counts, shape);
}

extern "C" __global__ void __launch_bounds__(WARPS* WARP)
    product_ordered(const uint4* weights, const __grid_constant__ BuddyView view, const uint4* x, float* y, float4* sums, u32* counts,
                    Shape shape) {
    product(Ordered{{weights}, {view}}, x, y, sums, counts, shape);
}

// Normal weights, sigma 0.02; of `share` in 65536 entries, a third are zeros, a third values of any size, which overflow,
// and a third a few values among zeros.
extern "C" __global__ void product_fill(u32* to, u64 entries, u64 seed, u32 share) {
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

// Counts sums that are further from an exact one than rounding explains; `limit` is a share of the sum of magnitudes.
extern "C" __global__ void product_check(const u32* weights, const u32* x, const float* y, double limit, Shape shape, u64* wrong) {
    u32 row = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (row >= shape.rows) return;
    for (u32 side = 0; side < shape.sides; side++) {
        double sum = 0, size = 0;
        for (u32 at = lane; at < shape.columns / 2; at += WARP) {
            u32 w = weights[(u64)row * (shape.columns / 2) + at], v = x[side * (shape.columns / 2) + at];
            double low = (double)__uint_as_float(w << 16) * __uint_as_float(v << 16);
            double high = (double)__uint_as_float(w & 0xffff0000u) * __uint_as_float(v & 0xffff0000u);
            sum += low + high, size += fabs(low) + fabs(high);
        }
        for (u32 step = WARP / 2; step > 0; step /= 2) {
            sum += __shfl_xor_sync(ALL, sum, step), size += __shfl_xor_sync(ALL, size, step);
        }
        double found = y[(u64)side * shape.rows + row];
        if (lane == 0 && !(fabs(found - sum) <= limit * size)) atomicAdd(wrong, 1ull);
    }
}
