// PTX that CUDA C++ has no short name for, an instruction each: mbarriers, bulk copies of Hopper's TMA, programmatic dependent
// launch, release and acquire, and mma. On a CPU, tests/hopper.h stands in.
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

// An mbarrier in shared memory. A phase ends when `count` arrivals, and the bytes that they expect, are there; a waiter names
// the phase by its parity. A ring has two to a stage: `full`, on which consumers wait, and `empty`, on which the producer does.
struct Barrier {
    u32 at;  // shared address

    BUDDY_FN void init(u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory"); }
    BUDDY_FN void arrive() { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
    // The barrier at this place of another block of the cluster. It orders nothing in other blocks' eyes, since a release to a cluster is a
    // fence of the whole GPU: 0.75 us. What was read before by products that are done needs none.
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

// All threads of all blocks of a cluster: they arrive, and wait for one another. Orders nothing but fences' work: a release would be a
// fence of the whole GPU, most of a microsecond.
BUDDY_FN void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
BUDDY_FN void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// The L2 policy for what is read once: it is evicted first.
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

// The same to the same place of several blocks of the cluster, those in `blocks`; each has its barrier there, too.
BUDDY_FN void cp_async_bulk_multicast(u32 to, const void* from, u32 bytes, Barrier done, unsigned short blocks) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(done.at), "h"(blocks)
                 : "memory");
}

// A matrix in global memory as the copy engine sees it: a `CUtensorMap`, which the host makes.
struct alignas(64) TensorMap {
    u64 opaque[16];
};

// Copies a box of it, from this column and row on.
BUDDY_FN void cp_async_bulk_tensor(u32 to, const TensorMap& map, u32 column, u32 row, Barrier done) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(&map), "r"(column), "r"(row), "r"(done.at)
                 : "memory");
}
// The same to the same place of several blocks of the cluster, those in `blocks`; each has its barrier there, too.
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

// Four matrices of eight rows of 16 bytes, whose addresses lanes 8m + r have: a word of row lane / 4 of each.
BUDDY_FN uint4 ldmatrix4(u32 at) {
    uint4 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

// The same four turned, from lanes that each have two columns of row lane / 4.
BUDDY_FN void stmatrix4_transposed(u32 at, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

// Two numbers as bf16, the first in the lower half.
BUDDY_FN u32 bf16_pair(float first, float second) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

BUDDY_FN void sts64(u32 at, uint2 v) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(at), "r"(v.x), "r"(v.y) : "memory");
}

// One lane of the warp, such that the compiler knows that it is one.
BUDDY_FN bool elect_one() {
    u32 elected;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
    return elected != 0;
}

// Programmatic dependent launch: a kernel whose launch allows it begins when all blocks of the one before in the stream have
// launched their dependents. It then waits for the end of that one before it touches what that one writes, or writes what that
// one reads.
BUDDY_FN void launch_dependent_grids() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
BUDDY_FN void wait_on_dependent_grids() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Adds to a counter with release, and gives what it was. Who sees the sum and then fences sees what was written before. Both
// order one thread: other lanes synchronise with it before the first and after the second.
BUDDY_FN u32 atomic_add_release(u32* count, u32 by) {
    u32 was;
    asm volatile("atom.release.gpu.global.add.u32 %0, [%1], %2;" : "=r"(was) : "l"(count), "r"(by) : "memory");
    return was;
}
BUDDY_FN void fence_acq_rel() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
// Adds to a counter, and orders nothing.
BUDDY_FN u32 atomic_add_relaxed(u32* count, u32 by) {
    u32 was;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(was) : "l"(count), "r"(by) : "memory");
    return was;
}
// Waits, all lanes together, until a counter that others add to with release is so many. They must be running.
BUDDY_FN void wait_until(const u32* count, u32 is) {
    u32 now;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(count) : "memory");
    while (!__all_sync(0xffffffffu, now == is));
}

// Two bf16, the first in the low half, rounded to nearest; and the one in a low half.
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

// The barrier counts this lane once its copies so far, by `cp_async`, have come.
BUDDY_FN void cp_async_mbarrier_arrive(Barrier barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier.at) : "memory");
}
// Barriers that this thread made are seen by copies, and by the other blocks of a cluster.
BUDDY_FN void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

BUDDY_FN u32 lds32(u32 at) {
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}

BUDDY_FN void sts32(u32 at, u32 v) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(v) : "memory"); }

// Some threads of the block, whole warps of it, wait for one another; not by the barrier of `__syncthreads`.
template <u32 THREADS>
BUDDY_FN void named_barrier() {
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

// All threads of the block, of which some arrive and wait for nobody.
template <u32 THREADS>
BUDDY_FN void barrier_arrive() {
    asm volatile("bar.arrive 2, %0;" ::"n"(THREADS) : "memory");
}
template <u32 THREADS>
BUDDY_FN void barrier_wait() {
    asm volatile("bar.sync 2, %0;" ::"n"(THREADS) : "memory");
}

// Registers of a thread from here on: more than its kernel began with, or fewer.
template <u32 REGISTERS>
BUDDY_FN void raise_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <u32 REGISTERS>
BUDDY_FN void lower_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// One tensor-core product: sum += a b, with 16 rows of bf16 in a, 8 columns in b, and k = 16.
BUDDY_FN void mma_m16n8k16(float (&sum)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

}  // namespace buddy

#endif

namespace buddy {

// SwiGLU of a gate and a value, rounded step by step as a framework rounds; the last step is left.
BUDDY_FN float silu(float gate) { return gate / (1.0f + __expf(-gate)); }
BUDDY_FN float rounded(float value) { return from_bf16(to_bf16(value, 0)); }
BUDDY_FN float gated(float gate, float value) { return rounded(silu(rounded(gate))) * rounded(value); }

}  // namespace buddy
