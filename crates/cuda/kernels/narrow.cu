// y = W x with bf16 weights in frozen memory at 4/3x, for few tokens: the decode step of a language model.
//
// Weights go from their places to tensor cores without being plain anywhere but in registers. The sixteen rows of a fragment are
// a tile of W. Four lanes share an entry of a row, each with a quarter of it as it is stored: two pairs of values to each of four
// fragments, so that x can be as it is.
//
// In a block, one warp asks the bulk copy engine for entries, step by step along a tile; most warps multiply; and some add up
// what these found. A launch may say that it can begin while the kernel before it in the stream ends: weights, which no kernel
// writes meanwhile, come at once; x, y and all else waits.
#include "narrow_plan.cuh"
#include "linear_fetch.cuh"
#include "linear_odd.cuh"

using namespace buddy;
using namespace buddy::narrow;

static_assert(narrow::Room::AT_SIDES == BUDDY_NARROW_SHARED, "Rust asks for the shared memory that the kernel uses, and for x");

// Brings in steps, by one warp; one lane of it asks for weights, and each looks at the nibbles of its columns.
BUDDY_FN void fetch(const Linear& linear, const Cut& cut, const Counts& counts, const narrow::Room& room) {
    const Weights& weights = linear.weights;
    u64 policy = evict_first_policy();
    u32 lane = threadIdx.x % WARP, panels = cut.panels(), panel = Part::first(cut).panel, taken = 0;
    // A block's first tile is given, and where x is one panel its second, so that as much as there is room for is asked for before
    // anything waits for the kernel before. It takes each other one a step before it must know it, and no earlier: what one block
    // has taken, no other can help with at the end.
    auto take = [&] {
        wait_on_dependent_grids();
        u32 given = panels == 1 ? 2 * gridDim.x : Part::given(cut, panel);
        if (lane == 0) taken = given + atomicAdd(counts.taken(cut, panel), 1);
    };
    constexpr u32 EACH = (STEP + WARP - 1) / WARP;
    uint2 nibbles[EACH];
    auto look_at = [&](const Part& part) {
        u32 columns = part.none() ? 0 : part.columns(cut);
        BUDDY_UNROLL
        for (u32 i = 0; i < EACH; i++) {
            u32 column = i * WARP + lane;
            nibbles[i] = !IS_PLAIN && column < columns ? __ldg((const uint2*)weights.nibbles + part.column(cut) + column) : make_uint2(0x66666666u, 0x66666666u);
        }
    };
    Part part = Part::first(cut);
    bool is_first = true;
    if (!part.none()) look_at(part);
#pragma unroll 1
    for (Turn<STAGES> turn; !part.none(); turn.next()) {
        room.empty(turn.place).wait(turn.round ^ 1);
        u32 bytes = part.columns(cut) * Weights::COLUMN, tag = ~0u;
        u64 first = part.column(cut);
        if (lane == 0) cp_async_bulk(room.column(turn.place, 0), weights.device + first * Weights::COLUMN, bytes, room.full(turn.place), policy);
        BUDDY_UNROLL
        for (u32 i = 0; i < EACH; i++) {
            u32 column = i * WARP + lane;
            if (column < STEP) sts64(room.nibbles(turn.place, column), nibbles[i]);
            u32 upper = equal_nibbles(nibbles[i].x, RAW), lower = equal_nibbles(nibbles[i].y, RAW);
            if ((upper | lower) != 0 && tag == ~0u) {
                u32 row = upper != 0 ? trailing_zeros(upper) / 4 : 8 + trailing_zeros(lower) / 4;
                const u8* from = weights.last_sector((first + column) * TILE_ROWS + row);
                if (from == nullptr) continue;
                cp_async<CHUNK>(room.near(turn.place, lane), from), cp_async<CHUNK>(room.near(turn.place, lane) + CHUNK, from + CHUNK);
                tag = column * TILE_ROWS + row;
            }
        }
        sts32(room.tag(turn.place, lane), tag);
        cp_async_mbarrier_arrive(room.full(turn.place));
        if (part.is_last(cut)) {
            if (is_first && panels == 1) taken = blockIdx.x + gridDim.x;
            else if (is_first) take();
            is_first = false;
            taken = __shfl_sync(ALL, taken, 0);
            // Where a panel has no more, the next one may.
            for (u32 i = 1; i < panels && taken >= cut.tiles(); i++) {
                panel = panel + 1 == panels ? 0 : panel + 1;
                take();
                taken = __shfl_sync(ALL, taken, 0);
            }
            part = Part::of(cut, taken, panel);
        } else {
            part.step++;
        }
        Note note = Note::of(cut, part);
        __syncwarp();
        // Only now: a step has come when its nibbles and its note have, too.
        if (lane == 0) {
            sts128(room.note(turn.place), make_uint4(note.tile, note.panel, note.columns, note.side));
            room.full(turn.place).arrive_expect_tx(bytes);
        }
        look_at(part);
        if (!part.none() && part.is_last(cut) && !is_first) take();
    }
    wait_on_dependent_grids();
    if (lane == 0 && atomic_add_release(counts.blocks(), 1) == gridDim.x - 1) {
        fence_acq_rel();
        *counts.blocks() = 0;
        for (u32 i = 0; i < panels; i++) *counts.taken(cut, i) = 0;
    }
}

