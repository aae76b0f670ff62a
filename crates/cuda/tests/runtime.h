// The calls of the CUDA runtime that buddy_stencil.cuh and its examples make, on host memory, for programs
// that run kernels by emu.h. Fresh memory has a pattern, so that a read of what was not written shows.
#pragma once
#include <cstdlib>
#include <cstring>

struct alignas(16) ulonglong2 { unsigned long long x, y; };
inline unsigned __float_as_uint(float value) {
    unsigned bits;
    return memcpy(&bits, &value, 4), bits;
}
inline float __uint_as_float(unsigned bits) {
    float value;
    return memcpy(&value, &bits, 4), value;
}

typedef int cudaError_t;
typedef void* cudaStream_t;
enum { cudaSuccess, cudaErrorMemoryAllocation };
enum { cudaHostAllocPortable, cudaHostAllocMapped };
enum { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum { cudaFuncAttributeMaxDynamicSharedMemorySize, cudaFuncAttributePreferredSharedMemoryCarveout };

inline cudaError_t cudaMalloc(void** at, size_t bytes) {
    *at = aligned_alloc(1024, (bytes + 1023) / 1024 * 1024);
    return *at ? (memset(*at, 0xee, bytes), cudaSuccess) : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaHostAlloc(void** at, size_t bytes, unsigned) { return cudaMalloc(at, bytes); }
inline cudaError_t cudaFree(void* at) { return free(at), cudaSuccess; }
inline cudaError_t cudaFreeHost(void* at) { return free(at), cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* at, int byte, size_t bytes, cudaStream_t) { return memset(at, byte, bytes), cudaSuccess; }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, cudaStream_t) { return memcpy(to, from, bytes), cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaMemGetInfo(size_t* left, size_t* all) { return *left = *all = (size_t)3 << 29, cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
// Events, all a millisecond apart.
typedef int cudaEvent_t;
inline cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = 0, cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { return *ms = 1.0f, cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t) { return "no memory"; }
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, int, int) { return cudaSuccess; }
