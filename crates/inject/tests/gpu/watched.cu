// Test programs for watching, one for each way to allocate device memory: `watched MODE [GB]`. Each
// prints a sum of its results, which must not depend on watching. run.sh builds them for both
// runtimes and compares.
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "buddy_watch.h"

typedef unsigned int u32;
typedef unsigned long long u64;

#define CHECK(call)                                                                     \
    do {                                                                                \
        auto result = (call);                                                           \
        if (result != 0) {                                                              \
            fprintf(stderr, "%s:%d: error %d\n", __FILE__, __LINE__, (int)result);      \
            exit(3);                                                                    \
        }                                                                               \
    } while (0)

// A third zeros, a third a ramp, a third noise; depends on the step.
__global__ void fill(u32* words, u64 count, u32 step) {
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        u32 part = (u32)(i * 3 / count), hash = (u32)i * 2654435761u + step;
        hash ^= hash >> 15;
        words[i] = part == 0 ? 0 : part == 1 ? (u32)i * step : hash * 2246822519u;
    }
}

// Pairs of bf16 numbers with ten exponents; depends on the step; zeros in front.
__global__ void fill_bf16(u32* words, u64 count, u32 step) {
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        u32 hash = ((u32)i + step) * 2654435761u;
        hash ^= hash >> 15;
        u32 low = (120 + hash % 10) << 7 | (hash >> 8 & 0x7f), high = (120 + hash / 10 % 10) << 7 | (hash >> 16 & 0x807f);
        words[i] = i < count / 4 ? 0 : high << 16 | low;
    }
}

__global__ void sum(const u32* words, u64 count, u64* to) {
    u64 all = 0;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) all += words[i];
    atomicAdd(to, all);
}

__global__ void fault(u32* words) { words[1ull << 60] = 1; }

static void run(u32* words, u64 count, cudaStream_t stream, u32 steps) {
    for (u32 step = 1; step <= steps; step++) fill<<<512, 256, 0, stream>>>(words, count, step);
    CHECK(cudaGetLastError());
}

static u64 total(const u32* words, u64 count) {
    u64 *device, host = 0;
    CHECK(cudaMalloc(&device, sizeof host));
    CHECK(cudaMemset(device, 0, sizeof host));
    sum<<<512, 256>>>(words, count, device);
    CHECK(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device));
    return host;
}

static u64 plain(u64 bytes, u32 steps) {
    u32* words;
    CHECK(cudaMalloc(&words, bytes));
    run(words, bytes / 4, 0, steps);
    u64 found = total(words, bytes / 4);
    CHECK(cudaFree(words));
    return found;
}

static u64 pitched() {
    u32* words;
    size_t pitch;
    CHECK(cudaMallocPitch(&words, &pitch, 1000, 3000));
    CHECK(cudaMemset2D(words, pitch, 1, 1000, 3000));
    run(words, pitch / 4 * 3000, 0, 12);
    return total(words, pitch / 4 * 3000);
}

static u64 async(bool own_pool) {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    cudaMemPool_t pool = 0;
    if (own_pool) {
        cudaMemPoolProps properties = {};
        properties.allocType = cudaMemAllocationTypePinned;
        properties.location.type = cudaMemLocationTypeDevice;
        CHECK(cudaMemPoolCreate(&pool, &properties));
    }
    u64 found = 0, bytes = 5 << 20;
    for (int round = 0; round < 15; round++) {
        u32* words;
        if (own_pool) CHECK(cudaMallocFromPoolAsync((void**)&words, bytes, pool, stream));
        else CHECK(cudaMallocAsync((void**)&words, bytes, stream));
        run(words, bytes / 4, stream, 2);
        CHECK(cudaStreamSynchronize(stream));
        found += total(words, bytes / 4);
        CHECK(cudaFreeAsync(words, stream));
    }
    return found;
}