// Brings in a panel of x, by one warp, a token to a lane: what the first steps need comes first. Blocks of a cluster that all need it share
// the tokens.
template <u32 BLOCKS>
BUDDY_FN void fetch_sides(const Linear& linear, const Cut& cut, u32 panel, const narrow::Room& room) {
    u32 width = cut.width(panel), lane = threadIdx.x % WARP;
    // All blocks begin at once: each with another token, so that they do not all ask for the same bytes.
    u32 token = (lane + blockIdx.x) % cut.tokens;
    const u8* from = linear.x + ((u64)token * cut.per_row + panel * cut.panel) * ENTRY;
    for (u32 part = 0, at = 0; part < PARTS; part++) {
        u32 columns = part + 1 < PARTS ? min(STEP, width - at) : width - at, bytes = columns * ENTRY;
        if (lane == 0) room.x_full(part).arrive_expect_tx(bytes * cut.tokens);
        __syncwarp();
        if (lane < cut.tokens && bytes > 0 && token % BLOCKS == blockIdx.x % BLOCKS) {
            u32 to = room.side(cut, token) + at * ENTRY;
            if (BLOCKS == 1) cp_async_bulk(to, from + at * ENTRY, bytes, room.x_full(part));
            else cp_async_bulk_multicast(to, from + at * ENTRY, bytes, room.x_full(part), (1 << BLOCKS) - 1);
        }
        at += columns;
    }
}

// Sums of a lane: of each eight tokens, several, so that products need not wait for one another.
constexpr u32 APART = 4 / EIGHTS;
typedef float Found[APART][4];

// Adds the product of an entry of two rows, `a` and `b`, and of x.
BUDDY_FN void add(Found& sums, const u32 (&a)[8], const u32 (&b)[8], uint4 v, uint4 w) {
    const u32 x[8] = {v.x, v.y, v.z, v.w, w.x, w.y, w.z, w.w};
    BUDDY_UNROLL
    for (u32 i = 0; i < 4; i++) mma_m16n8k16(sums[i % APART], a[2 * i], b[2 * i], a[2 * i + 1], b[2 * i + 1], x[2 * i], x[2 * i + 1]);
}

