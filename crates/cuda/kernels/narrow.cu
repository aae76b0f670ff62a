// Linear layer y = W x with bf16 weights packed at 4/3x, for few tokens: the decode step of a
// language model.
//
// Packed weights become plain in registers only. The sixteen rows of an mma fragment are a tile of
// W. Four lanes share an entry of a row, each with a quarter as stored: two pairs of values for
// each of four fragments, so that x needs no reordering.
//
// A persistent CTA runs a ring of `STAGES` k-blocks: one producer warp loads packed weights
// (cp.async.bulk), `MMA_WARPS` consumer warps multiply, and `EPILOGUE_WARPS` warps reduce the
// consumers' accumulators and store y. narrow_pipeline.cuh has the layout and the barriers;
// crates/cuda/src/linear/plan.rs (`Narrow`) sets the shape.
//
// With programmatic dependent launch, weights are loaded before the preceding kernel ends; x, y and
// the scratch buffers are touched only after `wait_on_dependent_grids`.
#include "narrow_pipeline.cuh"
#include "linear_producer.cuh"
#include "linear_fragment.cuh"

using namespace buddy;
using namespace buddy::narrow;

static_assert(narrow::SharedStorage::AT_X == BUDDY_NARROW_SHARED, "Rust asks for the shared memory that the kernel uses, and for x");

