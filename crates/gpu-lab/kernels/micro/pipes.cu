// Execution pipes: instructions of one kind, in a number of independent chains.

/// The hardware instruction, without the branch for small numbers.
__device__ float exponential(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#define CHAINS(NAME, TYPE, N, STEP)                                                     \
    extern "C" __global__ void NAME##_##N(TYPE a, TYPE b, int turns, TYPE *out) {       \
        TYPE x[N];                                                                      \
        for (int k = 0; k < N; k++) x[k] = (TYPE)(threadIdx.x + k);                     \
        for (int i = 0; i < turns; i++) {                                               \
            _Pragma("unroll") for (int j = 0; j < 16; j++)                              \
                _Pragma("unroll") for (int k = 0; k < N; k++) x[k] = STEP;              \
        }                                                                               \
        TYPE sum = 0;                                                                   \
        for (int k = 0; k < N; k++) sum += x[k];                                        \
        out[blockIdx.x * blockDim.x + threadIdx.x] = sum;                               \
    }

CHAINS(fma32, float, 1, x[k] * a + b)
CHAINS(fma32, float, 4, x[k] * a + b)
CHAINS(fma64, double, 1, x[k] * a + b)
CHAINS(fma64, double, 4, x[k] * a + b)
CHAINS(imad, int, 1, x[k] * a + b)
CHAINS(imad, int, 4, x[k] * a + b)
CHAINS(logic, int, 4, (x[k] ^ a) & b)
CHAINS(exponential, float, 1, exponential(x[k]))
CHAINS(exponential, float, 4, exponential(x[k]))
CHAINS(mixed, float, 4, (k & 1) ? x[k] * a + b : __int_as_float(__float_as_int(x[k]) * 3 + 1))

/// Products of 16 by 8 by 16 half-precision numbers, four chains.
extern "C" __global__ void tensor_4(int turns, float *out) {
#if __CUDA_ARCH__ >= 800
    unsigned a[4], b[2];
    float c[4][4];
    for (int i = 0; i < 4; i++) a[i] = threadIdx.x + i;
    for (int i = 0; i < 2; i++) b[i] = threadIdx.x * 3 + i;
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 4; i++) c[k][i] = 0;
    for (int t = 0; t < turns; t++)
        for (int k = 0; k < 4; k++)
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                         : "+f"(c[k][0]), "+f"(c[k][1]), "+f"(c[k][2]), "+f"(c[k][3])
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    out[blockIdx.x * blockDim.x + threadIdx.x] = c[0][0] + c[1][1] + c[2][2] + c[3][3];
#endif
}
