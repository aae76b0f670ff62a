// The cost of launching blocks.

extern "C" __global__ void empty() {}

/// One store per block.
extern "C" __global__ void small_blocks(int *out) {
    if (threadIdx.x == 0) out[blockIdx.x] = 1;
}