// Producer warp: lane 0 copies the weights of a k-block, and each lane loads its columns' nibbles.
// Takes tiles from the scheduler.
BUDDY_FN void produce(const Linear& linear, const Problem& problem, const Counters& counters, const narrow::SharedStorage& smem) {
    const PackedMatrixView& weights = linear.weights;
    u64 policy = evict_first_policy();
    u32 lane = threadIdx.x % WARP, panels = problem.panels(), panel = WorkTile::first(problem).panel, taken = 0;
    // The first tile is static, and the second where x is one panel, so that the ring fills before
    // the wait on the preceding kernel. Each other tile is taken one k-block before it is needed,
    // no earlier: a tile taken early could not be balanced at the end.
    auto take = [&] {
        wait_on_dependent_grids();
        u32 given = panels == 1 ? 2 * gridDim.x : WorkTile::given(problem, panel);
        if (lane == 0) taken = given + atomicAdd(counters.taken(problem, panel), 1);
    };
#if BUDDY_LINEAR_TIGHT
    static_assert(BLOCK_COLUMNS <= WARP, "a lane has a column");
    TightColumn column;
    auto load_nibbles = [&](const WorkTile& work) {
        u32 k = work.panel * problem.panel + work.k_block * BLOCK_COLUMNS + lane;
        column = TightColumn::load(weights, problem.per_row, work.tile, k, !work.none() && lane < work.columns(problem));
    };
    // Copies the extra words and the row bytes of a k-block, and returns their bytes.
    auto copy_metadata = [&](const WorkTile& work, u32 stage) {
        u32 columns = work.columns(problem), descriptor = lane < BLOCK_COLUMNS ? smem.nibbles(stage, lane) : 0;
        if (lane == 1) cp_async_bulk(smem.rows(stage), weights.row_bytes(linear.outputs, problem.per_row) + work.tile * Tight::ROWS, Tight::ROWS, smem.full(stage));
        // Lane 0 gets the bytes.
        return Tight::ROWS + column.copy(weights, lane, 0, columns - 1, lane < columns, smem.extra(stage), BLOCK_COLUMNS * Tight::RESERVE, descriptor, smem.full(stage));
    };
#else
    constexpr u32 EACH = (BLOCK_COLUMNS + WARP - 1) / WARP;
    uint2 nibbles[EACH];
    auto load_nibbles = [&](const WorkTile& work) {
        u32 columns = work.none() ? 0 : work.columns(problem);
        BUDDY_UNROLL
        for (u32 i = 0; i < EACH; i++) {
            u32 column = i * WARP + lane;
            nibbles[i] = !IS_PLAIN && column < columns ? __ldg((const uint2*)weights.nibbles + work.column(problem) + column) : make_uint2(0x66666666u, 0x66666666u);
        }
    };
    // Writes a k-block's nibbles, and copies the last sector of each lane's first entry that
    // overflows.
    auto copy_metadata = [&](const WorkTile& work, u32 stage) -> u32 {
        u64 first = work.column(problem);
        u32 owner = ~0u;
        BUDDY_UNROLL
        for (u32 i = 0; i < EACH; i++) {
            u32 column = i * WARP + lane;
            if (column < BLOCK_COLUMNS) sts64(smem.nibbles(stage, column), nibbles[i]);
            u32 upper = equal_nibbles(nibbles[i].x, RAW), lower = equal_nibbles(nibbles[i].y, RAW);
            if ((upper | lower) != 0 && owner == ~0u) {
                u32 row = upper != 0 ? trailing_zeros(upper) / 4 : 8 + trailing_zeros(lower) / 4;
                const u8* from = weights.last_sector((first + column) * TILE_ROWS + row);
                if (from == nullptr) continue;
                cp_async<CHUNK>(smem.tail(stage, lane), from), cp_async<CHUNK>(smem.tail(stage, lane) + CHUNK, from + CHUNK);
                owner = column * TILE_ROWS + row;
            }
        }
        sts32(smem.tail_owner(stage, lane), owner);
        cp_async_mbarrier_arrive(smem.full(stage));
        return 0;
    };
#endif
    WorkTile work = WorkTile::first(problem);
    bool is_first = true;
    if (!work.none()) load_nibbles(work);
#pragma unroll 1
    for (PipelineState<STAGES> state; !work.none(); state.advance()) {
        smem.empty(state.stage).wait(state.phase ^ 1);
        u32 bytes = work.columns(problem) * PackedMatrixView::COLUMN;
        u64 first = work.column(problem);
        if (lane == 0) cp_async_bulk(smem.column(state.stage, 0), weights.device + first * PackedMatrixView::COLUMN, bytes, smem.full(state.stage), policy);
        bytes += copy_metadata(work, state.stage);
        if (work.is_last(problem)) {
            if (is_first && panels == 1) taken = blockIdx.x + gridDim.x;
            else if (is_first) take();
            is_first = false;
            taken = __shfl_sync(ALL, taken, 0);
            // A panel without tiles left is followed by the next.
            for (u32 i = 1; i < panels && taken >= problem.tiles(); i++) {
                panel = panel + 1 == panels ? 0 : panel + 1;
                take();
                taken = __shfl_sync(ALL, taken, 0);
            }
            work = WorkTile::of(problem, taken, panel);
        } else {
            work.k_block++;
        }
        KBlockInfo k_block = KBlockInfo::of(problem, work);
        __syncwarp();
        // The stage is full only when nibbles and descriptor are written, too.
        if (lane == 0) {
            sts128(smem.descriptor(state.stage), make_uint4(k_block.tile, k_block.panel, k_block.columns, k_block.x_offset));
            smem.full(state.stage).arrive_expect_tx(bytes);
        }
        load_nibbles(work);
        if (!work.none() && work.is_last(problem) && !is_first) take();
    }
    wait_on_dependent_grids();
    if (lane == 0 && atomic_add_release(counters.blocks(), 1) == gridDim.x - 1) {
        fence_acq_rel();
        *counters.blocks() = 0;
        for (u32 i = 0; i < panels; i++) *counters.taken(problem, i) = 0;
    }
}

