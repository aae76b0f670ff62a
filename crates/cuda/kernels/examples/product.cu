// y = W x with bf16 weights in compressed memory: the decode step of a language model, 1 to 8 right-hand sides.
//
// Weights go from their places to tensor cores without being plain anywhere but in registers. The sixteen rows of a
// fragment are sixteen rows of W. Four lanes share an entry of a row, each with a quarter of it: 16 values that follow
// one another, four of them to each of four fragments. The order of columns in a product is free as long as both
// operands have the same one, so a lane's share of x is 16 values that follow one another too.
//
// Blocks stay on their multiprocessor. Each warp has 16 rows and a ring of slices of them in shared memory; when it is
// done with a slice it asks the bulk copy engine for the one that will take its room, and so waits for no other warp.
// x comes through a ring for all, which one more warp fills. Entries of rare layouts and those that overflow come after
// the others of their slice, by themselves: the loop over the others calls nothing and spills nothing. Tiles of rows are
// split between blocks wherever even shares end; the last part to arrive adds all of them up, in a fixed order.
#include "buddy_device.cuh"
#include "fill.cuh"

using namespace buddy;

// The shape, from Rust: warps that multiply, entries of a row in a slice, stages of x.
constexpr u32 WARPS = BUDDY_PRODUCT_WARPS, STEP = BUDDY_PRODUCT_STEP, STAGES = BUDDY_PRODUCT_STAGES;
constexpr u32 ROWS = 16 * WARPS, VALUES = ENTRY / 2, SIDES = 8;

struct Shape {
    u32 rows, columns, sides;
};

BUDDY_FN u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

struct Barrier {
    u32 at;

    BUDDY_FN void init(u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory"); }
    BUDDY_FN void arrive() { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
    BUDDY_FN void expect(u32 bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
    }
    BUDDY_FN void wait(u32 parity) {
        asm volatile(
            "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(at),
            "r"(parity)
            : "memory");
    }
};

BUDDY_FN void copy_bulk(u32 to, const void* from, u32 bytes, Barrier done) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(done.at)
                 : "memory");
}

BUDDY_FN uint4 load_four(u32 at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at) : "memory");
    return v;
}

BUDDY_FN uint2 load_two(u32 at) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at) : "memory");
    return v;
}

// One lane of the warp, such that the compiler knows that it is one.
BUDDY_FN bool elect() {
    u32 elected;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
    return elected != 0;
}

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

// Compressed weights at 4/3x. Rows of a stage are 64 bytes apart modulo 128: two of them fill all banks.
struct Packed {
    // Slices of a warp, from Rust.
    static constexpr u32 RING = BUDDY_PRODUCT_RING;
    static constexpr u32 BYTES = 3 * SECTOR, PITCH = (STEP * BYTES + 63) / 128 * 128 + 64;
    BuddyView view;

    BUDDY_FN const u8* entry_at(u64 entry) const { return view.memory.device + entry * BYTES; }

    // The nibbles of a row's entries in a slice: 0 where they say layout B.
    BUDDY_FN u32 find_odd(u64 entry) const {
        const u8* at = view.memory.nibbles + entry / 2;
        u32 common = (RAW + 1) * 0x11111111u;
        return STEP == 8 ? *(const u32*)at ^ common : *(const unsigned short*)at ^ (common & 0xffff);
    }

    // A quarter of the entry at `at`, in layout B.
    BUDDY_FN void load(u32 at, u32 quarter, u64, u32 (&out)[8]) const {
        uint4 m = load_four(at + 16 * quarter);
        uint2 c = load_two(at + 64 + 8 * quarter);
        const u32 bytes[4] = {m.x, m.y, m.z, m.w}, codes[2] = {c.x, c.y};
        Bf16::read_window_quarter(bytes, codes, view.params.window, out);
    }

