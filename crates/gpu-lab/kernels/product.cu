// y = W x with bf16 weights in compressed memory: the decode step of a language model, 1 to 8 right-hand sides.
//
// Weights go from their places to tensor cores without being plain anywhere but in registers. The sixteen rows of a
// fragment are sixteen rows of W. Four lanes share an entry of a row, each with a quarter of it: 16 values that follow
// one another, four of them to each of four fragments. The order of columns in a product is free as long as both
// operands have the same one, so a lane's share of x is 16 values that follow one another too.
//
// Blocks stay on their multiprocessor and take sixteen rows at a time, when they have room for them: equal shares would
// not take equal time. x lies in shared memory; where it has no room, it is cut into panels. A block keeps to one while that
// has work, and then helps with the next; whoever does the last panel of sixteen rows adds up what all gave, in a fixed order.
// In a block, one warp asks the bulk copy engine for entries, step by step along the rows; most warps multiply; and some add
// up what these found. Entries of rare layouts and those that overflow come after the others of their step, by themselves: the
// loop over the others has no detour, and what comes over the link has the time of a step.
//
// A launch may say that it can begin while the kernel before it in the stream ends: weights, which no kernel writes
// meanwhile, come at once; x, y and all else waits.
#include "fill.cuh"
#include "product_plan.cuh"
#include "product_weights.cuh"

using namespace buddy;

static_assert(Room<Packed>::AT_SIDES == BUDDY_PRODUCT_SHARED && Room<Plain>::AT_SIDES == BUDDY_PRODUCT_SHARED_PLAIN,
              "Rust asks for the shared memory that the kernels use, and for x");

// Brings in steps, by one lane: addresses are then the same for the warp, which the copy instruction wants.
template <class Weights>
BUDDY_FN void fetch(const Weights& weights, const Shape& shape, const Counts& counts, const Room<Weights>& room) {
    u64 pitch = (u64)shape.per_row() * Weights::BYTES, policy = read_once();
    // A block's first tile is given. It takes each other one a step before it must know it, and no earlier: what one block has
    // taken, no other can help with at the end.
    u32 panels = shape.panels(), panel = blockIdx.x % panels, taken;
    auto take = [&] {
        wait_for_kernel_before();
        taken = (gridDim.x + panels - 1 - panel) / panels + atomicAdd(counts.taken(shape, panel), 1);
    };
    Part part = Part::first(shape);
    if (!part.none() && part.is_last(shape)) take();
#pragma unroll 1
    for (Turn<STAGES> turn; !part.none(); turn.next()) {
        room.used(turn.place).wait(turn.round ^ 1);
        const u8* from = weights.entry_at(part.entry(shape));
        u32 to = room.stage(turn.place);
        BUDDY_UNROLL
        for (u32 r = 0; r < ROWS; r++) {
            copy_bulk(to + r * room.ROW, from + r * pitch, room.ROW, room.come(turn.place), policy);
        }
        if (part.is_last(shape)) {
            // Where a panel has no more, the next one may.
            for (u32 i = 1; i < panels && taken >= shape.tiles(); i++) {
                panel = panel + 1 == panels ? 0 : panel + 1;
                take();
            }
            part = Part::of(shape, taken, panel);
        } else {
            part.step++;
        }
        Step note = Step::of(shape, part);
        store_four(room.note(turn.place), make_uint4(note.tile, note.panel, note.share, note.side));
        // Only now: a step has come when its note has, too.
        room.come(turn.place).expect(room.STAGE);
        if (!part.none() && part.is_last(shape)) take();
    }
    wait_for_kernel_before();
    if (add_and_publish(counts.blocks(), 1) == gridDim.x - 1) {
        see_published();
        *counts.blocks() = 0;
        for (u32 i = 0; i < panels; i++) *counts.taken(shape, i) = 0;
    }
}

// Brings in a panel of x, by one lane.
template <class Weights>
BUDDY_FN void fetch_sides(const u8* x, const Shape& shape, u32 panel, const Room<Weights>& room) {
    u32 bytes = shape.width(panel) * ENTRY;
    room.sides().expect(bytes * shape.sides);
    // All blocks begin at once: each with another side, so that they do not all ask for the same bytes.
    for (u32 i = 0; i < shape.sides; i++) {
        u32 side = (i + blockIdx.x) % shape.sides;
        const u8* from = x + ((u64)side * shape.columns + panel * shape.panel * VALUES) * 2;
        copy_bulk(room.side(shape, side), from, bytes, room.sides());
    }
}