// Loads a panel of x with one warp, a token per lane, in chunks: those of the first k-blocks first.
// `BLOCKS` CTAs of a cluster share the tokens by multicast.
template <u32 BLOCKS>
BUDDY_FN void load_x(const Linear& linear, const Problem& problem, u32 panel, const narrow::SharedStorage& smem) {
    u32 width = problem.width(panel), lane = threadIdx.x % WARP;
    // Each CTA begins with a different token, to spread the load over L2.
    u32 token = (lane + blockIdx.x) % problem.tokens;
    const u8* from = linear.x + ((u64)token * problem.per_row + panel * problem.panel) * ENTRY;
    for (u32 work = 0, at = 0; work < X_CHUNKS; work++) {
        u32 columns = work + 1 < X_CHUNKS ? min(BLOCK_COLUMNS, width - at) : width - at, bytes = columns * ENTRY;
        if (lane == 0) smem.x_full(work).arrive_expect_tx(bytes * problem.tokens);
        __syncwarp();
        if (lane < problem.tokens && bytes > 0 && token % BLOCKS == blockIdx.x % BLOCKS) {
            u32 to = smem.x_row(problem, token) + at * ENTRY;
            if (BLOCKS == 1) cp_async_bulk(to, from + at * ENTRY, bytes, smem.x_full(work));
            else cp_async_bulk_multicast(to, from + at * ENTRY, bytes, smem.x_full(work), (1 << BLOCKS) - 1);
        }
        at += columns;
    }
}

// A lane's accumulators of eight tokens: several independent chains, to hide the latency of the
// mma.
constexpr u32 CHAINS = 4 / N8_TILES;
typedef float Accumulators[CHAINS][4];

// Multiplies an entry of two rows, `a` and `b`, by x.
BUDDY_FN void multiply(Accumulators& sums, const u32 (&a)[8], const u32 (&b)[8], uint4 v, uint4 w) {
    const u32 x[8] = {v.x, v.y, v.z, v.w, w.x, w.y, w.z, w.w};
    BUDDY_UNROLL
    for (u32 i = 0; i < 4; i++) mma_m16n8k16(sums[i % CHAINS], a[2 * i], b[2 * i], a[2 * i + 1], b[2 * i + 1], x[2 * i], x[2 * i + 1]);
}

