// Latencies: one thread follows pointers; each load depends on the preceding one.

/// Follows `steps` pointers from `start`; the last one is stored, so that the loads are not
/// removed.
extern "C" __global__ void chase(void **start, int steps, void **out) {
    void **at = start;
#pragma unroll 8
    for (int i = 0; i < steps; i++) at = (void **)*at;
    *out = at;
}

/// The same in shared memory, by index: a ring with steps of 33 words.
extern "C" __global__ void chase_shared(int steps, int *out) {
    __shared__ int next[1024];
#pragma unroll 1
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) next[i] = (i + 33) & 1023;
    __syncthreads();
    int at = threadIdx.x;
#pragma unroll 8
    for (int i = 0; i < steps; i++) at = next[at];
    out[threadIdx.x] = at;
}
