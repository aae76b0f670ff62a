#include "plate.h"
#include "plate_kernel.cuh"

#include <cstdio>
#include <cstdlib>
#include <vector>

static void check(cudaError_t error) {
    if (error != cudaSuccess) std::fprintf(stderr, "%s\n", cudaGetErrorString(error)), std::exit(1);
}

double *device(size_t values) {
    double *memory;
    check(cudaMalloc(&memory, values * sizeof(double)));
    check(cudaMemset(memory, 0, values * sizeof(double)));
    return memory;
}

void sweep(const double *from, double *to, size_t n, size_t first, size_t rows) {
    sweep_rows<<<dim3((unsigned)((n + 255) / 256), (unsigned)rows), 256>>>(from, to, n, first);
    check(cudaGetLastError());
}

void show(const double *row, size_t n) {
    std::vector<double> values(n);
    check(cudaMemcpy(values.data(), row, n * sizeof(double), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n; i += 512) std::printf("%.17g\n", values[i]);
}