// Consumer warp: multiplies its columns of every k-block.
BUDDY_FN void consume(const Linear& linear, const Problem& problem, u32 warp, const narrow::SharedStorage& smem) {
    // Columns past the last token hold garbage and are never stored.
#if BUDDY_LINEAR_TIGHT
    TightLoader loader(linear.weights);
#else
    FragmentLoader loader(linear.weights);
#endif
    u32 lane = threadIdx.x % WARP, x_rows[N8_TILES], phase = 0, loaded = 0;  // chunks of x waited for
    BUDDY_UNROLL
    for (u32 i = 0; i < N8_TILES; i++) {
        u32 token = min(8 * i + lane % 8, problem.tokens - 1);
        x_rows[i] = keep(smem.x_row(problem, token) + warp * WARP_COLUMNS * ENTRY + lane / 8 * CHUNK);
    }
    WorkTile first = WorkTile::first(problem);
    KBlockInfo k_block = KBlockInfo::of(problem, first);
    u32 panel = first.panel;
    // A CTA without work still loads its share for the cluster.
    if (warp == 0 && (CLUSTER > 1 || !k_block.none())) {
        wait_on_dependent_grids();
        load_x<CLUSTER>(linear, problem, panel, smem);
    }
    Accumulators sums[N8_TILES] = {};
    // Passes the accumulators to the tile's epilogue warp.
    PipelineState<EPILOGUE_WARPS> slot;
    auto pass_to_epilogue = [&] {
        smem.epilogue_empty(slot.stage).wait(slot.phase ^ 1);
        BUDDY_UNROLL
        for (u32 t = 0; t < N8_TILES; t++) {
            u32 c[4];
            BUDDY_UNROLL
            for (u32 i = 0; i < 4; i++) {
                float sum = 0;
                BUDDY_UNROLL
                for (u32 k = 0; k < CHAINS; k++) sum += sums[t][k][i], sums[t][k][i] = 0;
                c[i] = __float_as_uint(sum);
            }
            sts128(smem.accumulators(slot.stage, warp, t), make_uint4(c[0], c[1], c[2], c[3]));
        }
        if (warp == 0 && lane == 0) sts64(smem.epilogue_tile(slot.stage), make_uint2(k_block.tile, k_block.panel));
        smem.epilogue_full(slot.stage).arrive();
        slot.advance();
    };
#pragma unroll 1
    for (PipelineState<STAGES> state; !k_block.none(); state.advance()) {
        if (k_block.panel != panel) {
            for (; loaded < X_CHUNKS; loaded++) smem.x_full(loaded).wait(phase);
            // After this barrier no warp reads the previous panel.
            named_barrier<narrow::MMA_WARPS * WARP>();
            panel = k_block.panel, phase ^= 1, loaded = 0;
            if (warp == 0) load_x<1>(linear, problem, panel, smem);
        }
        // Each of a panel's first k-blocks needs one more chunk.
        if (loaded < X_CHUNKS) smem.x_full(loaded++).wait(phase);
        smem.full(state.stage).wait(state.phase);
        uint4 next = lds128(smem.descriptor(state.stage));
#if BUDDY_LINEAR_TIGHT
        u32 lowest = loader.lowest(smem.rows(state.stage));
        auto fetch = [&](u32 e) {
            // A column past the end is fetched as the first one, and not used.
            u32 at = warp * WARP_COLUMNS + e;
            at = at < k_block.columns ? at : 0;
            return loader.fetch(smem.column(state.stage, at), smem.nibbles(state.stage, at), lowest);
        };
        TightLoader::Stored pending = fetch(0);
#endif
        BUDDY_UNROLL
        for (u32 e = 0; e < WARP_COLUMNS; e++) {
            u32 at = warp * WARP_COLUMNS + e, a[8], b[8];
            if (at >= k_block.columns) break;
#if BUDDY_LINEAR_TIGHT
            TightLoader::Stored stored = pending;
            if (e + 1 < WARP_COLUMNS) pending = fetch(e + 1);
            loader.decode(stored, problem.per_row, k_block.tile, k_block.panel * problem.panel + k_block.x_at() / ENTRY + at, a, b);
#else
            uint2 irregular = IS_PLAIN ? make_uint2(0, 0) : irregular_mask(lds64(smem.nibbles(state.stage, at)));
            u32 column = smem.column(state.stage, at);
            loader.load(column, a, b);
            if (irregular.x | irregular.y) {
                u64 first = ((u64)k_block.tile * problem.per_row + k_block.panel * problem.panel + k_block.x_at() / ENTRY + at) * TILE_ROWS;
                loader.load_irregular_rows(smem.tail_owner(state.stage, at % WARP), smem.tail(state.stage, at % WARP), at, column, first, irregular, a, b);
            }
#endif
            BUDDY_UNROLL
            for (u32 t = 0; t < N8_TILES; t++) {
                u32 x = x_rows[t] + k_block.x_at() + e * ENTRY;
                multiply(sums[t], a, b, ldmatrix4(x), ldmatrix4(x + ENTRY / 2));
            }
        }
        __syncwarp();
        if (lane == 0) smem.empty(state.stage).arrive();
        if (k_block.is_last()) pass_to_epilogue();
        k_block = {next.x, next.y, next.z, next.w};
    }
    // Tells every epilogue warp to stop.
    for (u32 i = 0; i < EPILOGUE_WARPS; i++) pass_to_epilogue();
    // A CTA must not exit before the multicasts into it have arrived.
    for (; CLUSTER > 1 && loaded < X_CHUNKS; loaded++) smem.x_full(loaded).wait(phase);
}

