// Compressed memory in a CUDA program of its own, without the library: the least that there is to
// do. A field of doubles is stored compressed at 2x, halved in place by a kernel, and read back.
//
//   buddy gpu headers headers
//   nvcc -std=c++17 -arch=sm_90 -I headers examples/device/halve.cu -o halve && ./halve
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "buddy_device.cuh"

using namespace buddy;

#define CHECK(call)                                                                 \
    do {                                                                            \
        cudaError_t error = (call);                                                 \
        if (error != cudaSuccess) return printf("%s\n", cudaGetErrorString(error)), 1; \
    } while (0)

// A thread to an entry: the simplest way.
__global__ void store(BuddyView view, const u32* from) {
    u64 entry = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (entry >= view.memory.entries) return;
    u32 words[WORDS];
    for (u32 i = 0; i < WORDS; i++) words[i] = from[entry * WORDS + i];
    thread::store_entry<Planes64>(view, entry, words);
}

// A warp to 32 entries: what is moved lies in the order of memory.
__global__ void halve(BuddyView view) {
    __shared__ __align__(128) uint4 chunks[4][WARP * CHUNKS];
    Tile tile = {chunks[threadIdx.x / WARP], threadIdx.x % WARP};
    u64 first = (blockIdx.x * (u64)blockDim.x + threadIdx.x) / WARP * WARP;
    if (first >= view.memory.entries) return;
    u32 active = view.memory.entries - first >= WARP ? ALL : ALL >> (WARP - (u32)(view.memory.entries - first));
    warp::load_entries<Planes64>(view, tile, first, active);
    Row row(tile);
    u32 words[WORDS];
    row.load_all(words);
    for (u32 i = 0; i < WORDS; i += 2) {
        double half = __hiloint2double(words[i + 1], words[i]) / 2;
        words[i] = __double2loint(half), words[i + 1] = __double2hiint(half);
    }
    warp::store_entries<Planes64>(view, tile, first, words, active);
}

__global__ void load(BuddyView view, u32* to) {
    u64 entry = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (entry >= view.memory.entries) return;
    u32 words[WORDS];
    thread::load_entry<Planes64>(view, entry, words);
    for (u32 i = 0; i < WORDS; i++) to[entry * WORDS + i] = words[i];
}

int main() {
    const u64 entries = 100000, padded = (entries + PAGE_ENTRIES - 1) / PAGE_ENTRIES * PAGE_ENTRIES, bytes = entries * ENTRY;
    std::vector<double> cells(bytes / 8), back(bytes / 8);
    for (u64 i = 0; i < cells.size(); i++) cells[i] = 1.5 + 0.25 * sin(6e-9 * i);
    // One entry that does not compress: half of it overflows.
    for (u64 i = 320; i < 336; i++) cells[i] = sin((double)(i * i * i));
    BuddyView view = {};
    view.memory.entries = entries;
    view.memory.device_bytes = 64;  // 2x
    u32* plain;
    CHECK(cudaMalloc(&view.memory.device, padded * 64));
    CHECK(cudaMalloc(&view.memory.nibbles, padded / 2));
    CHECK(cudaMalloc(&view.memory.fault, 8));
    CHECK(cudaMalloc(&plain, bytes));
    CHECK(cudaMallocHost(&view.memory.buddy, padded * 64));
    CHECK(cudaMemset(view.memory.nibbles, 0, padded / 2));
    CHECK(cudaMemset(view.memory.fault, 0xff, 8));
    CHECK(cudaMemcpy(plain, cells.data(), bytes, cudaMemcpyHostToDevice));
    const u32 blocks = (u32)((entries + 127) / 128);
    store<<<blocks, 128>>>(view, plain);
    halve<<<blocks, 128>>>(view);
    CHECK(cudaMemset(plain, 0xee, bytes));
    load<<<blocks, 128>>>(view, plain);
    CHECK(cudaMemcpy(back.data(), plain, bytes, cudaMemcpyDeviceToHost));
    u64 fault, wrong = 0;
    CHECK(cudaMemcpy(&fault, view.memory.fault, 8, cudaMemcpyDeviceToHost));
    for (u64 i = 0; i < cells.size(); i++) wrong += back[i] != cells[i] / 2;
    printf("%llu of %zu cells are wrong, %s\n", wrong, cells.size(), fault == ~0ull ? "no fault" : "a fault");
    return wrong != 0 || fault != ~0ull;
}
