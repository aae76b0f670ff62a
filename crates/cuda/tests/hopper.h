// Replaces bulk.cuh and wgmma.cuh for emu.h: barriers in shared memory, bulk copies, mma and wgmma.
// Asynchronous work happens as late as it may: copies land some rounds after their issue, and
// products read their operands, in registers and in shared memory, when they are waited for, so
// that a premature overwrite fails. CTAs run one after the other, or cluster after cluster.
#pragma once
#include <algorithm>
#include <deque>
#include <map>

#include "emu.h"
#include "../kernels/bits.cuh"

#define __cluster_dims__(...)

using std::min;
inline float __uint_as_float(unsigned bits) {
    float value;
    return memcpy(&value, &bits, 4), value;
}
inline unsigned __float_as_uint(float value) {
    unsigned bits;
    return memcpy(&bits, &value, 4), bits;
}
inline float __expf(float value) { return expf(value); }
template <class T>
inline T __ldcg(const T* at) { return *at; }
template <class T>
inline void __stcg(T* at, T value) { *at = value; }

namespace emu {

struct State {
    u32 count = 0, pending = 0, phase = 0;
    long tx = 0;
};
// By address in a cluster: a CTA's own address and, above it, the CTA's rank.
inline std::map<u32, State> barriers;
constexpr u32 BLOCK = 1 << 20;
inline u32 in_cluster(u32 at) { return at < BLOCK ? at + (number + 1) * BLOCK : at; }

inline void settle(State& state) {
    events++;
    if (state.pending == 0 && state.tx == 0) state.pending = state.count, state.phase ^= 1;
}
inline void arrive(u32 at, long tx = 0) {
    State& state = barriers.at(in_cluster(at));
    if (state.pending == 0) fail("a barrier has more arrivals than it counts");
    state.pending--, state.tx += tx;
    settle(state);
}

// An event some rounds after its issue.
struct Later {
    u64 round;
    std::function<void()> happen;
};
inline std::deque<Later> later;
inline void do_later(std::function<void()> happen) { later.push_back({rounds + 2, std::move(happen)}), events++; }
// Runs once per round.
inline void land() {
    if (!later.empty()) events++;
    for (; !later.empty() && later.front().round <= rounds; later.pop_front(), events++) later.front().happen();
}

struct Product {
    float* sums;
    const u32* a[4];
    u64 x;
    bool adds;
    u32 columns, group;
};
// Pending products by thread.
inline std::map<u32, std::deque<Product>> products;
inline std::map<u32, u32> groups;

// Start of the launch's shared memory: the first kilobyte is reserved, as on the GPU.
constexpr u32 FIRST = 1024;
inline char* at_shared(u32 at) {
    char* memory = at < BLOCK ? dynamic_shared : all_shared[at / BLOCK - 1];
    at %= BLOCK;
    if (at < FIRST || at >= FIRST + SHARED) fail("an address outside of shared memory");
    return memory + (at - FIRST);
}

inline float bf16_at(u32 shared) {
    unsigned short half;
    memcpy(&half, at_shared(shared), 2);
    return __uint_as_float((u32)half << 16);
}
// A lane's part of a product: two rows of sums; it needs the A fragments of the four lanes of a
// row.
inline void multiply(const Product& of) {
    u32 lane = now->id % 32, start = (u32)(of.x & 0x3fff) << 4, base = start & ~1023u, first = start & 1023u;
    float rows[2][16];
    for (u32 half = 0; half < 2; half++) {
        for (u32 k = 0; k < 8; k++) {
            u32 pair = exchange(*of.a[half + k / 4 * 2], lane / 4 * 4 + k % 4);
            rows[half][2 * k] = __uint_as_float(pair << 16), rows[half][2 * k + 1] = __uint_as_float(pair & 0xffff0000u);
        }
    }
    for (u32 i = 0; i < of.columns / 2; i++) {
        u32 column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        float sum = of.adds ? of.sums[i] : 0;
        for (u32 k = 0; k < 16; k++) {
            u32 byte = first + 2 * k;
            sum += rows[i / 2 % 2][k] * bf16_at(base + column * 128 + ((byte / 16) ^ column % 8) * 16 + byte % 16);
        }
        of.sums[i] = sum;
    }
}
inline void finish_groups(u32 left) {
    std::deque<Product>& mine = products[now->id];
    for (; !mine.empty() && mine.front().group + left < groups[now->id]; mine.pop_front()) multiply(mine.front());
}

inline unsigned short to_bf16(float value) {
    u32 bits = __float_as_uint(value);
    return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace emu

namespace buddy {

inline u32 shared_address(const void* at) { return emu::FIRST + (u32)((const char*)at - emu::dynamic_shared); }

struct Barrier {
    u32 at;

    void init(u32 count) { emu::barriers[emu::in_cluster(at)] = {count, count, 0, 0}; }
    void arrive() { emu::arrive(at); }
    void arrive_at(u32 block);
    void arrive_expect_tx(u32 bytes) { emu::arrive(at, bytes); }
    void wait(u32 parity) {
        while (emu::barriers.at(emu::in_cluster(at)).phase == parity) emu::pause();
    }
};
inline u32 address_in(u32 at, u32 block) {
    if (block >= emu::blocks.size()) emu::fail("a block outside of the cluster");
    return at + (block + 1) * emu::BLOCK;
}
inline void Barrier::arrive_at(u32 block) {
    if (emu::blocks[block].live == 0) emu::fail("a barrier of a block that has ended");
    emu::arrive(address_in(at, block));
}
inline void fence_mbarrier_init() {}
// Threads that have arrived, and arrivals by thread.
inline std::map<u32, u32> cluster_arrivals;
inline void cluster_arrive() { cluster_arrivals[emu::now->id]++, emu::events++; }
inline void cluster_wait() {
    u32 mine = cluster_arrivals[emu::now->id];
    auto all = [&] {
        for (emu::Fibre& fibre : emu::fibres) {
            if (cluster_arrivals[fibre.id] < mine) return false;
        }
        return true;
    };
    while (!all()) emu::pause();
}
inline void launch_dependent_grids() {}
inline void wait_on_dependent_grids() {}
template <u32>
inline void raise_registers() {}
template <u32>
inline void lower_registers() {}
inline bool elect_one() { return emu::now->id % 32 == 0; }
inline u64 evict_first_policy() { return 0; }

inline void copy_later(u32 to, const void* from, u32 bytes) {
    to = emu::in_cluster(to);
    emu::do_later([=] { memcpy(emu::at_shared(to), from, bytes); });
}
inline void arrive_later(Barrier done, long tx, bool counts) {
    u32 at = emu::in_cluster(done.at);
    emu::do_later([=] {
        if (counts) return emu::arrive(at);
        emu::State& state = emu::barriers.at(at);
        state.tx -= tx, emu::settle(state);
    });
}
inline void cp_async_bulk(u32 to, const void* from, u32 bytes, Barrier done, u64 = 0) {
    if (bytes % 16 || to % 16 || (u64)from % 16) emu::fail("a copy that is not aligned");
    copy_later(to, from, bytes), arrive_later(done, bytes, false);
}
template <u32 BYTES>
inline void cp_async(u32 to, const void* from) { copy_later(to, from, BYTES); }
inline void cp_async_mbarrier_arrive(Barrier barrier) { arrive_later(barrier, 0, true); }

// Address of the matrix, its columns and rows, and the rows of a box of 64 columns.
struct alignas(64) TensorMap {
    u64 opaque[16];
};
inline void cp_async_bulk_tensor(u32 to, const TensorMap& map, u32 column, u32 row, Barrier done) {
    u64 columns = map.opaque[1], rows = map.opaque[2], box = map.opaque[3];
    for (u32 r = 0; r < box; r++) {
        for (u32 c = 0; c < 8; c++) {
            static const char zeros[16] = {};
            const char* from = (const char*)map.opaque[0] + ((row + r) * columns + column + 8 * c) * 2;
            copy_later(to + r * 128 + (c ^ r % 8) * 16, row + r < rows ? from : zeros, 16);
        }
    }
    arrive_later(done, (long)box * 128, false);
}
inline void cp_async_bulk_multicast(u32 to, const void* from, u32 bytes, Barrier done, unsigned short blocks) {
    for (u32 b = 0; b < 16; b++) {
        if (blocks >> b & 1) cp_async_bulk(address_in(to, b), from, bytes, {address_in(done.at, b)});
    }
}
inline void cp_async_bulk_tensor_multicast(u32 to, const TensorMap& map, u32 column, u32 row, Barrier done, unsigned short blocks) {
    for (u32 b = 0; b < 16; b++) {
        if (blocks >> b & 1) cp_async_bulk_tensor(address_in(to, b), map, column, row, {address_in(done.at, b)});
    }
}
inline void prefetch_tensor_map(const TensorMap&) {}

template <class T>
inline T shared_load(u32 at) {
    T value;
    return memcpy(&value, emu::at_shared(at), sizeof value), value;
}
template <class T>
inline void shared_store(u32 at, T value) { memcpy(emu::at_shared(at), &value, sizeof value); }
inline u32 lds16(u32 at) { return shared_load<unsigned short>(at); }
inline u32 lds16_if(u32 condition, u32 at) { return condition ? lds16(at) : 0; }
inline u32 lds32(u32 at) { return shared_load<u32>(at); }
inline uint2 lds64(u32 at) { return shared_load<uint2>(at); }
inline uint4 lds128(u32 at) { return shared_load<uint4>(at); }
inline void sts32(u32 at, u32 v) { shared_store(at, v); }
inline void sts64(u32 at, uint2 v) { shared_store(at, v); }
inline void sts128(u32 at, uint4 v) { shared_store(at, v); }
inline void stmatrix4_transposed(u32 at, u32 a, u32 b, u32 c, u32 d) {
    u32 lane = emu::now->id % 32, words[4] = {a, b, c, d};
    for (u32 i = 0; i < 8; i++) {
        u32 matrix = i / 2, to = emu::exchange(at, matrix * 8 + lane % 4 * 2 + i % 2);
        shared_store(to + lane / 4 * 2, (unsigned short)(words[matrix] >> i % 2 * 16));
    }
}

inline u32 to_bf16(float low, float high) { return emu::to_bf16(low) | (u32)emu::to_bf16(high) << 16; }
inline u32 bf16_pair(float first, float second) { return to_bf16(first, second); }
inline unsigned short narrow_bf16(float value) { return emu::to_bf16(value); }
inline float from_bf16(u32 low) { return __uint_as_float(low << 16); }

inline u32 atomic_add_release(u32* count, u32 by) { return atomicAdd(count, by); }
inline void fence_acq_rel() {}
inline u32 atomic_add_relaxed(u32* count, u32 by) { return atomicAdd(count, by); }
inline void wait_until(const u32* count, u32 is) {
    while (*(const volatile u32*)count != is) emu::pause();
}

template <u32 THREADS, u32 NUMBER = 1>
inline void named_barrier(bool waits = true) {
    static std::vector<emu::State> of_blocks(emu::MOST_BLOCKS, {THREADS, THREADS, 0, 0});
    emu::State& all = of_blocks[emu::number];
    u32 phase = all.phase;
    all.pending--, emu::settle(all);
    while (waits && all.phase == phase) emu::pause();
}
template <u32 THREADS>
inline void barrier_arrive() { named_barrier<THREADS, 2>(false); }
template <u32 THREADS>
inline void barrier_wait() { named_barrier<THREADS, 2>(); }
inline uint4 ldmatrix4(u32 at) {
    u32 lane = emu::now->id % 32, words[4];
    for (u32 m = 0; m < 4; m++) words[m] = lds32(emu::exchange(at, 8 * m + lane / 4) + lane % 4 * 4);
    return make_uint4(words[0], words[1], words[2], words[3]);
}
inline void mma_m16n8k16(float (&sum)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    u32 lane = emu::now->id % 32, a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
    auto number = [](u32 pair, u32 k) { return __uint_as_float(k % 2 ? pair & 0xffff0000u : pair << 16); };
    for (u32 k = 0; k < 16; k++) {
        u32 of = k % 8 / 2, rows[2], columns[2];
        for (u32 i = 0; i < 2; i++) rows[i] = emu::exchange(a[i + k / 8 * 2], lane / 4 * 4 + of);
        for (u32 i = 0; i < 2; i++) columns[i] = emu::exchange(b[k / 8], (lane % 4 * 2 + i) * 4 + of);
        for (u32 i = 0; i < 4; i++) sum[i] += number(rows[i / 2], k) * number(columns[i % 2], k);
    }
}

inline u64 smem_descriptor(u32 shared) { return shared >> 4 & 0x3fff; }
inline void wgmma_fence() {}
template <u32 COUNT>
inline void wait_for_registers(float (&)[COUNT]) {}
inline void wgmma_commit_group() { emu::groups[emu::now->id]++; }
template <u32 LEFT>
inline void wgmma_wait_group() { emu::finish_groups(LEFT); }
template <u32 COLUMNS>
inline void wgmma(float (&d)[COLUMNS / 2], const u32& a0, const u32& a1, const u32& a2, const u32& a3, u64 b, u32 add) {
    emu::products[emu::now->id].push_back({d, {&a0, &a1, &a2, &a3}, b, add != 0, COLUMNS, emu::groups[emu::now->id]});
}

}  // namespace buddy
