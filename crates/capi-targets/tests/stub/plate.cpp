// Runs the kernel of examples/cpp/plate.cu on the CPU, thread by thread.
#include <cassert>
#include <cstddef>
#include <cstdio>
#include <vector>

#define __global__
struct Index {
    size_t x, y;
};
static Index blockIdx, blockDim = {256, 1}, threadIdx;

#include "../../../../examples/cpp/plate_kernel.cuh"

int main() {
    const size_t n = 300, rows = 5, first = 1;
    std::vector<double> from((rows + 2) * n), to(rows * n + 1, -1), expected(rows * n);
    for (size_t i = 0; i < from.size(); i++) from[i] = double(i * i % 97);
    for (size_t row = 0; row < rows; row++) {
        for (size_t column = 0; column < n; column++) {
            const double *here = &from[(row + 1) * n + column];
            double sum = (first + row == 1 ? 1 : here[-(long)n]) + here[n];
            sum += column > 0 ? here[-1] : 0;
            sum += column < n - 1 ? here[1] : 0;
            expected[row * n + column] = 0.25 * sum;
        }
    }
    // Some threads are past the end of a row.
    for (blockIdx.y = 0; blockIdx.y < rows; blockIdx.y++) {
        for (blockIdx.x = 0; blockIdx.x < (n + 255) / 256; blockIdx.x++) {
            for (threadIdx.x = 0; threadIdx.x < 256; threadIdx.x++) sweep_rows(from.data(), to.data(), n, first);
        }
    }
    assert(to.back() == -1);
    for (size_t i = 0; i < expected.size(); i++) assert(to[i] == expected[i]);
    std::puts("every value is right");
    return 0;
}
