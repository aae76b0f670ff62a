// PTX without a short name in CUDA C++, one instruction each: mbarriers, bulk copies (TMA),
// programmatic dependent launch, release and acquire, and mma. On a CPU, tests/hopper.h stands in.
#pragma once
#include "shared.cuh"

#ifdef __CUDACC__

// Ampere polls; Hopper suspends the thread for a while.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define BUDDY_MBARRIER_WAIT "test_wait"
#else
#define BUDDY_MBARRIER_WAIT "try_wait"
#endif

namespace buddy {

// An mbarrier in shared memory. A phase completes after `count` arrivals and the bytes that they
// expect; waiters name the phase by its parity. A ring stage has two: consumers wait on `full`, the
// producer on `empty`.
struct Barrier {
    u32 at;  // shared address

    BUDDY_FN void init(u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory"); }
    BUDDY_FN void arrive() { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
    // Arrives at the same barrier in another CTA of the cluster. Relaxed: a cluster-scope release
    // is a GPU-wide fence (0.75 us). Reads by completed wgmmas need none.
    BUDDY_FN void arrive_at(u32 block) {
        asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::
                         "r"(at), "r"(block)
                     : "memory");
    }
    BUDDY_FN void arrive_expect_tx(u32 bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
    }
    BUDDY_FN void wait(u32 parity) {
        asm volatile("{\n.reg .pred done;\nagain:\nmbarrier." BUDDY_MBARRIER_WAIT
                     ".parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(at),
                     "r"(parity)
                     : "memory");
    }
};

// Barrier of all threads of a cluster. Relaxed: orders only what fences have ordered; a release
// would be a GPU-wide fence.
BUDDY_FN void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
BUDDY_FN void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// L2 cache policy for data that is read once.
BUDDY_FN u64 evict_first_policy() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

BUDDY_FN void cp_async_bulk(u32 to, const void* from, u32 bytes, Barrier done, u64 policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
                     "r"(to), "l"(from), "r"(bytes), "r"(done.at), "l"(policy)
                 : "memory");
}

BUDDY_FN void cp_async_bulk(u32 to, const void* from, u32 bytes, Barrier done) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(done.at)
                 : "memory");
}

// Multicast to the same address in the CTAs of the mask `blocks`; signals each CTA's own barrier.
BUDDY_FN void cp_async_bulk_multicast(u32 to, const void* from, u32 bytes, Barrier done, unsigned short blocks) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(done.at), "h"(blocks)
                 : "memory");
}

// A tensor map of TMA (`CUtensorMap`), encoded by the host.
struct alignas(64) TensorMap {
    u64 opaque[16];
};

// Copies a box that begins at a column and a row.
BUDDY_FN void cp_async_bulk_tensor(u32 to, const TensorMap& map, u32 column, u32 row, Barrier done) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(&map), "r"(column), "r"(row), "r"(done.at)
                 : "memory");
}
// Multicast to the same address in the CTAs of the mask `blocks`; signals each CTA's own barrier.
BUDDY_FN void cp_async_bulk_tensor_multicast(u32 to, const TensorMap& map, u32 column, u32 row, Barrier done, unsigned short blocks) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(&map), "r"(column), "r"(row), "r"(done.at), "h"(blocks)
                 : "memory");
}
BUDDY_FN void prefetch_tensor_map(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }

BUDDY_FN uint4 lds128(u32 at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at) : "memory");
    return v;
}

BUDDY_FN void sts128(u32 at, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

BUDDY_FN uint2 lds64(u32 at) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at) : "memory");
    return v;
}

// Loads four 8 x 8 matrices of 16-bit values; lane 8m + r gives the address of row r of matrix m.
BUDDY_FN uint4 ldmatrix4(u32 at) {
    uint4 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

// Stores four 8 x 8 matrices transposed.
BUDDY_FN void stmatrix4_transposed(u32 at, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

// Packs two floats as bf16, the first in the low half.
BUDDY_FN u32 bf16_pair(float first, float second) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

BUDDY_FN void sts64(u32 at, uint2 v) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(at), "r"(v.x), "r"(v.y) : "memory");
}

// Returns true in one lane of the warp, such that the compiler knows it.
BUDDY_FN bool elect_one() {
    u32 elected;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
    return elected != 0;
}

