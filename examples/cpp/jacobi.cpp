// The temperature of a plate with one hot edge, by Jacobi's method, with compressed fields. The targets
// are those that `buddy profile` chose for jacobi_plain.cpp; ten lines differ from it.
//
//     nvcc -std=c++17 -Iinclude examples/cpp/jacobi.cpp examples/cpp/plate.cu -lbuddy_targets -o jacobi
//     ./jacobi
#include <buddy.hpp>
#include <utility>

#include "plate.h"

int main() {
    const std::size_t n = 4096, sweeps = 2000;
    const std::size_t slab = 512; // rows that are plain at a time
    double *in = device((slab + 2) * n), *out = device(slab * n); // first: the library takes the current context
    buddy::Targets targets("targets.toml");
    buddy::vector<double> from(targets.allocate(targets[0].name)), to(targets.allocate(targets[1].name));
    for (std::size_t i = 0; i < sweeps; i++) {
        for (std::size_t first = 1; first <= n; first += slab) {
            sweep(from.read((first - 1) * n, in, (slab + 2) * n), out, n, first, slab);
            to.write(first * n, out, slab * n);
        }
        std::swap(from, to);
    }
    show(from.read(n / 16 * n, in, n), n);
}