// Multiplies a warp's share of all steps.
BUDDY_FN void multiply_steps(const Linear& linear, const Cut& cut, u32 warp, const narrow::Room& room) {
    // Columns of a product beyond the tokens hold anything: nobody looks at them.
    Lanes lanes(linear.weights);
    u32 lane = threadIdx.x % WARP, sides[EIGHTS], round = 0, come = 0;  // parts of x
    BUDDY_UNROLL
    for (u32 i = 0; i < EIGHTS; i++) {
        u32 token = min(8 * i + lane % 8, cut.tokens - 1);
        sides[i] = keep(room.side(cut, token) + warp * SHARE * ENTRY + lane / 8 * CHUNK);
    }
    Part first = Part::first(cut);
    Note note = Note::of(cut, first);
    u32 panel = first.panel;
    // A block without work asks for its share all the same.
    if (warp == 0 && (CLUSTER > 1 || !note.none())) {
        wait_on_dependent_grids();
        fetch_sides<CLUSTER>(linear, cut, panel, room);
    }
    Found sums[EIGHTS] = {};
    // Gives them to the warp that adds up this tile's.
    Turn<ADDERS> slot;
    auto hand_over = [&] {
        room.sums_empty(slot.place).wait(slot.round ^ 1);
        BUDDY_UNROLL
        for (u32 t = 0; t < EIGHTS; t++) {
            u32 c[4];
            BUDDY_UNROLL
            for (u32 i = 0; i < 4; i++) {
                float sum = 0;
                BUDDY_UNROLL
                for (u32 k = 0; k < APART; k++) sum += sums[t][k][i], sums[t][k][i] = 0;
                c[i] = __float_as_uint(sum);
            }
            sts128(room.sums(slot.place, warp, t), make_uint4(c[0], c[1], c[2], c[3]));
        }
        if (warp == 0 && lane == 0) sts64(room.name(slot.place), make_uint2(note.tile, note.panel));
        room.sums_full(slot.place).arrive();
        slot.next();
    };
#pragma unroll 1
    for (Turn<STAGES> turn; !note.none(); turn.next()) {
        if (note.panel != panel) {
            for (; come < PARTS; come++) room.x_full(come).wait(round);
            // Once all are here, nobody needs the one before.
            named_barrier<narrow::WARPS * WARP>();
            panel = note.panel, round ^= 1, come = 0;
            if (warp == 0) fetch_sides<1>(linear, cut, panel, room);
        }
        // The first steps of a panel each need one more.
        if (come < PARTS) room.x_full(come++).wait(round);
        room.full(turn.place).wait(turn.round);
        uint4 next = lds128(room.note(turn.place));
        BUDDY_UNROLL
        for (u32 e = 0; e < SHARE; e++) {
            u32 at = warp * SHARE + e, a[8], b[8];
            if (at >= note.columns) break;
            uint2 odd = IS_PLAIN ? make_uint2(0, 0) : odd_of(lds64(room.nibbles(turn.place, at)));
            u32 column = room.column(turn.place, at);
            lanes.load(column, a, b);
            if (odd.x | odd.y) {
                u64 first = ((u64)note.tile * cut.per_row + note.panel * cut.panel + note.side_at() / ENTRY + at) * TILE_ROWS;
                lanes.load_others(room.tag(turn.place, at % WARP), room.near(turn.place, at % WARP), at, column, first, odd, a, b);
            }
            BUDDY_UNROLL
            for (u32 t = 0; t < EIGHTS; t++) {
                u32 x = sides[t] + note.side_at() + e * ENTRY;
                add(sums[t], a, b, ldmatrix4(x), ldmatrix4(x + ENTRY / 2));
            }
        }
        __syncwarp();
        if (lane == 0) room.empty(turn.place).arrive();
        if (note.is_last()) hand_over();
        note = {next.x, next.y, next.z, next.w};
    }
    // No tile, to each of them.
    for (u32 i = 0; i < ADDERS; i++) hand_over();
    // Nobody ends before what other blocks asked for it has come.
    for (; CLUSTER > 1 && come < PARTS; come++) room.x_full(come).wait(round);
}

