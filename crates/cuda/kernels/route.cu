// The steps of a mixture of experts between its linear layers (linear.cu): sort tokens by expert,
// and add up each token's results.
//
// An assignment is one of a token's `k` experts. `experts_route` sorts the assignments by expert, in
// their order and cuts each expert's into groups of at most `tile` tokens. Their rows of x are
// gathered by the same kernel if they are few, else by `experts_gather`. Invalid assignments, whose
// expert is not one of `experts`, come last and in no group.
#include "linear_pipeline.cuh"

using namespace buddy;

// Assignments in shared memory at a time.
#ifndef BUDDY_LINEAR_STAGED_IDS
#define BUDDY_LINEAR_STAGED_IDS 8192
#endif
constexpr u32 ROUTE_WARPS = 8, MAX_EXPERTS = 1024, STAGED = BUDDY_LINEAR_STAGED_IDS;

struct Routing {
    const void* ids;  // experts of the assignments: 32 or 64 bits
    const uint4* x;   // a row for each token
    uint4* rows;      // a row for each assignment, sorted
    u32* route;       // see `Route` in linear_pipeline.cuh; the assignments' positions come last
    u32 assignments, top, experts, tile, chunks, room;  // top: experts of a token; chunks: of a row; room: groups that have room
    u32 wide;         // whether ids have 64 bits
    u32 gathers;      // whether `experts_route` gathers the rows

    // The expert of an assignment; `experts` for those that are invalid.
    BUDDY_FN u32 expert(u32 assignment) const {
        u64 id = wide ? ((const u64*)ids)[assignment] : (u64)(long long)((const int*)ids)[assignment];
        return id < experts ? (u32)id : experts;
    }
    BUDDY_FN u32* positions() const { return route + Route::HEAD + 4 * room; }
    // Copies an assignment's row to its position, with a warp.
    BUDDY_FN void gather(u32 assignment, u32 position) const {
        const uint4* from = x + (u64)(assignment / top) * chunks;
        uint4* to = rows + (u64)position * chunks;
        for (u32 c = threadIdx.x % WARP; c < chunks; c += WARP) to[c] = from[c];
    }
};

// Exclusive prefix sums over experts of their assignments and groups, in shared memory.
struct Starts {
    u32 *counts, *first, *group;

    // With one warp.
    BUDDY_FN void sum(const Routing& of) const {
        u32 lane = threadIdx.x % WARP, assigned = 0, grouped = 0;
        for (u32 base = 0; base <= of.experts; base += WARP) {
            u32 expert = base + lane, count = expert <= of.experts ? counts[expert] : 0;
            u32 groups = expert < of.experts ? (count + of.tile - 1) / of.tile : 0, before = count, groups_before = groups;
            for (u32 step = 1; step < WARP; step *= 2) {
                u32 other = __shfl_up_sync(ALL, before, step), others = __shfl_up_sync(ALL, groups_before, step);
                if (lane >= step) before += other, groups_before += others;
            }
            if (expert <= of.experts) first[expert] = assigned + before - count, group[expert] = grouped + groups_before - groups;
            assigned += __shfl_sync(ALL, before, WARP - 1), grouped += __shfl_sync(ALL, groups_before, WARP - 1);
        }
    }
};

