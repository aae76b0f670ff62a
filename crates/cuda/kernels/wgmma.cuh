// Warpgroup mma on Hopper's tensor cores (wgmma, m64nNk16), asynchronous. Operand A is in
// registers, 16 rows per warp, in the layout of `mma_m16n8k16`. Operand B is in shared memory: rows
// of 128 bytes, swizzled (chunk c of row r at c ^ r % 8). On a CPU, tests/hopper.h stands in.
#pragma once
#include "bits.cuh"

#ifdef __CUDACC__

namespace buddy {

// Matrix descriptor of operand B: K-major rows of 128 bytes, 128-byte swizzle, 1024 bytes per eight
// rows.
BUDDY_FN u64 smem_descriptor(u32 shared) {
    return (u64)(shared >> 4 & 0x3fff) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

BUDDY_FN void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
BUDDY_FN void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `LEFT` wgmma groups are pending.
template <u32 LEFT>
BUDDY_FN void wgmma_wait_group() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// Keeps the compiler from reading accumulators before the wait, whose effect it does not know.
template <u32 COUNT>
BUDDY_FN void wait_for_registers(float (&sums)[COUNT]) {
    BUDDY_UNROLL
    for (u32 i = 0; i < COUNT; i++) asm volatile("" : "+f"(sums[i])::"memory");
}

// Makes generic stores to shared memory visible to later wgmmas and bulk copies.
BUDDY_FN void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// d = a b, or d += a b if `add`. A lane holds columns 8j + 2 * (lane % 4) and the next, of rows
// lane / 4 and lane / 4 + 8.
template <u32 COLUMNS>
BUDDY_FN void wgmma(float (&d)[COLUMNS / 2], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, u32 add);

#define BUDDY_SUMS_8(d, i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])

template <>
BUDDY_FN void wgmma<8>(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, u32 add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %9, 0;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3"
        "}, {%4, %5, %6, %7}, %8, p, 1, 1, 0;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add));
}

template <>
BUDDY_FN void wgmma<16>(float (&d)[8], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, u32 add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\nwgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7"
        "}, {%8, %9, %10, %11}, %12, p, 1, 1, 0;\n}"
        : BUDDY_SUMS_8(d, 0)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add));
}

template <>
BUDDY_FN void wgmma<32>(float (&d)[16], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, u32 add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
        "}, {%16, %17, %18, %19}, %20, p, 1, 1, 0;\n}"
        : BUDDY_SUMS_8(d, 0), BUDDY_SUMS_8(d, 8)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add));
}

template <>
BUDDY_FN void wgmma<64>(float (&d)[32], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, u32 add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"
        : BUDDY_SUMS_8(d, 0), BUDDY_SUMS_8(d, 8), BUDDY_SUMS_8(d, 16), BUDDY_SUMS_8(d, 24)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add));
}

template <>
BUDDY_FN void wgmma<128>(float (&d)[64], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, u32 add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, {%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}"
        : BUDDY_SUMS_8(d, 0), BUDDY_SUMS_8(d, 8), BUDDY_SUMS_8(d, 16), BUDDY_SUMS_8(d, 24), BUDDY_SUMS_8(d, 32), BUDDY_SUMS_8(d, 40), BUDDY_SUMS_8(d, 48), BUDDY_SUMS_8(d, 56)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add));
}

template <>
BUDDY_FN void wgmma<256>(float (&d)[128], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, u32 add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %133, 0;\nwgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
        "}, {%128, %129, %130, %131}, %132, p, 1, 1, 0;\n}"
        : BUDDY_SUMS_8(d, 0), BUDDY_SUMS_8(d, 8), BUDDY_SUMS_8(d, 16), BUDDY_SUMS_8(d, 24), BUDDY_SUMS_8(d, 32), BUDDY_SUMS_8(d, 40), BUDDY_SUMS_8(d, 48), BUDDY_SUMS_8(d, 56), BUDDY_SUMS_8(d, 64), BUDDY_SUMS_8(d, 72), BUDDY_SUMS_8(d, 80), BUDDY_SUMS_8(d, 88), BUDDY_SUMS_8(d, 96), BUDDY_SUMS_8(d, 104), BUDDY_SUMS_8(d, 112), BUDDY_SUMS_8(d, 120)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add));
}

#undef BUDDY_SUMS_8

}  // namespace buddy

#endif