// A lane's place in a warp's share of a step: where its first row, its quarter of x and what comes over the link lie in
// shared memory, which quarter that is, its first entry in the matrix, and how many entries further the eighth row below is.
struct Spot {
    u32 rows, side, near, quarter;
    u64 entry;
    u32 below;
};

// Bytes to the eighth row below, in shared memory.
template <class Weights>
constexpr u32 BELOW = 8 * Room<Weights>::ROW;

// A lane's quarter of an entry of x.
BUDDY_FN void load_side(const Spot& spot, u32 e, u32 (&out)[8]) {
    u32 at = spot.side + e * ENTRY;
    set(out, load_four(at), load_four(at + 16));
}

// Adds to four sums the product of an entry of two rows, `a` and `b`, and of x.
BUDDY_FN void add(float (&sums)[4][4], const u32 (&a)[8], const u32 (&b)[8], const u32 (&v)[8]) {
    BUDDY_UNROLL
    for (u32 i = 0; i < 4; i++) multiply(sums[i], a[2 * i], b[2 * i], a[2 * i + 1], b[2 * i + 1], v[2 * i], v[2 * i + 1]);
}

// The entries of a share that are not in layout B, by themselves: one to a lane at a time, with zeros in all other rows.
// Four bits of `odd` say so of each entry of a lane's two rows, `any` of those of all lanes. The last quarter of entry `ahead`
// of a lane's eight is on its way across the link.
template <class Weights>
BUDDY_FN void add_odd(const Weights& weights, const Spot& spot, u32 (&odd)[2], u32 any, u32 ahead, float (&sums)[4][4]) {
#pragma unroll 1
    while (any) {
        // The lowest that any lane has left: all lanes multiply by the same columns.
        u32 e = trailing_zeros(any) / 4, a[8], b[8], v[8], out[8] = {};
        bool low = (odd[0] >> 4 * e & 15) == 0;
        u32 bits = (low ? odd[1] : odd[0]) >> 4 * e & 15;
        u32 at = spot.rows + e * Weights::BYTES + (low ? BELOW<Weights> : 0);
        u32 near = ahead == 4 * low + e ? spot.near : 0;
        if (bits) weights.load_odd(at, spot.entry + e + (low ? spot.below : 0), spot.quarter, bits, near, out);
        __syncwarp();
        load_side(spot, e, v);
        BUDDY_UNROLL
        for (u32 k = 0; k < 8; k++) a[k] = low ? 0 : out[k], b[k] = low ? out[k] : 0;
        add(sums, a, b, v);
        odd[0] &= low ? ~0u : ~(15u << 4 * e);
        odd[1] &= low ? ~(15u << 4 * e) : ~0u;
        any = __reduce_or_sync(ALL, odd[0] | odd[1]);
    }
}

