// Data-dependent accesses.

extern "C" __global__ void gather(const int *index, const float *from, float *to) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] = from[index[i]];
}

extern "C" __global__ void scatter(const int *index, const float *from, float *to) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    to[index[i]] = from[i];
}

/// CSR matrix times vector, one thread per row.
extern "C" __global__ void spmv_thread(const int *row, const int *column, const float *value, const float *x, float *y,
                                       int rows) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float sum = 0;
#pragma unroll 1
    for (int i = row[r]; i < row[r + 1]; i++) sum += value[i] * x[column[i]];
    y[r] = sum;
}

/// The same, one warp per row.
extern "C" __global__ void spmv_warp(const int *row, const int *column, const float *value, const float *x, float *y,
                                     int rows) {
    int r = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x & 31;
    if (r >= rows) return;
    float sum = 0;
#pragma unroll 1
    for (int i = row[r] + lane; i < row[r + 1]; i += 32) sum += value[i] * x[column[i]];
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) y[r] = sum;
}