static u64 managed() {
    u32* words;
    u64 count = 3 << 20;
    CHECK(cudaMallocManaged(&words, 4 * count));
    for (u64 i = 0; i < count; i++) words[i] = (u32)i;
    run(words, count / 2, 0, 11);
    CHECK(cudaDeviceSynchronize());
    return words[count - 1] + total(words, count);
}

// Managed memory that host and GPU access alternately, as with coarse grids on the host: the host
// has one in eight parts, the GPU the rest.
static u64 turns() {
    u32* words;
    u64 count = 1 << 27, part = count / 8;
    CHECK(cudaMallocManaged(&words, 4 * count));
    u64 found = 0;
    for (u32 step = 1; step <= 60; step++) {
        run(words + part, count - part, 0, 1);
        CHECK(cudaDeviceSynchronize());
        for (u64 i = 0; i < part; i += 1024) found += words[i] += step;
    }
    return found + total(words, count);
}

// cuMemMap without linking the driver.
#define DRIVER(name)                                                                                      \
    decltype(&name) p_##name;                                                                             \
    {                                                                                                     \
        cudaDriverEntryPointQueryResult found;                                                            \
        CHECK(cudaGetDriverEntryPointByVersion(#name, (void**)&p_##name, 12000, cudaEnableDefault, &found)); \
    }

static u64 mapped() {
    DRIVER(cuMemGetAllocationGranularity) DRIVER(cuMemAddressReserve) DRIVER(cuMemCreate) DRIVER(cuMemMap)
    DRIVER(cuMemSetAccess) DRIVER(cuMemUnmap) DRIVER(cuMemRelease)
    CHECK(cudaFree(0));
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    size_t grain;
    CHECK(p_cuMemGetAllocationGranularity(&grain, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    u64 bytes = 4 * grain;
    CUdeviceptr address;
    CHECK(p_cuMemAddressReserve(&address, 2 * bytes, 0, 0, 0));
    CUmemGenericAllocationHandle handle;
    CHECK(p_cuMemCreate(&handle, bytes, &properties, 0));
    CHECK(p_cuMemMap(address, bytes, 0, handle, 0));
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(p_cuMemSetAccess(address, bytes, &access, 1));
    run((u32*)address, bytes / 4, 0, 10);
    u64 found = total((u32*)address, bytes / 4);
    CHECK(cudaDeviceSynchronize());
    CHECK(p_cuMemUnmap(address, bytes));
    CHECK(p_cuMemRelease(handle));
    return found;
}

// A captured graph of launches and its own memory, launched many times.
static u64 graph() {
    u32* words;
    u64 count = 1 << 20;
    CHECK(cudaMalloc(&words, 4 * count));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    u32* inner;
    CHECK(cudaMallocAsync((void**)&inner, 1 << 20, stream));
    run(inner, 1 << 18, stream, 2);
    run(words, count, stream, 5);
    CHECK(cudaFreeAsync(inner, stream));
    cudaGraph_t captured;
    CHECK(cudaStreamEndCapture(stream, &captured));
    cudaGraphExec_t ready;
    CHECK(cudaGraphInstantiate(&ready, captured, 0));
    for (int i = 0; i < 30; i++) CHECK(cudaGraphLaunch(ready, stream));
    CHECK(cudaStreamSynchronize(stream));
    return total(words, count);
}

static u64 threads() {
    std::vector<std::thread> all;
    std::vector<u64> found(8);
    for (int i = 0; i < 8; i++) {
        all.emplace_back([i, &found] {
            for (int round = 0; round < 20; round++) found[i] += plain((1 << 20) + 4096 * i, 6);
        });
    }
    u64 sum = 0;
    for (int i = 0; i < 8; i++) {
        all[i].join();
        sum += found[i];
    }
    return sum;
}

// Parent and child each use CUDA; the fork comes first.
static u64 forked() {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        printf("child %llu\n", plain(2 << 20, 12));
        fflush(stdout);
        exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    return plain(1 << 20, 12) + (u64)status;
}

static u64 ask() {
    u32* words;
    u64 count = 1 << 20;
    CHECK(cudaMalloc(&words, 4 * count));
    run(words, count, 0, 3);
    buddy_watch_look("after three steps");
    run(words, count, 0, 50);
    buddy_watch_look("at the end");
    return total(words, count);
}

static u64 bf16() {
    u32* words;
    u64 count = 1 << 20;
    CHECK(cudaMalloc(&words, 4 * count));
    for (u32 step = 1; step <= 12; step++) fill_bf16<<<512, 256>>>(words, count, step);
    return total(words, count);
}

// A pool of the program's own: two pieces, one of which moves, and free space.
static char* pool;
static bool moved;
static void tell() {
    const u64 mega = 1 << 20, at = (u64)pool;
    buddy_watch_piece(at, mega, moved ? 0 : "left");
    buddy_watch_piece(at + mega, 2 * mega, "right");
    buddy_watch_piece(at + 3 * mega, mega, moved ? "left" : 0);
    buddy_watch_piece(at + 4 * mega, 4 * mega, 0);
}

static u64 pieces() {
    CHECK(cudaMalloc(&pool, 8 << 20));
    buddy_watch_pieces(tell);
    for (u32 step = 1; step <= 12; step++) {
        moved = step > 6;
        run((u32*)pool + (moved ? 3 << 18 : 0), 1 << 18, 0, 1);
        run((u32*)pool + (1 << 18), 1 << 19, 0, 1);
    }
    u64 found = total((u32*)pool, 1 << 20);
    buddy_watch_pieces(0);
    return found;
}

// A kernel faults; the program reports the error itself.
static u64 crash() {
    u64 found = plain(1 << 20, 12);
    printf("before %llu\n", found);
    fflush(stdout);
    u32* words;
    CHECK(cudaMalloc(&words, 1 << 20));
    fault<<<1, 1>>>(words);
    CHECK(cudaDeviceSynchronize());
    return found;
}

// Runs until a signal ends it.
static u64 wait_for_signal() {
    u32* words;
    CHECK(cudaMalloc(&words, 1 << 20));
    for (int round = 0; round < 2000; round++) {
        run(words, 1 << 18, 0, 1);
        usleep(10000);
    }
    return 0;
}

static u64 big(double gigabytes) {
    const int parts = 5;
    u64 bytes = (u64)(gigabytes * 1e9) / parts / 4096 * 4096, found = 0;
    u32* words[parts];
    for (int i = 0; i < parts; i++) CHECK(cudaMalloc(&words[i], bytes));
    for (u32 step = 1; step <= 4; step++)
        for (int i = 0; i < parts; i++) run(words[i], bytes / 4, 0, 1);
    for (int i = 0; i < parts; i++) found += total(words[i], bytes / 4);
    return found;
}

int main(int count, char** arguments) {
    const char* mode = count > 1 ? arguments[1] : "plain";
    auto is = [mode](const char* name) { return strcmp(mode, name) == 0; };
    u64 found = 0;
    if (is("plain")) found = plain(12345678 / 4 * 4, 25);
    else if (is("pitched")) found = pitched();
    else if (is("async")) found = async(false);
    else if (is("pool")) found = async(true);
    else if (is("managed")) found = managed();
    else if (is("turns")) found = turns();
    else if (is("mapped")) found = mapped();
    else if (is("graph")) found = graph();
    else if (is("threads")) found = threads();
    else if (is("fork")) found = forked();
    else if (is("ask")) found = ask();
    else if (is("bf16")) found = bf16();
    else if (is("pieces")) found = pieces();
    else if (is("crash")) found = crash();
    else if (is("abort")) { plain(1 << 20, 12); abort(); }
    else if (is("wait")) found = wait_for_signal();
    else if (is("big")) found = big(count > 2 ? atof(arguments[2]) : 10);
    else return 2;
    printf("%s %llu\n", mode, found);
    return is("plain") ? 7 : 0;
}