// Multiplies a warp's share of all steps. In one piece: with the loop over a share in a function of its own, the compiler
// makes 72 instructions more of it.
template <class Weights>
BUDDY_FN void multiply_steps(const Weights& weights, const u8* x, const Shape& shape, u32 warp, const Room<Weights>& room) {
    // Columns of a product beyond the sides hold anything: nobody looks at them.
    u32 lane = threadIdx.x % WARP, row = lane / 4, quarter = lane % 4, side = min(lane / 4, shape.sides - 1);
    // A lane's first share of a matrix, and where what it needs of a step and of a panel of x begins.
    u32 first = keep(row * (shape.per_row() / SHARE) + warp), below = keep(8 * (shape.per_row() / SHARE));
    u32 rows = keep(row * room.ROW + warp * SHARE * Weights::BYTES);
    u32 columns = keep(room.side(shape, side) + warp * SHARE * ENTRY + quarter * (ENTRY / 4));
    u32 next[2], odd[2], any, ahead, panel, round = 0;
    auto look_at = [&](const Step& step) {
        next[0] = weights.nibbles(first + step.share), next[1] = weights.nibbles(first + step.share + below);
    };
    // Which entries of the next step are odd. Of a lane's that overflow, the first comes across the link meanwhile.
    auto look_for_odd = [&](const Step& step) {
        odd[0] = weights.odd(next[0]), odd[1] = weights.odd(next[1]), any = __reduce_or_sync(ALL, odd[0] | odd[1]);
        ahead = Part::NONE;
        if (any == 0 || step.none()) return;
        u32 above = weights.overflows(odd[0]), under = weights.overflows(odd[1]);
        if (quarter == 3 && (above | under)) {
            u32 low = above == 0, e = trailing_zeros(low ? under : above) / 4;
            const u8* from = weights.far((u64)(first + step.share + low * below) * SHARE + e);
            fetch<CHUNK>(room.near(warp, row), from), fetch<CHUNK>(room.near(warp, row) + CHUNK, from + CHUNK);
            ahead = 4 * low + e;
        }
        __syncwarp();
    };
    Step step = Step::of(shape, Part::first(shape));
    panel = step.panel;
    look_at(step);
    if (threadIdx.x == 0 && !step.none()) {
        wait_for_kernel_before();
        fetch_sides(x, shape, panel, room);
    }
    look_for_odd(step);
    if (!step.none()) room.sides().wait(round);
    float sums[4][4] = {};
    // Gives them to the warp that adds up this tile's.
    Turn<ADDERS> slot;
    auto hand_over = [&] {
        float c[4];
        BUDDY_UNROLL
        for (u32 i = 0; i < 4; i++) {
            c[i] = (sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i]);
            sums[0][i] = sums[1][i] = sums[2][i] = sums[3][i] = 0;
        }
        room.added(slot.place).wait(slot.round ^ 1);
        store_four(room.sums(slot.place) + (warp * WARP + lane) * 16,
                   make_uint4(__float_as_uint(c[0]), __float_as_uint(c[1]), __float_as_uint(c[2]), __float_as_uint(c[3])));
        if (warp == 0 && lane == 0) store_two(room.name(slot.place), make_uint2(step.tile, step.panel));
        __syncwarp();
        if (lane == 0) room.found(slot.place).arrive();
        slot.next();
    };
#pragma unroll 1
    for (Turn<STAGES> turn; !step.none(); turn.next()) {
        if (step.panel != panel) {
            // Once all are here, nobody needs the one before.
            asm volatile("bar.sync 1, %0;" ::"n"(WARPS * WARP) : "memory");
            panel = step.panel;
            if (threadIdx.x == 0) fetch_sides(x, shape, panel, room);
            room.sides().wait(round ^= 1);
        }
        room.come(turn.place).wait(turn.round);
        uint4 note = load_four(room.note(turn.place));
        Step after = {note.x, note.y, note.z, note.w};
        look_at(after);
        Spot spot = {room.stage(turn.place) + rows, columns + step.side_at(), room.near(warp, row), quarter,
                     (u64)(first + step.share) * SHARE, below * SHARE};
        BUDDY_UNROLL
        for (u32 e = 0; e < SHARE; e++) {
            u32 a[8], b[8], v[8], at = spot.rows + e * Weights::BYTES;
            weights.load(at, spot.entry + e, quarter, a);
            weights.load(at + BELOW<Weights>, spot.entry + spot.below + e, quarter, b);
            load_side(spot, e, v);
            // What is not in layout B is left out here; four bits say so of each.
            if (any >> 4 * e & 15) {
                BUDDY_UNROLL
                for (u32 k = 0; k < 8; k++) {
                    a[k] = odd[0] >> 4 * e & 15 ? 0 : a[k];
                    b[k] = odd[1] >> 4 * e & 15 ? 0 : b[k];
                }
            }
            add(sums, a, b, v);
        }
        add_odd(weights, spot, odd, any, ahead, sums);
        __syncwarp();
        if (lane == 0) room.used(turn.place).arrive();
        look_for_odd(after);
        if (step.is_last()) hand_over();
        step = after;
    }
    // No tile, to each of them.
    for (u32 i = 0; i < ADDERS; i++) hand_over();
}

