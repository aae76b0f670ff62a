// y = W x with bf16 weights in compressed memory at 4/3x, on tensor cores: any number of tokens. linear_plan.cuh says who does
// what, linear_fetch.cuh brings it into shared memory, linear_multiply.cuh multiplies.
//
// A launch may say that it can begin while the kernel before it in the stream ends: weights, which no kernel writes meanwhile,
// come at once; x, y and all else waits.
#include "wgmma.cuh"
#include "linear_fetch.cuh"
#include "linear_multiply.cuh"

using namespace buddy;

template <class S>
BUDDY_FN void linear(const Linear& linear, const TensorMap& x) {
    BUDDY_DYNAMIC_SHARED(u8, memory);
    Room<S> room = {keep(shared_address(memory))};
    Line<S> line(linear);
    u32 warp = __shfl_sync(ALL, threadIdx.x / WARP, 0);
    FetchWeights<S> weights(linear, line, room);
    if (warp == S::WARPS) {
        // This warp makes the barriers, and waits for nobody before it asks for weights.
        if (threadIdx.x % WARP == 0) room.init();
        __syncwarp();
        if (S::CLUSTER > 1) cluster_arrive();
        else barrier_arrive<S::THREADS>();
        weights.first();
    } else if (S::CLUSTER > 1) {
        cluster_arrive(), cluster_wait();
    } else {
        barrier_wait<S::THREADS>();
    }
    launch_dependent_grids();
    if (warp < S::WARPS) {
        raise_registers<S::MULTIPLYING>();
        return multiply_steps(linear, Line<S>(linear), room);
    }
    lower_registers<S::FETCHING>();
    if (warp == S::WARPS) weights.others();
    if (warp == S::WARPS + 1) fetch_nibbles(linear, line, room);
    if (warp == S::WARPS + 2 && elect_one()) {
        prefetch_tensor_map(x);
        fetch_x<S::STAGES>(x, line, room);
    }
    if (warp == S::WARPS + 3) FillSlots<S>{linear, line, room, threadIdx.x % WARP}.all();
    // Nobody ends between arriving and waiting.
    if (S::CLUSTER > 1 && warp == S::WARPS) cluster_wait();
}

// The shape is Rust's, which also asks for the shared memory.
#ifdef BUDDY_LINEAR_TOKENS
typedef Shape<BUDDY_LINEAR_TOKENS, BUDDY_LINEAR_GROUPS, BUDDY_LINEAR_SLICES, BUDDY_LINEAR_ENTRIES, BUDDY_LINEAR_STAGES,
              BUDDY_LINEAR_CLUSTER, BUDDY_LINEAR_GATED>
    Chosen;
static_assert(Chosen::BYTES == BUDDY_LINEAR_SHARED, "Rust asks for the shared memory that the kernel uses");

// Weights are aligned to 16 bytes. Counts are zeros; `parts` has room for the sums of two tiles of each block. `x` has boxes of 64
// columns and a block's share of a tile's tokens.
extern "C" __global__ void __cluster_dims__(Chosen::CLUSTER) __launch_bounds__(Chosen::THREADS, 1)
    linear_wide(const __grid_constant__ Linear of, const __grid_constant__ TensorMap x) {
    linear<Chosen>(of, x);
}
#endif
