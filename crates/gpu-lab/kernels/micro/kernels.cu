// Small kernels like those of programs.

/// The sum of an array: each block reduces its part in shared memory.
extern "C" __global__ void reduce(const float *a, float *out, int n) {
    __shared__ float part[256];
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += a[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int step = blockDim.x / 2; step; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

extern "C" __global__ void transpose(const float *a, float *b, int n) {
    int x = blockIdx.x * 32 + threadIdx.x % 32, y = blockIdx.y * 32 + threadIdx.x / 32;
    for (int j = 0; j < 32; j += 8) b[x * n + y + j] = a[(y + j) * n + x];
}

/// The same through shared memory.
extern "C" __global__ void transpose_tile(const float *a, float *b, int n) {
    __shared__ float tile[32][33];
    int column = threadIdx.x % 32, row = threadIdx.x / 32;
    int x = blockIdx.x * 32 + column, y = blockIdx.y * 32 + row;
    for (int j = 0; j < 32; j += 8) tile[row + j][column] = a[(y + j) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + column, y = blockIdx.x * 32 + row;
    for (int j = 0; j < 32; j += 8) b[(y + j) * n + x] = tile[column][row + j];
}

/// Five points of a plane, blocks of 64 by 4.
extern "C" __global__ void stencil2d(const float *a, float *b, int n) {
    int x = blockIdx.x * 64 + threadIdx.x % 64, y = blockIdx.y * 4 + threadIdx.x / 64;
    if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
    int i = y * n + x;
    b[i] = 0.2f * (a[i] + a[i - 1] + a[i + 1] + a[i - n] + a[i + n]);
}

/// Seven points of a cube whose sides are a power of two of lines, blocks of one line each.
extern "C" __global__ void stencil3d(const float *a, float *b, int n) {
    int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
    if (x < 1 || y < 1 || z < 1 || x >= n - 1 || y >= n - 1 || z >= n - 1) return;
    int i = (z * n + y) * n + x;
    b[i] = 0.1f * (a[i] + a[i - 1] + a[i + 1] + a[i - n] + a[i + n] + a[i - n * n] + a[i + n * n]);
}

/// A matrix product, tiles of 32 by 32 in shared memory, four results per thread.
extern "C" __global__ void gemm(const float *a, const float *b, float *c, int n) {
    __shared__ float left[32][32], right[32][32];
    int x = threadIdx.x % 32, y = threadIdx.x / 32, column = blockIdx.x * 32 + x, row = blockIdx.y * 32 + y;
    float sum[4] = {0, 0, 0, 0};
    for (int k = 0; k < n; k += 32) {
        for (int j = 0; j < 4; j++) {
            left[y + 8 * j][x] = a[(row + 8 * j) * n + k + x];
            right[y + 8 * j][x] = b[(k + y + 8 * j) * n + column];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 32; i++)
            for (int j = 0; j < 4; j++) sum[j] += left[y + 8 * j][i] * right[i][x];
        __syncthreads();
    }
    for (int j = 0; j < 4; j++) c[(row + 8 * j) * n + column] = sum[j];
}

__device__ float exponential(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/// One row per block: maximum, sum of exponentials, quotients.
extern "C" __global__ void softmax(const float *a, float *b, int n) {
    __shared__ float part[8];
    const float *from = a + blockIdx.x * n;
    float most = -3e38f, sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) most = fmaxf(most, from[i]);
    for (int step = 16; step; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = most;
    __syncthreads();
    for (int i = 0; i < 8; i++) most = fmaxf(most, part[i]);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += exponential(from[i] - most);
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < 8; i++) sum += part[i];
    float share;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(share) : "f"(sum));
    for (int i = threadIdx.x; i < n; i += blockDim.x) b[blockIdx.x * n + i] = exponential(from[i] - most) * share;
}
