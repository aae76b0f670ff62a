// y = W x with bf16 weights in compressed memory: the decode step of a language model, 1 to 8 right-hand sides.
//
// Weights go from their places to tensor cores without being plain anywhere but in registers. The sixteen rows of a
// fragment are sixteen rows of W. Four lanes share an entry of a row, each with a quarter of it: 16 values that follow
// one another, four of them to each of four fragments. The order of columns in a product is free as long as both
// operands have the same one, so a lane's share of x is 16 values that follow one another too.
//
// Blocks are persistent, one to a multiprocessor, and warp-specialised. One producer warp asks the bulk copy engine for steps of
// sixteen rows, into a ring of stages with a full and an empty mbarrier each; consumer warps multiply; epilogue warps reduce
// what these leave in slots, which have such barriers too, and write y. The scheduler is dynamic, an atomic counter of
// tiles: equal shares would not take equal time. x lies in shared memory; where it does not fit, the product is split-K: columns
// are cut into panels, a block keeps to one while that has work and then helps with the next, and whoever does the last panel of
// a tile reduces the partial sums of all, in a fixed order. Entries of rare layouts and those that overflow are multiplied after
// the others of their step: the loop over the others has no detour, and what comes over the link has the time of a step.
//
// Programmatic dependent launch: if a launch allows it, weights, which no kernel writes meanwhile, are fetched while the kernel
// before it in the stream ends; x, y and all else waits.
#include "fill.cuh"
#include "frozen.cuh"
#include "product_plan.cuh"
#include "product_weights.cuh"

using namespace buddy;

static_assert(SharedStorage<Packed>::AT_X == BUDDY_PRODUCT_SHARED &&
                  SharedStorage<Plain>::AT_X == BUDDY_PRODUCT_SHARED_PLAIN,
              "Rust asks for the shared memory that the kernels use, and for x");

// The producer, one lane: addresses are then the same for the warp, which the copy instruction wants.
template <class Weights>
BUDDY_FN void produce(const Weights& weights, const Shape& shape, const Counters& counters, const SharedStorage<Weights>& shared) {
    u64 pitch = (u64)shape.per_row() * Weights::BYTES, policy = evict_first_policy();
    // A block's first tile is given. It takes each other one from the scheduler a step before it must know it, and no earlier:
    // what one block has taken, no other can help with at the end.
    u32 panels = shape.panels(), panel = blockIdx.x % panels, taken;
    auto take = [&] {
        wait_on_dependent_grids();
        taken = (gridDim.x + panels - 1 - panel) / panels + atomicAdd(counters.next_tile(shape, panel), 1);
    };
    WorkTile work = WorkTile::first(shape);
    if (!work.none() && work.is_last(shape)) take();
#pragma unroll 1
    for (PipelineState<STAGES> state; !work.none(); state.advance()) {
        shared.empty(state.stage).wait(state.phase ^ 1);
        const u8* from = weights.entry_at(work.entry(shape));
        u32 to = shared.stage(state.stage);
        BUDDY_UNROLL
        for (u32 r = 0; r < ROWS; r++) {
            cp_async_bulk(to + r * shared.ROW, from + r * pitch, shared.ROW, shared.full(state.stage), policy);
        }
        if (work.is_last(shape)) {
            // Where a panel has no more, the next one may.
            for (u32 i = 1; i < panels && taken >= shape.tiles(); i++) {
                panel = panel + 1 == panels ? 0 : panel + 1;
                take();
            }
            work = WorkTile::of(shape, taken, panel);
        } else {
            work.step++;
        }
        Step descriptor = Step::of(shape, work);
        sts128(shared.descriptor(state.stage), make_uint4(descriptor.tile, descriptor.panel, descriptor.share, descriptor.side));
        // Only now: a stage is full when its descriptor is there, too.
        shared.full(state.stage).arrive_expect_tx(shared.STAGE);
        if (!work.none() && work.is_last(shape)) take();
    }
    wait_on_dependent_grids();
    if (atomic_add_release(counters.blocks_done(), 1) == gridDim.x - 1) {
        fence_acq_rel();
        *counters.blocks_done() = 0;
        for (u32 i = 0; i < panels; i++) *counters.next_tile(shape, i) = 0;
    }
}

