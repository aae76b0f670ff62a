// The temperature of a plate with one hot edge, by Jacobi's method. jacobi.cpp is this program with
// compressed fields.
//
//     nvcc -g -std=c++17 examples/cpp/jacobi_plain.cpp examples/cpp/plate.cu -o jacobi_plain
//     buddy profile --targets targets.toml -- ./jacobi_plain
#include <utility>

#include "plate.h"

int main() {
    const std::size_t n = 4096, sweeps = 2000;
    double *from = device((n + 2) * n), *to = device((n + 2) * n); // a row of edge above and below
    for (std::size_t i = 0; i < sweeps; i++) {
        sweep(from, to + n, n, 1, n);
        std::swap(from, to);
    }
    show(from + n / 16 * n, n);
}
