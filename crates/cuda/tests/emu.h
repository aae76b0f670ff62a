// CUDA threads on the CPU, to run kernels in tests: a fibre for each thread of a CTA, one CTA or
// cluster after the other. Barriers, shuffles and votes switch fibres. Asynchronous copies land as
// late as their waits allow, and fibres run in varying order, so that a missing wait or barrier
// fails. A wait that nothing ends is reported as a deadlock. Supports only what our kernels use.
// For x86-64, by g++ or clang++, without the address sanitiser, which does not know these stacks.
//
//     emu::launch(kernel, dim3(blocks_x, blocks_y), threads, arguments...);
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "../kernels/bits.cuh"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) double2 { double x, y; };
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }
inline dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emu {

using buddy::u32;
using buddy::u64;

constexpr size_t STACK = 96 << 10, SHARED = 227 << 10;

struct Copy {
    void* to;
    const void* from;
    u32 bytes;
    u64 group;
};
struct Fibre {
    u32 id = 0;
    void* stack_pointer = nullptr;
    std::vector<char> stack;
    bool done = false, in_warp = false;  // waits for its warp
    u64 warp_turn = 0;  // the rendezvous waited for
    std::vector<Copy> copies;
    u64 group = 0;
};
// Two sides alternate: a lane that has passed a rendezvous may write one while a slow lane still
// reads the other.
struct Warp {
    u64 turn = 0, value[2][32];
    u32 arrived = 0, live = 0, votes[2] = {0, 0};
};
struct Block {
    u64 turn = 0;
    u32 arrived = 0, live = 0, any[2] = {0, 0};
};
inline std::vector<Fibre> fibres;
inline std::vector<Warp> warps;
// The running CTAs, their threads, and the CTA of the running fibre.
inline std::vector<Block> blocks(1);
inline u32 block_threads, number;
inline Fibre* now;
inline void* main_stack;
inline std::function<void()> body;
// Rounds of this CTA so far, events other than rendezvous, and the hook of each round.
inline u64 rounds, events;
inline void (*each_round)() = nullptr;
constexpr u32 MOST_BLOCKS = 8;
alignas(1024) inline char all_shared[MOST_BLOCKS][SHARED];
inline char* dynamic_shared = all_shared[0];

extern "C" void emu_switch(void** from, void* to);
asm(R"(
.text
.weak emu_switch
.type emu_switch,@function
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

[[noreturn]] inline void fail(const char* what) {
    fprintf(stderr, "emulated block (%u, %u): %s\n", blockIdx.x, blockIdx.y, what);
    abort();
}

// Runs the other fibres.
inline void pause() { emu_switch(&now->stack_pointer, main_stack); }
inline void fibre_main() {
    body();
    now->done = true, warps[now->id / 32].live--, blocks[number].live--;
    pause();
    fail("a thread ran on after its end");
}

inline Warp& my_warp() { return warps[now->id / 32]; }
// Ends a rendezvous if all live threads have arrived, also if the missing ones have ended.
inline void pass(Warp& warp) {
    if (warp.live && warp.arrived == warp.live) warp.arrived = 0, warp.turn++, warp.votes[warp.turn & 1] = 0;
}
inline void pass(Block& all) {
    if (all.live && all.arrived == all.live) all.arrived = 0, all.turn++, all.any[all.turn & 1] = 0;
}

inline void wait_warp() {
    Warp& warp = my_warp();
    now->warp_turn = warp.turn, now->in_warp = true, warp.arrived++;
    pass(warp);
    while (warp.turn == now->warp_turn) pause();
    now->in_warp = false;
}
// A CTA barrier that ORs a value over its threads.
inline u32 wait_block(u32 value) {
    Block& block = blocks[number];
    u64 turn = block.turn;
    block.any[turn & 1] |= value, block.arrived++;
    pass(block);
    while (block.turn == turn) pause();
    return block.any[turn & 1];
}

// The lanes of a mask; other lanes may be elsewhere.
struct Lanes {
    u64 turn = 0, value[2][32];
    u32 arrived = 0;
};
inline std::map<u64, Lanes> lanes;
template <class T>
inline T exchange_among(u32 mask, T value, u32 from) {
    Lanes& some = lanes[(u64)(now->id / 32) << 32 | mask];
    u64 turn = some.turn;
    memcpy(some.value[turn & 1] + now->id % 32, &value, sizeof value);
    if (++some.arrived == (u32)__builtin_popcount(mask)) some.arrived = 0, some.turn++, events++;
    while (some.turn == turn) pause();
    if (mask >> from % 32 & 1) memcpy(&value, some.value[turn & 1] + from % 32, sizeof value);
    return value;
}

// Exchanges values among lanes; returns that of lane `from`, if it exists.
template <class T>
inline T exchange(T value, u32 from, bool there = true) {
    static_assert(sizeof value <= 8, "shuffles of at most eight bytes");
    Warp& warp = my_warp();
    u64* side = warp.value[warp.turn & 1];
    memcpy(side + now->id % 32, &value, sizeof value);
    wait_warp();
    if (there) memcpy(&value, side + from % 32, sizeof value);
    return value;
}

inline void ready(Fibre& fibre, u32 id) {
    if (fibre.stack.empty()) fibre.stack.resize(STACK);
    if (!fibre.copies.empty()) fail("copies that nobody waited for");
    fibre.id = id, fibre.done = fibre.in_warp = false, fibre.group = 0;
    // Six registers and the return address, below an aligned end.
    u64* top = (u64*)((u64)(fibre.stack.data() + STACK) & ~63ull) - 8;
    for (int i = 0; i < 8; i++) top[i] = 0;
    top[6] = (u64)(void*)fibre_main;
    fibre.stack_pointer = top;
}

// Runs each fibre until it waits; returns how many ended.
inline u32 run_round(u32 threads, bool backwards) {
    u32 ended = 0;
    for (u32 k = 0; k < threads; k++) {
        Fibre& fibre = fibres[backwards ? threads - 1 - k : k];
        if (fibre.done || (fibre.in_warp && warps[fibre.id / 32].turn == fibre.warp_turn)) continue;
        u32 first = blockIdx.x - number;
        now = &fibre, number = fibre.id / block_threads, dynamic_shared = all_shared[number];
        threadIdx = dim3(fibre.id % block_threads), blockIdx.x = first + number;
        emu_switch(&main_stack, fibre.stack_pointer);
        ended += fibre.done;
    }
    return ended;
}
inline u64 turns() {
    u64 sum = events;
    for (Block& block : blocks) sum += block.turn;
    for (Warp& warp : warps) sum += warp.turn;
    return sum;
}
// Runs several CTAs together; their threads must be whole warps.
inline void run_blocks(u32 count, u32 each) {
    u32 threads = count * each;
    block_threads = each, number = 0;
    fibres.resize(threads), warps.assign((threads + 31) / 32, Warp());
    blocks.assign(count, Block());
    for (Block& block : blocks) block.live = each;
    lanes.clear();
    for (u32 i = 0; i < threads; i++) ready(fibres[i], i), warps[i / 32].live++;
    for (u32 left = threads, round = 0; left; round++) {
        u64 before = turns();
        rounds = round;
        if (each_round) each_round();
        u32 ended = run_round(threads, round % 2);
        for (Warp& warp : warps) pass(warp);
        for (Block& block : blocks) pass(block);
        if (!ended && before == turns()) fail("deadlock");
        left -= ended;
    }
}

template <class Kernel, class... Arguments>
inline void launch_clusters(Kernel kernel, u32 cluster, dim3 grid, u32 threads, Arguments... arguments) {
    gridDim = grid, blockDim = dim3(threads);
    body = [&] { kernel(arguments...); };
    for (u32 y = 0; y < grid.y; y++) {
        for (u32 x = 0; x < grid.x; x += cluster) {
            blockIdx = dim3(x, y), number = 0;
            memset(all_shared, 0xcd, cluster * SHARED);
            run_blocks(cluster, threads);
        }
    }
}
template <class Kernel, class... Arguments>
inline void launch(Kernel kernel, dim3 grid, u32 threads, Arguments... arguments) {
    launch_clusters(kernel, 1, grid, threads, arguments...);
}

}  // namespace emu

inline void __syncthreads() { emu::wait_block(0); }
inline int __syncthreads_or(int value) { return (int)emu::wait_block(value != 0); }
inline void __syncwarp(unsigned = ~0u) { emu::wait_warp(); }
template <class T>
inline T __shfl_xor_sync(unsigned among, T value, int mask) {
    unsigned from = emu::now->id ^ (unsigned)mask;
    return among == ~0u ? emu::exchange(value, from) : emu::exchange_among(among, value, from);
}
template <class T>
inline T __shfl_sync(unsigned among, T value, int lane, int width = 32) {
    unsigned from = (emu::now->id & ~(width - 1)) | (lane & (width - 1));
    return among == ~0u ? emu::exchange(value, from) : emu::exchange_among(among, value, from);
}
template <class T>
inline T __shfl_up_sync(unsigned, T value, int by) {
    int lane = (int)(emu::now->id % 32);
    return emu::exchange(value, (unsigned)(lane - by), lane >= by);
}
template <class T>
inline T __shfl_down_sync(unsigned, T value, int by) {
    int lane = (int)(emu::now->id % 32);
    return emu::exchange(value, (unsigned)(lane + by), lane + by < 32);
}
inline unsigned __ballot_sync(unsigned, int vote) {
    unsigned& votes = emu::my_warp().votes[emu::my_warp().turn & 1];
    if (vote) votes |= 1u << emu::now->id % 32;
    emu::wait_warp();
    return votes;
}
inline int __any_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) != 0; }
inline int __all_sync(unsigned mask, int vote) { return __ballot_sync(mask, !vote) == 0; }