    // A quarter of any other, by its four bits of `odd`: layout C, or anything.
    BUDDY_FN void load_odd(u32 at, u32 quarter, u32 odd, u64 entry, u32 (&out)[8]) const {
        if ((odd ^ (RAW + 1)) == RAW + 2) {
            uint4 m = load_four(at + 16 * quarter), a = load_four(at + 64), b = load_four(at + 80);
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
    static constexpr u32 RING = BUDDY_PRODUCT_RING_PLAIN;
    static constexpr u32 BYTES = ENTRY, PITCH = STEP * BYTES + 16;
    const u8* weights;

    BUDDY_FN const u8* entry_at(u64 entry) const { return weights + entry * BYTES; }
    BUDDY_FN u32 find_odd(u64) const { return 0; }

    BUDDY_FN void load(u32 at, u32 quarter, u64, u32 (&out)[8]) const {
        uint4 a = load_four(at + 32 * quarter), b = load_four(at + 32 * quarter + 16);
        out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
    }

    BUDDY_FN void load_odd(u32, u32, u32, u64, u32 (&)[8]) const {}
};

// Plain weights in the order of compressed ones: what is odd there comes after the others here too, so that sums are the
// same to the bit. For the proof alone.
struct Ordered : Packed {
    const u8* weights;

    BUDDY_FN void load(u32, u32 quarter, u64 entry, u32 (&out)[8]) const {
        const u32* at = (const u32*)(weights + entry * ENTRY) + 8 * quarter;
        for (u32 k = 0; k < 8; k++) out[k] = at[k];
    }

    BUDDY_FN void load_odd(u32 at, u32 quarter, u32, u64 entry, u32 (&out)[8]) const { load(at, quarter, entry, out); }
};

// The blocks' shares: a tile is ROWS rows; its steps, and those of all tiles, are counted in one row.
struct Shares {
    u32 steps, total;

    BUDDY_FN Shares(const Shape& shape) : steps(shape.columns / (VALUES * STEP)), total(shape.rows / ROWS * steps) {}
    BUDDY_FN u32 begin(u32 block) const { return (u32)((u64)total * block / gridDim.x); }
    BUDDY_FN u32 owner(u32 step) const {
        u32 block = (u32)(((u64)step * gridDim.x + gridDim.x - 1) / total);
        if (block >= gridDim.x) block = gridDim.x - 1;
        while (begin(block) > step) block--;
        while (begin(block + 1) <= step) block++;
        return block;
    }
};

constexpr u32 SIDE_PITCH = STEP * ENTRY + 16, STAGE_BYTES = SIDES * SIDE_PITCH;
template <class Weights>
constexpr u32 SLICE_BYTES = 16 * Weights::PITCH;
template <class Weights>
constexpr u32 SHARED_BYTES = WARPS* Weights::RING* SLICE_BYTES<Weights> + STAGES * STAGE_BYTES + 8 * (WARPS * Weights::RING + 2 * STAGES);
static_assert(SHARED_BYTES<Packed> == BUDDY_PRODUCT_SHARED && SHARED_BYTES<Plain> == BUDDY_PRODUCT_SHARED_PLAIN,
              "Rust asks for the shared memory that the kernels use");

// Where things lie in shared memory.
template <class Weights>
struct Room {
    static constexpr u32 RING = Weights::RING;
    u32 shared;

    BUDDY_FN u32 slice(u32 warp, u32 turn) const { return shared + (warp * RING + turn % RING) * SLICE_BYTES<Weights>; }
    BUDDY_FN u32 stage(u32 turn) const { return shared + WARPS * RING * SLICE_BYTES<Weights> + turn % STAGES * STAGE_BYTES; }
    BUDDY_FN u32 barriers() const { return shared + WARPS * RING * SLICE_BYTES<Weights> + STAGES * STAGE_BYTES; }
    BUDDY_FN Barrier come(u32 warp, u32 turn) const { return {barriers() + 8 * (warp * RING + turn % RING)}; }
    BUDDY_FN Barrier full(u32 turn) const { return {barriers() + 8 * (WARPS * RING + turn % STAGES)}; }
    BUDDY_FN Barrier empty(u32 turn) const { return {barriers() + 8 * (WARPS * RING + STAGES + turn % STAGES)}; }
};

// Asks for a slice of a warp's rows. One lane asks for all copies: their addresses are then the same for the warp, which
// the copy instruction wants; as lanes' own it would take them one by one, slowly.
template <class Weights>
BUDDY_FN void ask(const Weights& weights, const Shape& shape, const Shares& shares, u32 warp, u32 at, u32 to, Barrier come) {
    constexpr u32 BYTES = STEP * Weights::BYTES;
    u64 per_row = shape.columns / VALUES, pitch = per_row * Weights::BYTES;
    const u8* from = weights.entry_at((at / shares.steps * ROWS + warp * 16) * per_row + at % shares.steps * STEP);
    come.expect(16 * BYTES);
    BUDDY_UNROLL
    for (u32 r = 0; r < 16; r++) copy_bulk(to + r * Weights::PITCH, from + r * pitch, BYTES, come);
}

// The warp that brings in x.
template <class Weights>
BUDDY_FN void produce(const u8* x, const Shape& shape, const Room<Weights>& room) {
    Shares shares(shape);
    u32 begin = shares.begin(blockIdx.x), end = shares.begin(blockIdx.x + 1);
    if (!elect()) return;
#pragma unroll 1
    for (u32 at = begin; at < end; at++) {
        u32 turn = at - begin, to = room.stage(turn);
        room.empty(turn).wait(turn / STAGES % 2 ^ 1);
        room.full(turn).expect(shape.sides * STEP * ENTRY);
        const u8* from = x + at % shares.steps * (STEP * ENTRY);
#pragma unroll 1
        for (u32 i = 0; i < shape.sides; i++) {
            copy_bulk(to + i * SIDE_PITCH, from + i * (u64)shape.columns * 2, STEP * ENTRY, room.full(turn));
        }
    }
}

// A warp's sums of 16 rows: c[0], c[1] are two sides of row `lane / 4`, c[2], c[3] of eight rows below.
BUDDY_FN void put_sums(float* y, const Shape& shape, u32 row, const float (&c)[4]) {
    u32 lane = threadIdx.x % WARP, side = lane % 4 * 2, at = row + lane / 4;
    BUDDY_UNROLL
    for (u32 i = 0; i < 4; i++) {
        if (side + i % 2 < shape.sides) y[(u64)(side + i % 2) * shape.rows + at + i / 2 * 8] = c[i];
    }
}

// Ends a warp's part of a tile. Parts lie in `parts`, four floats to a lane; `counts` says how many have come, and is
// zero again after.
BUDDY_FN void finish(const Shape& shape, const Shares& shares, u32 tile, u32 warp, const float (&c)[4], float* y, float4* parts,
                     u32* counts) {
    u32 lane = threadIdx.x % WARP, row = tile * ROWS + warp * 16;
    u32 first = shares.owner(tile * shares.steps), last = shares.owner(tile * shares.steps + shares.steps - 1);
    if (first == last) return put_sums(y, shape, row, c);
    // A block has parts of two tiles at the most: its first and its last.
    auto part_of = [&](u32 block) {
        u32 second = tile != shares.begin(block) / shares.steps;
        return parts + ((block * 2 + second) * WARPS + warp) * WARP + lane;
    };
    u32 come = 0;
    __stcg(part_of(blockIdx.x), make_float4(c[0], c[1], c[2], c[3]));
    __threadfence();
    __syncwarp();
    if (lane == 0) come = atomicAdd(counts + tile * WARPS + warp, 1);
    if (__shfl_sync(ALL, come, 0) != last - first) return;
    __threadfence();
    float sum[4] = {};
    for (u32 block = first; block <= last; block++) {
        float4 part = __ldcg(part_of(block));
        sum[0] += part.x, sum[1] += part.y, sum[2] += part.z, sum[3] += part.w;
    }
    if (lane == 0) counts[tile * WARPS + warp] = 0;
    put_sums(y, shape, row, sum);
}

template <class Weights>
BUDDY_FN void consume(const Weights& weights, const Shape& shape, u32 warp, float* y, float4* parts, u32* counts,
                      const Room<Weights>& room) {
    Shares shares(shape);
    u32 lane = threadIdx.x % WARP, quarter = lane % 4;
    u32 begin = shares.begin(blockIdx.x), end = shares.begin(blockIdx.x + 1);
    u64 per_row = shape.columns / VALUES, below = 8 * per_row;
    constexpr u32 RING = Weights::RING;
    bool asks = elect();
    if (asks) {
        for (u32 turn = 0; turn < RING && begin + turn < end; turn++) {
            ask(weights, shape, shares, warp, begin + turn, room.slice(warp, turn), room.come(warp, turn));
        }
    }
    __syncwarp();
    auto first_entry = [&](u32 at) {
        return (u64)(at / shares.steps * ROWS + warp * 16 + lane / 4) * per_row + at % shares.steps * STEP;
    };
    float sums[4][4] = {};
    u64 entry = first_entry(begin);
    u32 next[2] = {weights.find_odd(entry), weights.find_odd(entry + below)};
#pragma unroll 1
    for (u32 at = begin; at < end; at++) {
        u32 turn = at - begin, odd[2] = {next[0], next[1]};
        u64 here = entry;
        if (at + 1 < end) {
            entry = first_entry(at + 1);
            next[0] = weights.find_odd(entry), next[1] = weights.find_odd(entry + below);
        }
        u32 any = __reduce_or_sync(ALL, odd[0] | odd[1]);
        u32 slice = room.slice(warp, turn), rows = slice + lane / 4 * Weights::PITCH;
        u32 side = room.stage(turn) + lane / 4 * SIDE_PITCH + quarter * 32;
        room.full(turn).wait(turn / STAGES % 2);
        room.come(warp, turn).wait(turn / RING % 2);
        auto add = [&](u32 e, const u32(&a)[8], const u32(&b)[8]) {
            uint4 v = make_uint4(0, 0, 0, 0), w = v;
            if (lane / 4 < shape.sides) v = load_four(side + e * ENTRY), w = load_four(side + e * ENTRY + 16);
            multiply(sums[0], a[0], b[0], a[1], b[1], v.x, v.y);
            multiply(sums[1], a[2], b[2], a[3], b[3], v.z, v.w);
            multiply(sums[2], a[4], b[4], a[5], b[5], w.x, w.y);
            multiply(sums[3], a[6], b[6], a[7], b[7], w.z, w.w);
        };
        // Entries that are not in layout B are left out here; four bits say so of each.
#pragma unroll BUDDY_PRODUCT_UNROLL
        for (u32 e = 0; e < STEP; e++) {
            u32 a[8], b[8], first = rows + e * Weights::BYTES, second = first + 8 * Weights::PITCH;
            weights.load(first, quarter, here + e, a);
            weights.load(second, quarter, here + below + e, b);
            if (any >> 4 * e & 15) {
                BUDDY_UNROLL
                for (u32 k = 0; k < 8; k++) {
                    a[k] = odd[0] >> 4 * e & 15 ? 0 : a[k];
                    b[k] = odd[1] >> 4 * e & 15 ? 0 : b[k];
                }
            }
            add(e, a, b);
        }
        // Now they come by themselves, one to a lane at a time, with zeros in all other rows.
#pragma unroll 1
        while (__any_sync(ALL, odd[0] | odd[1])) {
            // The lowest that any lane has left: all lanes multiply by the same columns.
            u32 e = trailing_zeros(__reduce_or_sync(ALL, odd[0] | odd[1])) / 4;
            u32 left[2] = {odd[0] >> 4 * e & 15, odd[1] >> 4 * e & 15}, a[8], b[8], out[8] = {};
            bool low = left[0] == 0;
            u32 bits = low ? left[1] : left[0], from = rows + e * Weights::BYTES + (low ? 8 * Weights::PITCH : 0);
            if (bits) weights.load_odd(from, quarter, bits, here + e + (low ? below : 0), out);
            __syncwarp();
            BUDDY_UNROLL
            for (u32 k = 0; k < 8; k++) a[k] = low ? 0 : out[k], b[k] = low ? out[k] : 0;
            add(e, a, b);
            if (low) {
                odd[1] &= ~(15u << 4 * e);
            } else {
                odd[0] &= ~(15u << 4 * e);
            }
        }
        __syncwarp();
        if (asks) {
            if (at + RING < end) ask(weights, shape, shares, warp, at + RING, slice, room.come(warp, turn));
            room.empty(turn).arrive();
        }
        __syncwarp();
        if (at + 1 == end || (at + 1) % shares.steps == 0) {
            float c[4];
            BUDDY_UNROLL
            for (u32 i = 0; i < 4; i++) c[i] = (sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i]);
            finish(shape, shares, at / shares.steps, warp, c, y, parts, counts);
            BUDDY_UNROLL
            for (u32 i = 0; i < 16; i++) sums[i / 4][i % 4] = 0;
        }
    }
}

template <class Weights>
BUDDY_FN void product(const Weights& weights, const u8* x, float* y, float4* parts, u32* counts, const Shape& shape) {
    extern __shared__ __align__(128) u8 memory[];
    Room<Weights> room = {shared_address(memory)};
    if (threadIdx.x == 0) {
        for (u32 warp = 0; warp < WARPS; warp++) {
            for (u32 turn = 0; turn < Weights::RING; turn++) room.come(warp, turn).init(1);
        }
        for (u32 turn = 0; turn < STAGES; turn++) room.full(turn).init(1), room.empty(turn).init(WARPS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    // The compiler knows of this that it is the same for the whole warp.
    u32 warp = __shfl_sync(ALL, threadIdx.x / WARP, 0);
    if (warp == WARPS) return produce(x, shape, room);
    consume(weights, shape, warp, y, parts, counts, room);
}

// Rows are a multiple of ROWS, columns of a stage's; x has its sides one after the other, y likewise.
extern "C" __global__ void __launch_bounds__((WARPS + 1) * WARP, BUDDY_PRODUCT_BLOCKS)
    product_fused(const __grid_constant__ BuddyView weights, const u8* x, float* y, float4* parts, u32* counts,
                  const __grid_constant__ Shape shape) {
    product(Packed{weights}, x, y, parts, counts, shape);
}

extern "C" __global__ void __launch_bounds__((WARPS + 1) * WARP)
    product_ordered(const u8* weights, const __grid_constant__ BuddyView view, const u8* x, float* y, float4* parts, u32* counts,
                    const __grid_constant__ Shape shape) {
    product(Ordered{{view}, weights}, x, y, parts, counts, shape);
}

extern "C" __global__ void __launch_bounds__((WARPS + 1) * WARP, BUDDY_PRODUCT_BLOCKS)
    product_plain(const u8* weights, const u8* x, float* y, float4* parts, u32* counts, const __grid_constant__ Shape shape) {
    product(Plain{weights}, x, y, parts, counts, shape);
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
