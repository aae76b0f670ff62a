// Atomics: one address, a few, many; in global and in shared memory.

extern "C" __global__ void atomic_same(unsigned *counter, int times) {
    for (int i = 0; i < times; i++) atomicAdd(counter, threadIdx.x + i);
}

/// Each warp has its own address, to which all of its lanes add.
extern "C" __global__ void atomic_warp(unsigned *counters) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(counters + i / 32 * 8, threadIdx.x);
}

/// Each thread has its own address, and uses the returned value.
extern "C" __global__ void atomic_own(unsigned *counters, unsigned *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = atomicAdd(counters + i, 1u);
}

extern "C" __global__ void histogram_global(const int *data, unsigned *bins, int mask) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int4 v = ((const int4 *)data)[i];
    atomicAdd(bins + (v.x & mask), 1u);
    atomicAdd(bins + (v.y & mask), 1u);
    atomicAdd(bins + (v.z & mask), 1u);
    atomicAdd(bins + (v.w & mask), 1u);
}

extern "C" __global__ void histogram_shared(const int *data, unsigned *bins, int mask, int n) {
    __shared__ unsigned own[1024];
#pragma unroll 1
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) own[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(own + (data[i] & mask), 1u);
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i <= mask; i += blockDim.x) atomicAdd(bins + i, own[i]);
}