// Adds up what the warps found for the tiles of a slot: four sums to a lane, two sides of row `lane / 4` and of the eighth
// below. `parts` has room for those of all tiles and panels.
template <class Weights>
BUDDY_FN void add_up(const Shape& shape, u32 slot, float* y, float4* parts, const Counts& counts,
                     const Room<Weights>& room) {
    u32 lane = threadIdx.x % WARP, side = lane % 4 * 2, tiles = shape.tiles(), panels = shape.panels();
    auto put = [&](u32 tile, const float (&sum)[4]) {
        float* at = y + (u64)side * shape.rows + tile * ROWS + lane / 4;
        if (side < shape.sides) at[0] = sum[0], at[8] = sum[2];
        if (side + 1 < shape.sides) at[shape.rows] = sum[1], at[shape.rows + 8] = sum[3];
    };
    wait_for_kernel_before();
#pragma unroll 1
    for (u32 round = 0;; round ^= 1) {
        room.found(slot).wait(round);
        uint2 name = load_two(room.name(slot));
        u32 tile = name.x, panel = name.y;
        if (tile == Part::NONE) break;
        float sum[4] = {};
        BUDDY_UNROLL
        for (u32 warp = 0; warp < WARPS; warp++) {
            uint4 v = load_four(room.sums(slot) + (warp * WARP + lane) * 16);
            sum[0] += __uint_as_float(v.x), sum[1] += __uint_as_float(v.y);
            sum[2] += __uint_as_float(v.z), sum[3] += __uint_as_float(v.w);
        }
        __syncwarp();
        if (lane == 0) room.added(slot).arrive();
        if (panels == 1) {
            put(tile, sum);
            continue;
        }
        __stcg(parts + (panel * tiles + tile) * WARP + lane, make_float4(sum[0], sum[1], sum[2], sum[3]));
        __syncwarp();
        // The last panel of a tile to be done adds up what all gave.
        bool last = lane == 0 && add_and_publish(counts.done(tile), 1) == panels - 1;
        if (last) *counts.done(tile) = 0, see_published();
        if (!__any_sync(ALL, last)) continue;
        __syncwarp();
        float all[4] = {};
        for (u32 i = 0; i < panels; i++) {
            float4 part = __ldcg(parts + (i * tiles + tile) * WARP + lane);
            all[0] += part.x, all[1] += part.y, all[2] += part.z, all[3] += part.w;
        }
        put(tile, all);
    }
}

template <class Weights>
BUDDY_FN void product(const Weights& weights, const u8* x, float* y, float4* parts, const Counts& counts,
                      const Shape& shape) {
    extern __shared__ __align__(128) u8 memory[];
    Room<Weights> room = {shared_address(memory)};
    if (threadIdx.x == 0) room.init();
    __syncthreads();
    let_kernel_after_begin();
    // The compiler knows of this that it is the same for the whole warp.
    u32 warp = __shfl_sync(ALL, threadIdx.x / WARP, 0);
    if (warp < WARPS) return multiply_steps(weights, x, shape, warp, room);
    if (warp < WARPS + ADDERS) return add_up(shape, warp - WARPS, y, parts, counts, room);
    if (elect()) fetch(weights, shape, counts, room);
}

// Rows are a multiple of 16, columns of a step's values, and a panel of a step's entries. x has its sides, 1 to 8, one after
// the other, and so has y; x is finite, since zeros stand for entries that come later. x and weights are aligned to 16 bytes.
// Counts are zeros, `parts` has 16 bytes to a lane for every tile and panel. Compressed weights are a buffer of bf16 with one
// target, 4/3x.
#define BUDDY_PRODUCT_BOUNDS __launch_bounds__((WARPS + ADDERS + 1) * WARP, 1)

extern "C" __global__ void BUDDY_PRODUCT_BOUNDS product_fused(const __grid_constant__ BuddyView weights, const u8* x, float* y,
                                                              float4* parts, Counts counts, const __grid_constant__ Shape shape) {
    product(Packed{weights}, x, y, parts, counts, shape);
}

extern "C" __global__ void BUDDY_PRODUCT_BOUNDS product_ordered(const u8* weights, const __grid_constant__ BuddyView view,
                                                                const u8* x, float* y, float4* parts, Counts counts,
                                                                const __grid_constant__ Shape shape) {
    product(Ordered{{view}, weights}, x, y, parts, counts, shape);
}

extern "C" __global__ void BUDDY_PRODUCT_BOUNDS product_plain(const u8* weights, const u8* x, float* y, float4* parts,
                                                              Counts counts, const __grid_constant__ Shape shape) {
    product(Plain{weights}, x, y, parts, counts, shape);
}

// Normal weights, sigma 0.02; of `share` in 65536 entries, a third are zeros, a third values of any size, which overflow,
// and a third a few values among zeros.
extern "C" __global__ void product_fill(u32* to, u64 entries, u64 seed, u32 share) {
    let_kernel_after_begin();
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
