// Cooperation within a block: barriers, shuffles, shared memory and its banks.

extern "C" __global__ void barriers(int turns) {
    for (int i = 0; i < turns; i++) {
#pragma unroll
        for (int j = 0; j < 8; j++) __syncthreads();
    }
}

extern "C" __global__ void shuffles(int turns, int *out) {
    int a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3;
    for (int i = 0; i < turns; i++) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            a = __shfl_xor_sync(0xffffffffu, a, 1 + j);
            b = __shfl_xor_sync(0xffffffffu, b, 2 + j);
            c = __shfl_xor_sync(0xffffffffu, c, 3 + j);
            d = __shfl_xor_sync(0xffffffffu, d, 4 + j);
        }
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}

/// Loads with a stride of `stride` words between lanes.
extern "C" __global__ void shared_read(int stride, int turns, float *out) {
    __shared__ float words[2048];
#pragma unroll 1
    for (int i = threadIdx.x; i < 2048; i += blockDim.x) words[i] = i;
    __syncthreads();
    float sum = 0;
    int at = (threadIdx.x & 31) * stride;
    for (int i = 0; i < turns; i++) {
#pragma unroll
        for (int j = 0; j < 16; j++) sum += words[(at + j + i) & 2047];
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

/// Loads that stay in L1.
extern "C" __global__ void cached_read(const float *a, int turns, float *out) {
    float sum = 0;
    for (int i = 0; i < turns; i++) {
#pragma unroll
        for (int j = 0; j < 16; j++) sum += a[threadIdx.x + (j + i & 15) * 256];
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
