// Streams: each thread traverses its arrays with the grid's width as stride.

/// Reads; stores only on a condition that never holds.
extern "C" __global__ void read4(const float4 *a, int n, float *out) {
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float4 v = a[i];
        sum += v.x + v.y + v.z + v.w;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" __global__ void write4(float4 *a, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        a[i] = make_float4(1, 2, 3, 4);
}

extern "C" __global__ void copy4(const float4 *a, float4 *b, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) b[i] = a[i];
}

extern "C" __global__ void triad4(const float4 *a, const float4 *b, float4 *c, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float4 x = a[i], y = b[i];
        c[i] = make_float4(x.x + 3 * y.x, x.y + 3 * y.y, x.z + 3 * y.z, x.w + 3 * y.w);
    }
}

/// One element per thread, four bytes wide.
extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

/// Every `stride`-th element.
extern "C" __global__ void strided_read(const float *a, int stride, float *out) {
    long long i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = a[i * stride];
}

extern "C" __global__ void strided_write(float *a, int stride) {
    long long i = blockIdx.x * blockDim.x + threadIdx.x;
    a[i * stride] = 1;
}
