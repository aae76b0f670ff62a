// Declarations for both Jacobi examples: jacobi_plain.cpp, and jacobi.cpp with compressed fields.
#ifndef PLATE_H
#define PLATE_H

#include <cstddef>

// Returns device memory for `values` doubles, all zero.
double *device(std::size_t values);

// One Jacobi sweep over `rows` rows of `n` values, from row `first` of the plate. `from` begins one row
// above them and ends one row below; `to` begins at them. Row 0 of the plate lies above the first one and
// is hot, all other edges are cold.
void sweep(const double *from, double *to, std::size_t n, std::size_t first, std::size_t rows);

// Prints every 512th of `n` values in device memory, exactly.
void show(const double *row, std::size_t n);

#endif
