// PTX that only attention needs, one instruction each. On a CPU, tests/attention.cpp stands in.
#pragma once
#include "bulk.cuh"

#ifdef __CUDACC__

namespace buddy {

BUDDY_FN float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// Transposes an 8 x 8 matrix of 16-bit values; a lane holds two values of row lane / 4.
BUDDY_FN u32 transpose8x8(u32 two) {
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(two));
    return two;
}
// Orders this thread's stores to shared memory before later bulk copies.
BUDDY_FN void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Stores to the same address in another CTA of the cluster, whose barrier counts the bytes. Needs
// no fence.
BUDDY_FN void st_async(u32 at, u32 block, float2 v, Barrier counts) {
    asm volatile("{\n.reg .b32 there, full;\nmapa.shared::cluster.u32 there, %0, %4;\nmapa.shared::cluster.u32 full, %1, %4;\n"
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {%2, %3}, [full];\n}" ::"r"(at),
                 "r"(counts.at), "f"(v.x), "f"(v.y), "r"(block)
                 : "memory");
}

}  // namespace buddy

#endif

namespace buddy {

// The first type if the condition holds, else the second.
template <bool CONDITION, class A, class B>
struct Choice {
    typedef A Type;
};
template <class A, class B>
struct Choice<false, A, B> {
    typedef B Type;
};
template <bool CONDITION, class A, class B>
using Either = typename Choice<CONDITION, A, B>::Type;

}  // namespace buddy
