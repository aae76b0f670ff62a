// Tests of emu.h: `sum` sums a block by shuffles, votes and barriers; `late` shows that a copy
// lands only when it is waited for; `race` that a missing barrier fails; `deadlock` that a barrier
// which a thread never reaches ends the program.
#include "emu.h"

#include <string>

using namespace buddy;

static void expect(bool holds, const char* what) {
    if (!holds) fprintf(stderr, "%s\n", what), exit(1);
}

__global__ void sum(const u32* from, u32* to) {
    __shared__ u32 parts[8];
    u32 value = from[blockIdx.x * blockDim.x + threadIdx.x], lane = threadIdx.x % 32;
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    if (lane == 0) parts[threadIdx.x / 32] = value;
    if (threadIdx.x >= 224) return;  // its part is complete; the remaining threads go on without it
    __syncthreads();
    u32 all = 0;
    for (u32 i = 0; i < 7; i++) all += parts[i];
    u32 odd = __ballot_sync(~0u, lane & 1), next = __shfl_down_sync(~0u, lane, 1), first = __shfl_sync(~0u, lane, 0, 4);
    bool right = odd == 0xaaaaaaaau && next == (lane < 31 ? lane + 1 : 31) && first == lane / 4 * 4;
    right = right && __syncthreads_or(threadIdx.x == 5) && !__syncthreads_or(0);
    if (threadIdx.x == 0) to[blockIdx.x] = right ? all : 0;
}

__global__ void late(const uint4* from, u32* seen) {
    BUDDY_DYNAMIC_SHARED(uint4, shared);
    u32 t = threadIdx.x;
    cp_async<16>(shared + t, from + t), cp_async_commit();
    cp_async<16>(shared + 64 + t, from + t), cp_async_commit();
    bool before = shared[t].x == 7;
    cp_async_wait<1>();
    bool one = shared[t].x == 7, both = shared[64 + t].x == 7;
    cp_async_wait<0>();
    if (!before && one && !both && shared[64 + t].x == 7) atomicAdd(seen, 1);
}

__global__ void race(u32* wrong) {
    __shared__ u32 cell[64];
    cell[threadIdx.x] = 0;
    __syncthreads();
    for (u32 turn = 1; turn < 4; turn++) {
        cell[threadIdx.x] = turn;
        if (cell[63 - threadIdx.x] != turn) atomicAdd(wrong, 1);
        __syncthreads();
    }
}

__global__ void deadlock() {
    if (threadIdx.x == 3) __ballot_sync(~0u, 1);
    else __syncthreads();
}

int main(int, char** argv) {
    std::string what = argv[1];
    if (what == "sum") {
        std::vector<u32> from(512), to(2);
        for (u32 i = 0; i < 512; i++) from[i] = i * i;
        emu::launch(sum, dim3(2), 256, (const u32*)from.data(), to.data());
        for (u32 b = 0; b < 2; b++) {
            u32 want = 0;
            for (u32 i = 0; i < 224; i++) want += from[256 * b + i];
            expect(to[b] == want, "a sum is wrong");
        }
    } else if (what == "late") {
        std::vector<uint4> from(64, make_uint4(7, 7, 7, 7));
        u32 seen = 0;
        emu::launch(late, dim3(1), 64, (const uint4*)from.data(), &seen);
        expect(seen == 64, "copies land at another time");
    } else if (what == "race") {
        u32 wrong = 0;
        emu::launch(race, dim3(1), 64, &wrong);
        expect(wrong > 0, "a missing barrier went unseen");
    } else {
        emu::launch(deadlock, dim3(1), 32);
    }
}
