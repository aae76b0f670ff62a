// Linear layer y = W x with bf16 weights packed at 4/3x, on Hopper's tensor cores (wgmma), for any
// number of tokens. A persistent, warp-specialised stream-K kernel.
//
// Pipeline of a CTA. A ring of `STAGES` stages in shared memory (`SharedStorage`,
// linear_pipeline.cuh); a stage holds one k-block: `ENTRIES` entries (64 columns each) of `ROWS`
// rows of W, still packed, and the same columns of x.
//
//    warps                     role                                                 file
//    0 .. 4 * WARPGROUPS - 1   consumers: decode to registers, wgmma, epilogue      linear_consumer.cuh
//    next 1                    producer of packed weights (cp.async.bulk)           linear_producer.cuh
//    next 1                    producer of nibbles (metadata) and overflow sectors  linear_producer.cuh
//    next 1                    producer of x (TMA, multicast to the cluster)        linear_producer.cuh
//    next 1                    decoder of irregular entries into slots              linear_fragment.cuh
//
// Barriers of a stage (mbarriers, waited for by phase, see `PipelineState`):
// - `weights_full`: packed weights, nibbles and overflow sectors have arrived. The slot decoder
//   waits.
// - `full`: x has arrived, too, and slots are decoded. The consumers wait.
// - `weights_empty`: all consumer warps have the weights in registers. The weight and nibble
//   producers wait.
// - `x_empty`: the wgmmas that read x are complete, in all CTAs of the cluster. The x producer
//   waits.
//
// Work. `TileScheduler` (linear_pipeline.cuh) numbers the k-blocks of all output tiles and gives
// each cluster an equal, contiguous range (stream-K). Tiles that several CTAs share are reduced by
// the fix-up in linear_consumer.cuh, in a fixed order, so that results are deterministic.
//
// Tile shape. An output tile is `ROWS` rows of W by `TOKENS` tokens; `ROWS` is 64 for each consumer
// warpgroup, or 64 in all where the warpgroups split K. To change it, change the constants in
// crates/cuda/src/linear/wide.rs (`WIDE`, `SLICED`, `LOW`): tokens, warpgroups, split_k, entries,
// stages, cluster. They become the template `Shape`. Static assertions in `Shape`, `Accumulators` and
// `produce_tight` state the limits; `Wide::shared` repeats the count of shared memory. Each array
// ascends by tokens, and `WIDE` has every number of tokens. A new number also needs a specialisation
// of `wgmma` in wgmma.cuh. crates/gpu-lab/examples/linear_tune.rs measures shapes without these edits.
//
// Experts. A grouped layer multiplies each group of tokens by the matrix of its expert: a tile is one
// of a group and of `ROWS` rows of that matrix. The route in device memory has the groups, so that
// neither the host nor the grid depends on them.
//
// With programmatic dependent launch, weights are loaded before the preceding kernel ends; x, y and
// the scratch buffers are touched only after `wait_on_dependent_grids`. A grouped layer waits first.
#include "wgmma.cuh"
#include "linear_producer.cuh"
#include "linear_consumer.cuh"

using namespace buddy;

template <class S>
BUDDY_FN void linear(const Linear& linear, const TensorMap& x) {
    BUDDY_DYNAMIC_SHARED(u8, memory);
    SharedStorage<S> smem = {keep(shared_address(memory))};
    // The scheduler reads the route.
    if (S::GROUPED) wait_on_dependent_grids();
    TileScheduler<S> scheduler(linear);
    u32 warp = __shfl_sync(ALL, threadIdx.x / WARP, 0);
    WeightsProducer<S> producer(linear, scheduler, smem);
    if (warp == S::WARPS) {
        // This warp initialises the barriers and starts loading weights before the others pass
        // theirs.
        if (threadIdx.x % WARP == 0) smem.init();
        __syncwarp();
        if (S::CLUSTER > 1) cluster_arrive();
        else barrier_arrive<S::THREADS>();
        producer.fill_ring();
    } else if (S::CLUSTER > 1) {
        cluster_arrive(), cluster_wait();
    } else {
        barrier_wait<S::THREADS>();
    }
    launch_dependent_grids();
    if (warp < S::WARPS) {
        raise_registers<S::CONSUMER_REGISTERS>();
        return consume(linear, TileScheduler<S>(linear), smem);
    }
    lower_registers<S::PRODUCER_REGISTERS>();
    if (warp == S::WARPS) producer.run();
    if (warp == S::WARPS + 1) {
#if BUDDY_LINEAR_TIGHT
        produce_tight(linear, scheduler, smem);
#else
        produce_nibbles(linear, scheduler, smem);
#endif
    }
    if (warp == S::WARPS + 2 && elect_one()) {
        prefetch_tensor_map(x);
        produce_x<S::STAGES>(x, scheduler, smem);
    }
    if (warp == S::WARPS + 3) SlotDecoder<S>{linear, scheduler, smem, threadIdx.x % WARP}.run();
    // A thread must not exit between its cluster arrive and wait.
    if (S::CLUSTER > 1 && warp == S::WARPS) cluster_wait();
}

// The shape and the size of shared memory come from Rust (crates/cuda/src/linear/wide.rs).
#ifdef BUDDY_LINEAR_TOKENS
#ifndef BUDDY_LINEAR_GROUPED
#define BUDDY_LINEAR_GROUPED 0
#endif
typedef Shape<BUDDY_LINEAR_TOKENS, BUDDY_LINEAR_WARPGROUPS, BUDDY_LINEAR_SPLIT_K, BUDDY_LINEAR_ENTRIES, BUDDY_LINEAR_STAGES,
              BUDDY_LINEAR_CLUSTER, BUDDY_LINEAR_GATED, BUDDY_LINEAR_GROUPED>
    Chosen;
static_assert(Chosen::BYTES == BUDDY_LINEAR_SHARED, "Rust asks for the shared memory that the kernel uses");

// Weights are aligned to 16 bytes. Counters are zero; `partials` holds the accumulators of two
// tiles per CTA. `x` has boxes of 64 columns by `TOKENS / CLUSTER` tokens.
extern "C" __global__ void __cluster_dims__(Chosen::CLUSTER) __launch_bounds__(Chosen::THREADS, 1)
    linear_wide(const __grid_constant__ Linear args, const __grid_constant__ TensorMap x) {
    linear<Chosen>(args, x);
}
#endif