// Adds up what the warps found for the tiles of a slot: four sums to a lane of each eight tokens, two tokens of its row and of the
// eighth below.
BUDDY_FN void add_up(const Linear& linear, const Cut& cut, u32 slot, const Counts& counts, const narrow::Room& room) {
    u32 lane = threadIdx.x % WARP, tiles = cut.tiles(), panels = cut.panels();
    auto put = [&](u32 tile, u32 eight, float4 sum) {
        u32 row = tile * TILE_ROWS + Lanes::row_of(lane), token = 8 * eight + lane % 4 * 2;
        put_sums(linear, row, token, sum.x, sum.z), put_sums(linear, row, token + 1, sum.y, sum.w);
    };
    auto part = [&](u32 panel, u32 tile, u32 eight) { return linear.parts + ((panel * tiles + tile) * EIGHTS + eight) * WARP + lane; };
    auto add = [](float4& sum, float4 v) { sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w; };
    wait_on_dependent_grids();
#pragma unroll 1
    for (u32 round = 0;; round ^= 1) {
        room.sums_full(slot).wait(round);
        uint2 name = lds64(room.name(slot));
        u32 tile = name.x, panel = name.y;
        if (tile == Part::NONE) break;
        float4 sums[EIGHTS] = {};
        BUDDY_UNROLL
        for (u32 warp = 0; warp < narrow::WARPS; warp++) {
            BUDDY_UNROLL
            for (u32 t = 0; t < EIGHTS; t++) {
                uint4 v = lds128(room.sums(slot, warp, t));
                add(sums[t], make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w)));
            }
        }
        room.sums_empty(slot).arrive();
        if (panels == 1) {
            BUDDY_UNROLL
            for (u32 t = 0; t < EIGHTS; t++) put(tile, t, sums[t]);
            continue;
        }
        BUDDY_UNROLL
        for (u32 t = 0; t < EIGHTS; t++) __stcg(part(panel, tile, t), sums[t]);
        __syncwarp();
        // The last panel of a tile to be done adds up what all gave.
        bool last = lane == 0 && atomic_add_release(counts.done(tile), 1) == panels - 1;
        if (last) *counts.done(tile) = 0, fence_acq_rel();
        if (!__any_sync(ALL, last)) continue;
        __syncwarp();
        BUDDY_UNROLL
        for (u32 t = 0; t < EIGHTS; t++) {
            float4 all = {};
            for (u32 i = 0; i < panels; i++) add(all, __ldcg(part(i, tile, t)));
            put(tile, t, all);
        }
    }
}

constexpr u32 THREADS = (narrow::WARPS + ADDERS + 1) * WARP;

// `panel` is a multiple of a step's entries; x and weights are aligned to 128 bytes. Counts are zeros, `parts` has 16 bytes to a lane
// for every tile, panel and eight tokens.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    linear_narrow(const __grid_constant__ Linear linear, u32 panel) {
    BUDDY_DYNAMIC_SHARED(u8, memory);
    narrow::Room room = {shared_address(memory)};
    Cut cut = {linear.outputs, linear.per_row(), linear.tokens, panel};
    Counts counts = {linear.counts};
    // The compiler knows of this that it is the same for the whole warp.
    u32 warp = __shfl_sync(ALL, threadIdx.x / WARP, 0);
    // The warp that fetches makes the barriers, and waits for nobody before it asks for weights.
    if (warp == narrow::WARPS + ADDERS) {
        if (threadIdx.x % WARP == 0) room.init();
        __syncwarp();
        if (CLUSTER > 1) cluster_arrive();
        else barrier_arrive<THREADS>();
        launch_dependent_grids();
        fetch(linear, cut, counts, room);
        // Nobody ends between arriving and waiting.
        if (CLUSTER > 1) cluster_wait();
        return;
    }
    if (CLUSTER > 1) cluster_arrive(), cluster_wait();
    else barrier_wait<THREADS>();
    if (warp < narrow::WARPS) return multiply_steps(linear, cut, warp, room);
    add_up(linear, cut, warp - narrow::WARPS, counts, room);
}
