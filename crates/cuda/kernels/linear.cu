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
BUDDY_FN void linear(const Linear& linear) {
    extern __shared__ __align__(1024) u8 memory[];
    Room<S> room = {shared_address(memory)};
    if (threadIdx.x == 0) room.init();
    __syncthreads();
    launch_dependent_grids();
    Line<S> line(linear);
    u32 warp = __shfl_sync(ALL, threadIdx.x / WARP, 0);
    if (warp < S::WARPS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(S::MULTIPLYING));
        multiply_steps(linear, line, room);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(S::FETCHING));
        u32 fetcher = warp - S::WARPS;
        if (fetcher == 0) {
            if (elect_one()) fetch_weights(linear, line, room);
        } else if (fetcher == 1) {
            fetch_nibbles(linear, line, room);
        } else {
            FetchX<S>{linear, line, room, threadIdx.x % WARP, fetcher - 2}.all();
        }
    }
}

// The shape is Rust's, which also asks for the shared memory.
#ifdef BUDDY_LINEAR_TOKENS
typedef Shape<BUDDY_LINEAR_TOKENS, BUDDY_LINEAR_GROUPS, BUDDY_LINEAR_FETCHERS, BUDDY_LINEAR_FRAGMENTS,
              BUDDY_LINEAR_ENTRIES, BUDDY_LINEAR_STAGES>
    Chosen;
static_assert(Chosen::BYTES == BUDDY_LINEAR_SHARED, "Rust asks for the shared memory that the kernel uses");

// x and weights are aligned to 16 bytes. Counts are zeros; `parts` has room for the sums of two tiles of each block.
extern "C" __global__ void __launch_bounds__(Chosen::THREADS, 1) linear_wide(const __grid_constant__ Linear of) {
    linear<Chosen>(of);
}
#endif