// Each CTA counts all assignments; each warp then places those of its expert.
extern "C" __global__ void __launch_bounds__(ROUTE_WARPS* WARP) experts_route(const __grid_constant__ Routing of) {
    __shared__ u32 counts[MAX_EXPERTS + 1], first[MAX_EXPERTS + 1], group[MAX_EXPERTS + 1];
    __shared__ unsigned short staged[STAGED];
    Starts starts = {counts, first, group};
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, expert = blockIdx.x * ROUTE_WARPS + warp;
    launch_dependent_grids();
    for (u32 i = threadIdx.x; i <= of.experts; i += blockDim.x) counts[i] = 0;
    __syncthreads();
    wait_on_dependent_grids();
    for (u32 i = threadIdx.x; i < of.assignments; i += blockDim.x) {
        u32 found = of.expert(i);
        atomicAdd(&counts[found], 1u);
        if (i < STAGED) staged[i] = (unsigned short)found;
    }
    __syncthreads();
    if (warp == 0) starts.sum(of);
    __syncthreads();
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        of.route[0] = group[of.experts], of.route[1] = first[of.experts], of.route[2] = of.route[3] = 0;
    }
    bool is_one = expert <= of.experts;
    u32 at = is_one ? first[expert] : 0, count = is_one ? counts[expert] : 0, end = at + count;
    for (u32 i = lane; expert < of.experts && i * of.tile < count; i += WARP) {
        u32 begin = at + i * of.tile;
        ((uint4*)(of.route + Route::HEAD))[group[expert] + i] = make_uint4(expert, begin, min(begin + of.tile, end), 0);
    }
    for (u32 base = 0; base < of.assignments; base += STAGED) {
        u32 here = min(STAGED, of.assignments - base);
        if (base > 0) {
            __syncthreads();
            for (u32 i = threadIdx.x; i < here; i += blockDim.x) staged[i] = (unsigned short)of.expert(base + i);
            __syncthreads();
        }
        for (u32 i = 0; i < here && at < end; i += WARP) {
            bool is = i + lane < here && staged[i + lane] == expert;
            u32 found = __ballot_sync(ALL, is);
            if (is) of.positions()[base + i + lane] = at + ones_in(found & ((1u << lane) - 1));
            for (u32 rest = found, to = at; of.gathers && rest != 0; rest &= rest - 1, to++) of.gather(base + i + trailing_zeros(rest), to);
            at += ones_in(found);
        }
    }
}

// Gathers the rows of many assignments, a warp for each.
extern "C" __global__ void __launch_bounds__(ROUTE_WARPS* WARP) experts_gather(const __grid_constant__ Routing of) {
    launch_dependent_grids();
    wait_on_dependent_grids();
    u32 assignment = blockIdx.x * ROUTE_WARPS + threadIdx.x / WARP;
    if (assignment < of.assignments) of.gather(assignment, of.positions()[assignment]);
}

struct Combining {
    const uint4* rows;  // results by position
    const u32* route;
    const void* weights;  // of the assignments: bf16 or fp32
    uint4* y;
    u32 top, chunks, first_position;  // first_position: in the route
    u32 narrow;  // whether weights are bf16
};

// Adds up each token's results, in the order of its experts, in fp32. blockIdx.x is the token.
extern "C" __global__ void __launch_bounds__(128) experts_combine(const __grid_constant__ Combining of) {
    launch_dependent_grids();
    wait_on_dependent_grids();
    u32 chunk = blockIdx.y * blockDim.x + threadIdx.x, token = blockIdx.x;
    if (chunk >= of.chunks) return;
    u32 valid = __ldcg((const uint4*)of.route).y;
    float sums[8] = {};
    for (u32 i = 0; i < of.top; i++) {
        u32 assignment = token * of.top + i, position = of.route[of.first_position + assignment];
        if (position >= valid) continue;
        float weight = of.narrow ? from_bf16(((const unsigned short*)of.weights)[assignment]) : ((const float*)of.weights)[assignment];
        uint4 v = of.rows[(u64)position * of.chunks + chunk];
        const u32 words[4] = {v.x, v.y, v.z, v.w};
        BUDDY_UNROLL
        for (u32 k = 0; k < 4; k++) {
            sums[2 * k] += __fmul_rn(from_bf16(words[k] & 0xffff), weight);
            sums[2 * k + 1] += __fmul_rn(from_bf16(words[k] >> 16), weight);
        }
    }
    of.y[(u64)token * of.chunks + chunk] = make_uint4(to_bf16(sums[0], sums[1]), to_bf16(sums[2], sums[3]), to_bf16(sums[4], sums[5]), to_bf16(sums[6], sums[7]));
}
