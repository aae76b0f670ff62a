// The kernel of plate.cu: one Jacobi sweep over rows of `n` values, a block to 256 values of a row.
#ifndef PLATE_KERNEL_CUH
#define PLATE_KERNEL_CUH

__global__ void sweep_rows(const double *from, double *to, size_t n, size_t first) {
    size_t column = blockIdx.x * (size_t)blockDim.x + threadIdx.x, row = blockIdx.y;
    if (column >= n) return;
    const double *here = from + (row + 1) * n + column;
    double north = first + row == 1 ? 1 : *(here - n), south = here[n];
    double west = column > 0 ? *(here - 1) : 0, east = column + 1 < n ? here[1] : 0;
    to[row * n + column] = 0.25 * (north + south + west + east);
}

#endif
