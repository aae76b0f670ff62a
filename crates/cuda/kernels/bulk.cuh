// What Hopper adds to a kernel's tools, in a line of assembly each: barriers in shared memory, the engine that copies in
// bulk, kernels that begin before the one before has ended; and, older, products of fragments and counts that publish.
#pragma once
#include "bits.cuh"

namespace buddy {

struct Barrier {
    u32 at;

    BUDDY_FN void init(u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory"); }
    BUDDY_FN void arrive() { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
    BUDDY_FN void expect(u32 bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
    }
    BUDDY_FN void wait(u32 parity) {
        asm volatile(
            "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(at),
            "r"(parity)
            : "memory");
    }
};

// The policy for what is read once: it is the first to leave L2.
BUDDY_FN u64 read_once() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

BUDDY_FN void copy_bulk(u32 to, const void* from, u32 bytes, Barrier done, u64 policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
                     "r"(to), "l"(from), "r"(bytes), "r"(done.at), "l"(policy)
                 : "memory");
}

BUDDY_FN void copy_bulk(u32 to, const void* from, u32 bytes, Barrier done) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(done.at)
                 : "memory");
}

BUDDY_FN uint4 load_four(u32 at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at) : "memory");
    return v;
}

BUDDY_FN void store_four(u32 at, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

BUDDY_FN uint2 load_two(u32 at) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at) : "memory");
    return v;
}

BUDDY_FN void store_two(u32 at, uint2 v) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(at), "r"(v.x), "r"(v.y) : "memory");
}

// One lane of the warp, such that the compiler knows that it is one.
BUDDY_FN bool elect() {
    u32 elected;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
    return elected != 0;
}

// A kernel whose launch says so may begin when all blocks of the one before in the stream have let it. It then waits for the
// end of that one before it touches what that one writes, or writes what that one reads.
BUDDY_FN void let_kernel_after_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
BUDDY_FN void wait_for_kernel_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Adds to a count, and gives what it was. Who sees the sum, and then calls `see_published`, sees what was written before. Both
// are of one thread: other lanes meet it before the first and after the second.
BUDDY_FN u32 add_and_publish(u32* count, u32 by) {
    u32 was;
    asm volatile("atom.release.gpu.global.add.u32 %0, [%1], %2;" : "=r"(was) : "l"(count), "r"(by) : "memory");
    return was;
}
BUDDY_FN void see_published() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// One product of fragments: 16 rows, 16 columns, 8 sides.
BUDDY_FN void multiply(float (&sum)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

}  // namespace buddy