// Epilogue warp: reduces the consumers' accumulators of its slot's tiles and stores y. A lane has
// four accumulators of each eight tokens: two tokens of its row, and of the row eight below.
BUDDY_FN void run_epilogue(const Linear& linear, const Problem& problem, u32 slot, const Counters& counters, const narrow::SharedStorage& smem) {
    u32 lane = threadIdx.x % WARP, tiles = problem.tiles(), panels = problem.panels();
    auto store = [&](u32 tile, u32 n8, float4 sum) {
        u32 row = tile * TILE_ROWS + FragmentLoader::row_of(lane), token = 8 * n8 + lane % 4 * 2;
        store_outputs(linear, row, token, sum.x, sum.z), store_outputs(linear, row, token + 1, sum.y, sum.w);
    };
    auto partial = [&](u32 panel, u32 tile, u32 n8) { return linear.partials + ((panel * tiles + tile) * N8_TILES + n8) * WARP + lane; };
    auto add = [](float4& sum, float4 v) { sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w; };
    wait_on_dependent_grids();
#pragma unroll 1
    for (u32 phase = 0;; phase ^= 1) {
        smem.epilogue_full(slot).wait(phase);
        uint2 name = lds64(smem.epilogue_tile(slot));
        u32 tile = name.x, panel = name.y;
        if (tile == WorkTile::NONE) break;
        float4 sums[N8_TILES] = {};
        BUDDY_UNROLL
        for (u32 warp = 0; warp < narrow::MMA_WARPS; warp++) {
            BUDDY_UNROLL
            for (u32 t = 0; t < N8_TILES; t++) {
                uint4 v = lds128(smem.accumulators(slot, warp, t));
                add(sums[t], make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w)));
            }
        }
        smem.epilogue_empty(slot).arrive();
        if (panels == 1) {
            BUDDY_UNROLL
            for (u32 t = 0; t < N8_TILES; t++) store(tile, t, sums[t]);
            continue;
        }
        BUDDY_UNROLL
        for (u32 t = 0; t < N8_TILES; t++) __stcg(partial(panel, tile, t), sums[t]);
        __syncwarp();
        // Split-K fix-up: the last panel's CTA reduces all partials.
        bool last = lane == 0 && atomic_add_release(counters.done(tile), 1) == panels - 1;
        if (last) *counters.done(tile) = 0, fence_acq_rel();
        if (!__any_sync(ALL, last)) continue;
        __syncwarp();
        BUDDY_UNROLL
        for (u32 t = 0; t < N8_TILES; t++) {
            float4 all = {};
            for (u32 i = 0; i < panels; i++) add(all, __ldcg(partial(i, tile, t)));
            store(tile, t, all);
        }
    }
}

constexpr u32 THREADS = (narrow::MMA_WARPS + EPILOGUE_WARPS + 1) * WARP;

// `panel` is a multiple of BLOCK_COLUMNS; x and weights are aligned to 128 bytes. Counters are
// zero; `partials` has 16 bytes per lane for each tile, panel and eight tokens.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    linear_narrow(const __grid_constant__ Linear linear, u32 panel) {
    BUDDY_DYNAMIC_SHARED(u8, memory);
    narrow::SharedStorage smem = {shared_address(memory)};
    Problem problem = {linear.outputs, linear.per_row(), linear.tokens, panel};
    Counters counters = {linear.counters};
    // The shuffle tells the compiler that `warp` is uniform.
    u32 warp = __shfl_sync(ALL, threadIdx.x / WARP, 0);
    // The producer initialises the barriers and starts loading before the others pass theirs.
    if (warp == narrow::MMA_WARPS + EPILOGUE_WARPS) {
        if (threadIdx.x % WARP == 0) smem.init();
        __syncwarp();
        if (CLUSTER > 1) cluster_arrive();
        else barrier_arrive<THREADS>();
        launch_dependent_grids();
        produce(linear, problem, counters, smem);
        // A thread must not exit between its cluster arrive and wait.
        if (CLUSTER > 1) cluster_wait();
        return;
    }
    if (CLUSTER > 1) cluster_arrive(), cluster_wait();
    else barrier_wait<THREADS>();
    if (warp < narrow::MMA_WARPS) return consume(linear, problem, warp, smem);
    run_epilogue(linear, problem, warp - narrow::MMA_WARPS, counters, smem);
}