// Programmatic dependent launch: the next kernel in the stream may start once all CTAs have called
// `launch_dependent_grids`. It calls `wait_on_dependent_grids` before it touches memory that the
// preceding kernel uses. Before Hopper a kernel starts when the preceding one has ended.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
BUDDY_FN void launch_dependent_grids() {}
BUDDY_FN void wait_on_dependent_grids() {}
#else
BUDDY_FN void launch_dependent_grids() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
BUDDY_FN void wait_on_dependent_grids() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#endif

// Adds to a counter with release; returns its previous value. Orders one thread: other lanes
// synchronise with it before, and after the fence of the reader.
BUDDY_FN u32 atomic_add_release(u32* count, u32 by) {
    u32 was;
    asm volatile("atom.release.gpu.global.add.u32 %0, [%1], %2;" : "=r"(was) : "l"(count), "r"(by) : "memory");
    return was;
}
BUDDY_FN void fence_acq_rel() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
// Adds to a counter, relaxed.
BUDDY_FN u32 atomic_add_relaxed(u32* count, u32 by) {
    u32 was;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(was) : "l"(count), "r"(by) : "memory");
    return was;
}
// Spins, all lanes together, until a counter reaches `is`. The CTAs that add to it must be
// resident.
BUDDY_FN void wait_until(const u32* count, u32 is) {
    u32 now;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(count) : "memory");
    while (!__all_sync(0xffffffffu, now == is));
}

// Packs two floats as bf16, rounded to nearest; and unpacks the low half.
BUDDY_FN u32 to_bf16(float low, float high) {
    u32 out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}
BUDDY_FN unsigned short narrow_bf16(float value) {
    unsigned short narrow;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow) : "f"(value));
    return narrow;
}
BUDDY_FN float from_bf16(u32 low) { return __uint_as_float(low << 16); }

// Arrives at the barrier once this lane's `cp_async` copies are complete.
BUDDY_FN void cp_async_mbarrier_arrive(Barrier barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier.at) : "memory");
}
// Makes initialised mbarriers visible to copies and to the cluster.
BUDDY_FN void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

BUDDY_FN u32 lds16(u32 at) {
    u32 v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}
// Loads if the condition is not zero, without a branch; otherwise gives 0.
BUDDY_FN u32 lds16_if(u32 condition, u32 at) {
    u32 v = 0;
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\n@p ld.shared.u16 %0, [%2];\n}" : "+r"(v) : "r"(condition), "r"(at) : "memory");
    return v;
}

BUDDY_FN u32 lds32(u32 at) {
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}

BUDDY_FN void sts32(u32 at, u32 v) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(v) : "memory"); }

// Barrier of `THREADS` threads of the CTA, whole warps; not the one of `__syncthreads`.
template <u32 THREADS>
BUDDY_FN void named_barrier() {
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

// CTA barrier at which some warps arrive without waiting.
template <u32 THREADS>
BUDDY_FN void barrier_arrive() {
    asm volatile("bar.arrive 2, %0;" ::"n"(THREADS) : "memory");
}
template <u32 THREADS>
BUDDY_FN void barrier_wait() {
    asm volatile("bar.sync 2, %0;" ::"n"(THREADS) : "memory");
}

// Changes the registers per thread (setmaxnreg).
template <u32 REGISTERS>
BUDDY_FN void raise_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <u32 REGISTERS>
BUDDY_FN void lower_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// mma of a 16 x 16 and a 16 x 8 bf16 matrix: sum += a b.
BUDDY_FN void mma_m16n8k16(float (&sum)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

}  // namespace buddy

#endif

namespace buddy {

// Position in a ring of `DEPTH` stages: the stage's index, and the phase (parity) to wait for. A
// producer waits for `phase ^ 1`, which a new barrier passes at once.
template <u32 DEPTH>
struct PipelineState {
    u32 stage = 0, phase = 0;

    BUDDY_FN void advance() {
        stage = stage + 1 == DEPTH ? 0 : stage + 1;
        phase ^= stage == 0;
    }
};

// SwiGLU of a gate and a value, rounded after each step as frameworks do; the last rounding is left
// to the caller.
BUDDY_FN float silu(float gate) { return gate / (1.0f + __expf(-gate)); }
BUDDY_FN float rounded(float value) { return from_bf16(to_bf16(value, 0)); }
BUDDY_FN float gated(float gate, float value) { return rounded(silu(rounded(gate))) * rounded(value); }

}  // namespace buddy