// Fibres never run concurrently: plain arithmetic is atomic.
template <class T, class V>
inline T atomicAdd(T* at, V value) { T old = *at; return *at = old + (T)value, old; }
template <class T, class V>
inline T atomicMin(T* at, V value) { T old = *at; return *at = (T)value < old ? (T)value : old, old; }
template <class T, class V>
inline T atomicMax(T* at, V value) { T old = *at; return *at = (T)value > old ? (T)value : old, old; }
template <class T, class V>
inline T atomicOr(T* at, V value) { T old = *at; return *at = old | (T)value, old; }
template <class T, class V>
inline T atomicAnd(T* at, V value) { T old = *at; return *at = old & (T)value, old; }
template <class T>
inline T atomicCAS(T* at, T expected, T value) { T old = *at; return *at = old == expected ? value : old, old; }
inline void __threadfence() {}
template <class T>
inline T __ldg(const T* at) { return *at; }
template <class T>
inline T __ldcs(const T* at) { return *at; }
template <class T>
inline void __stcs(T* at, T value) { *at = value; }
inline unsigned __popc(unsigned value) { return (unsigned)__builtin_popcount(value); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline double __longlong_as_double(long long bits) {
    double value;
    return memcpy(&value, &bits, 8), value;
}
inline long long __double_as_longlong(double value) {
    long long bits;
    return memcpy(&bits, &value, 8), bits;
}
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

// Replaces `shared.cuh`.
#define BUDDY_DYNAMIC_SHARED(type, name) type* name = (type*)emu::dynamic_shared
namespace buddy {
template <u32 BYTES>
inline void cp_async(void* to, const void* from) { emu::now->copies.push_back({to, from, BYTES, emu::now->group}); }
inline void cp_async_commit() { emu::now->group++; }
template <u32 LEFT>
inline void cp_async_wait() {
    std::vector<emu::Copy>& copies = emu::now->copies;
    size_t landed = 0;
    for (; landed < copies.size() && copies[landed].group + LEFT < emu::now->group; landed++)
        memcpy(copies[landed].to, copies[landed].from, copies[landed].bytes);
    copies.erase(copies.begin(), copies.begin() + (long)landed);
}
}  // namespace buddy
