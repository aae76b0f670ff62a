// Shared memory: addresses, dynamic shared memory, and asynchronous copies. On a CPU, tests/emu.h
// stands in.
#pragma once
#include "bits.cuh"

#ifdef __CUDACC__

// Declares dynamic shared memory as a pointer to `type`.
#define BUDDY_DYNAMIC_SHARED(type, name)                      \
    extern __shared__ __align__(1024) unsigned char shared_bytes[]; \
    type* name = (type*)shared_bytes

namespace buddy {

// Returns a shared-memory address as copies and barriers take it.
BUDDY_FN u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

// Starts an asynchronous copy of 4, 8 or 16 bytes from global to shared memory; copies of 16 bypass
// L1.
template <u32 BYTES>
BUDDY_FN void cp_async(u32 to, const void* from) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "what the hardware copies");
    if (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES) : "memory");
    }
}
template <u32 BYTES>
BUDDY_FN void cp_async(void* to, const void* from) {
    cp_async<BYTES>(shared_address(to), from);
}

// Commits this thread's copies as a group; waits until at most `LEFT` groups are in flight.
BUDDY_FN void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <u32 LEFT>
BUDDY_FN void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// Waits for this lane's asynchronous copies, and for those of the warp.
BUDDY_FN void cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
BUDDY_FN void cp_async_wait_warp() {
    cp_async_wait_all();
    __syncwarp();
}

}  // namespace buddy

#endif