// Fetches a panel of x, by one lane.
template <class Weights>
BUDDY_FN void load_x(const u8* x, const Shape& shape, u32 panel, const SharedStorage<Weights>& shared) {
    u32 bytes = shape.width(panel) * ENTRY;
    shared.x_full().arrive_expect_tx(bytes * shape.sides);
    // All blocks begin at once: each with another side, so that they do not all ask for the same bytes.
    for (u32 i = 0; i < shape.sides; i++) {
        u32 side = (i + blockIdx.x) % shape.sides;
        const u8* from = x + ((u64)side * shape.columns + panel * shape.panel * VALUES) * 2;
        cp_async_bulk(shared.x(shape, side), from, bytes, shared.x_full());
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
constexpr u32 BELOW = 8 * SharedStorage<Weights>::ROW;

// A lane's quarter of an entry of x.
BUDDY_FN void load_side(const Spot& spot, u32 e, u32 (&out)[8]) {
    u32 at = spot.side + e * ENTRY;
    set(out, lds128(at), lds128(at + 16));
}

// Adds to four sums the product of an entry of two rows, `a` and `b`, and of x.
BUDDY_FN void add(float (&sums)[4][4], const u32 (&a)[8], const u32 (&b)[8], const u32 (&v)[8]) {
    BUDDY_UNROLL
    for (u32 i = 0; i < 4; i++) mma_m16n8k16(sums[i], a[2 * i], b[2 * i], a[2 * i + 1], b[2 * i + 1], v[2 * i], v[2 * i + 1]);
}

// The entries of a share that are not in layout B, by themselves: one to a lane at a time, with zeros in all other rows.
// Four bits of `odd` say so of each entry of a lane's two rows, `any` of those of all lanes. The last quarter of entry
// `prefetched` of a lane's eight is on its way across the link.
template <class Weights>
BUDDY_FN void add_odd(const Weights& weights, const Spot& spot, u32 (&odd)[2], u32 any, u32 prefetched, float (&sums)[4][4]) {
#pragma unroll 1
    while (any) {
        // The lowest that any lane has left: all lanes multiply by the same columns.
        u32 e = trailing_zeros(any) / 4, a[8], b[8], v[8], out[8] = {};
        bool low = (odd[0] >> 4 * e & 15) == 0;
        u32 bits = (low ? odd[1] : odd[0]) >> 4 * e & 15;
        u32 at = spot.rows + e * Weights::BYTES + (low ? BELOW<Weights> : 0);
        u32 near = prefetched == 4 * low + e ? spot.near : 0;
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

// A consumer: multiplies a warp's share of all steps. In one piece: with the loop over a share in a function of its own, the
// compiler makes 72 instructions more of it.
template <class Weights>
BUDDY_FN void consume(const Weights& weights, const u8* x, const Shape& shape, u32 warp, const SharedStorage<Weights>& shared) {
    // Columns of a product beyond the sides hold anything: nobody looks at them.
    u32 lane = threadIdx.x % WARP, row = lane / 4, quarter = lane % 4, side = min(lane / 4, shape.sides - 1);
    // A lane's first share of a matrix, and where what it needs of a step and of a panel of x begins.
    u32 first = keep(row * (shape.per_row() / SHARE) + warp), below = keep(8 * (shape.per_row() / SHARE));
    u32 rows = keep(row * shared.ROW + warp * SHARE * Weights::BYTES);
    u32 columns = keep(shared.x(shape, side) + warp * SHARE * ENTRY + quarter * (ENTRY / 4));
    u32 next[2], odd[2], any, prefetched, panel, x_phase = 0;
    auto prefetch_nibbles = [&](const Step& step) {
        next[0] = weights.nibbles(first + step.share), next[1] = weights.nibbles(first + step.share + below);
    };
    // Which entries of the next step are odd. Of a lane's that overflow, the first comes across the link meanwhile.
    auto prefetch_overflow = [&](const Step& step) {
        odd[0] = weights.odd(next[0]), odd[1] = weights.odd(next[1]), any = __reduce_or_sync(ALL, odd[0] | odd[1]);
        prefetched = WorkTile::NONE;
        if (any == 0 || step.none()) return;
        u32 above = weights.overflows(odd[0]), under = weights.overflows(odd[1]);
        if (quarter == 3 && (above | under)) {
            u32 low = above == 0, e = trailing_zeros(low ? under : above) / 4;
            const u8* from = weights.overflow_at((u64)(first + step.share + low * below) * SHARE + e);
            cp_async<CHUNK>(shared.overflow(warp, row), from), cp_async<CHUNK>(shared.overflow(warp, row) + CHUNK, from + CHUNK);
            prefetched = 4 * low + e;
        }
        __syncwarp();
    };
    Step step = Step::of(shape, WorkTile::first(shape));
    panel = step.panel;
    prefetch_nibbles(step);
    if (threadIdx.x == 0 && !step.none()) {
        wait_on_dependent_grids();
        load_x(x, shape, panel, shared);
    }
    prefetch_overflow(step);
    if (!step.none()) shared.x_full().wait(x_phase);
    float sums[4][4] = {};
    // Gives them to the epilogue warp of the next slot.
    PipelineState<EPILOGUE_WARPS> slot;
    auto commit_sums = [&] {
        float c[4];
        BUDDY_UNROLL
        for (u32 i = 0; i < 4; i++) {
            c[i] = (sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i]);
            sums[0][i] = sums[1][i] = sums[2][i] = sums[3][i] = 0;
        }
        shared.sums_empty(slot.stage).wait(slot.phase ^ 1);
        sts128(shared.sums(slot.stage) + (warp * WARP + lane) * 16,
               make_uint4(__float_as_uint(c[0]), __float_as_uint(c[1]), __float_as_uint(c[2]), __float_as_uint(c[3])));
        if (warp == 0 && lane == 0) sts64(shared.sums_tag(slot.stage), make_uint2(step.tile, step.panel));
        __syncwarp();
        if (lane == 0) shared.sums_full(slot.stage).arrive();
        slot.advance();
    };
#pragma unroll 1
    for (PipelineState<STAGES> state; !step.none(); state.advance()) {
        if (step.panel != panel) {
            // Once all consumers are here, nobody needs the one before.
            asm volatile("bar.sync 1, %0;" ::"n"(MMA_WARPS * WARP) : "memory");
            panel = step.panel;
            if (threadIdx.x == 0) load_x(x, shape, panel, shared);
            shared.x_full().wait(x_phase ^= 1);
        }
        shared.full(state.stage).wait(state.phase);
        uint4 descriptor = lds128(shared.descriptor(state.stage));
        Step after = {descriptor.x, descriptor.y, descriptor.z, descriptor.w};
        prefetch_nibbles(after);
        Spot spot = {shared.stage(state.stage) + rows, columns + step.side_at(), shared.overflow(warp, row), quarter,
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
        add_odd(weights, spot, odd, any, prefetched, sums);
        __syncwarp();
        if (lane == 0) shared.empty(state.stage).arrive();
        prefetch_overflow(after);
        if (step.is_last()) commit_sums();
        step = after;
    }
    // No tile: each epilogue warp ends.
    for (u32 i = 0; i < EPILOGUE_WARPS; i++) commit_sums();
}

// The epilogue of the tiles of a slot: reduces what the consumers left there, four sums to a lane, two sides of row `lane / 4`
// and of the eighth below. `partials` is the split-K workspace: room for those of all tiles and panels.
template <class Weights>
BUDDY_FN void epilogue(const Shape& shape, u32 slot, float* y, float4* partials, const Counters& counters,
                       const SharedStorage<Weights>& shared) {
    u32 lane = threadIdx.x % WARP, side = lane % 4 * 2, tiles = shape.tiles(), panels = shape.panels();
    auto put = [&](u32 tile, const float (&sum)[4]) {
        float* at = y + (u64)side * shape.rows + tile * ROWS + lane / 4;
        if (side < shape.sides) at[0] = sum[0], at[8] = sum[2];
        if (side + 1 < shape.sides) at[shape.rows] = sum[1], at[shape.rows + 8] = sum[3];
    };
    wait_on_dependent_grids();
#pragma unroll 1
    for (u32 phase = 0;; phase ^= 1) {
        shared.sums_full(slot).wait(phase);
        uint2 tag = lds64(shared.sums_tag(slot));
        u32 tile = tag.x, panel = tag.y;
        if (tile == WorkTile::NONE) break;
        float sum[4] = {};
        BUDDY_UNROLL
        for (u32 warp = 0; warp < MMA_WARPS; warp++) {
            uint4 v = lds128(shared.sums(slot) + (warp * WARP + lane) * 16);
            sum[0] += __uint_as_float(v.x), sum[1] += __uint_as_float(v.y);
            sum[2] += __uint_as_float(v.z), sum[3] += __uint_as_float(v.w);
        }
        __syncwarp();
        if (lane == 0) shared.sums_empty(slot).arrive();
        if (panels == 1) {
            put(tile, sum);
            continue;
        }
        __stcg(partials + (panel * tiles + tile) * WARP + lane, make_float4(sum[0], sum[1], sum[2], sum[3]));
        __syncwarp();
        // Split-K: whoever does the last panel of a tile reduces the partial sums of all.
        bool last = lane == 0 && atomic_add_release(counters.panels_done(tile), 1) == panels - 1;
        if (last) *counters.panels_done(tile) = 0, fence_acq_rel();
        if (!__any_sync(ALL, last)) continue;
        __syncwarp();
        float all[4] = {};
        for (u32 i = 0; i < panels; i++) {
            float4 part = __ldcg(partials + (i * tiles + tile) * WARP + lane);
            all[0] += part.x, all[1] += part.y, all[2] += part.z, all[3] += part.w;
        }
        put(tile, all);
    }
}

template <class Weights>
BUDDY_FN void product(const Weights& weights, const u8* x, float* y, float4* partials, const Counters& counters,
                      const Shape& shape) {
    extern __shared__ __align__(128) u8 memory[];
    SharedStorage<Weights> shared = {shared_address(memory)};
    if (threadIdx.x == 0) shared.init();
    __syncthreads();
    launch_dependent_grids();
    // The compiler knows of this that it is the same for the whole warp.
    u32 warp = __shfl_sync(ALL, threadIdx.x / WARP, 0);
    if (warp < MMA_WARPS) return consume(weights, x, shape, warp, shared);
    if (warp < MMA_WARPS + EPILOGUE_WARPS) return epilogue(shape, warp - MMA_WARPS, y, partials, counters, shared);
    if (elect_one()) produce(weights, shape, counters, shared);
}

// Rows are a multiple of 16, columns of a step's values, and a panel of a step's entries. x has its sides, 1 to 8, one after
// the other, and so has y; x is finite, since zeros stand for entries that come later. x and weights are aligned to 16 bytes.
// Counters are zeros, `partials` has 16 bytes to a lane for every tile and panel. Compressed weights are a buffer of bf16 with one
// target, 4/3x.
#define BUDDY_PRODUCT_BOUNDS __launch_bounds__((MMA_WARPS + EPILOGUE_WARPS + 1) * WARP, 1)

extern "C" __global__ void BUDDY_PRODUCT_BOUNDS product_fused(const __grid_constant__ BuddyView weights, const u8* x, float* y,
                                                              float4* partials, Counters counters, const __grid_constant__ Shape shape) {
    product(Packed{weights}, x, y, partials, counters, shape);
}

extern "C" __global__ void BUDDY_PRODUCT_BOUNDS product_ordered(const u8* weights, const __grid_constant__ BuddyView view,
                                                                const u8* x, float* y, float4* partials, Counters counters,
                                                                const __grid_constant__ Shape shape) {
    product(Ordered{{view}, weights}, x, y, partials, counters, shape);
}

extern "C" __global__ void BUDDY_PRODUCT_BOUNDS product_plain(const u8* weights, const u8* x, float* y, float4* partials,
                                                              Counters counters, const __grid_constant__ Shape shape) {
    product(Plain{weights}, x, y, partials, counters, shape);
}

// Normal weights, sigma 0.02; of `share` in 65536 entries, a third are zeros, a third values of any size, which overflow,
// and a third a few values among zeros.
extern "C" __global__ void product_fill(u32* to, u64 entries, u64 seed, u32 share) {
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

// Plain weights in the order of a frozen matrix, and the words of each entry as the kernels of linear layers read plain ones
// (linear_odd.cuh): a quarter's two halves are 64 bytes apart, the second first in every other two rows. `row` is the entries of one.
extern "C" __global__ void product_tiles(const u32* from, u32* to, u64 entries, u32 row) {
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

// Counters sums that are further from an exact one than rounding explains; `limit` is a share of the sum of magnitudes.
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
