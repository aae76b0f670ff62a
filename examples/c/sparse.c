/*
 * Solves Poisson's equation with a packed sparse matrix and conjugate gradients, on the CPU.
 *
 *     cc -std=c11 -Iinclude examples/c/sparse.c -Ltarget/release -lbuddy -lm -o sparse
 *     LD_LIBRARY_PATH=target/release ./sparse
 *
 * On a GPU buddyCsrMultiply takes device pointers and a stream; the rest of a solver stays as it is.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "buddy.h"

enum { N = 24, ROWS = N * N * N, MOST_STEPS = 500 };

static uint64_t starts[ROWS + 1];
static uint32_t indices[7 * ROWS];
static double values[7 * ROWS];
static double x[ROWS], r[ROWS], p[ROWS], q[ROWS], check[ROWS];

/* Ends the program if a call of the library failed, with what it says. */
static void buddy(buddyError error, const char *what)
{
    if (error == BUDDY_SUCCESS) return;
    fprintf(stderr, "%s: %s (%s)\n", what, buddyGetErrorString(error), buddyGetLastErrorMessage());
    exit(2);
}

/* The seven points of a grid of N x N x N cells: columns ascend in each row. */
static void make_matrix(void)
{
    uint64_t count = 0;
    for (int row = 0; row < ROWS; row++) {
        const int at[3] = {row % N, row / N % N, row / (N * N)}, step[3] = {1, N, N * N};
        for (int axis = 2; axis >= 0; axis--) {
            if (at[axis] > 0) indices[count] = (uint32_t)(row - step[axis]), values[count++] = -1.0;
        }
        indices[count] = (uint32_t)row, values[count++] = 6.0;
        for (int axis = 0; axis < 3; axis++) {
            if (at[axis] < N - 1) indices[count] = (uint32_t)(row + step[axis]), values[count++] = -1.0;
        }
        starts[row + 1] = count;
    }
}

/* The product with the plain matrix, an addition after the other. */
static void multiply_plain(const double *from, double *to)
{
    for (int row = 0; row < ROWS; row++) {
        to[row] = 0;
        for (uint64_t i = starts[row]; i < starts[row + 1]; i++) to[row] += values[i] * from[indices[i]];
    }
}

static double dot(const double *a, const double *b)
{
    double sum = 0;
    for (int i = 0; i < ROWS; i++) sum += a[i] * b[i];
    return sum;
}

int main(void)
{
    make_matrix();
    const buddyCsrArrays arrays = {ROWS, ROWS, starts, indices, values, sizeof(double), 0};
    buddyHandle matrix;
    uint64_t packed, plain;
    buddy(buddyCsrCreate(&matrix, &arrays), "buddyCsrCreate");
    buddy(buddyCsrBytes(matrix, &packed, &plain), "buddyCsrBytes");

    /* The right-hand side is 1 everywhere, the first guess 0. */
    for (int i = 0; i < ROWS; i++) x[i] = 0, r[i] = p[i] = 1;
    double rr = dot(r, r);
    const double enough = 1e-20 * rr;
    int steps = 0;
    while (rr > enough && steps < MOST_STEPS) {
        buddy(buddyCsrMultiplyHost(matrix, p, q, 1), "buddyCsrMultiplyHost");
        const double alpha = rr / dot(p, q), before = rr;
        for (int i = 0; i < ROWS; i++) x[i] += alpha * p[i], r[i] -= alpha * q[i];
        rr = dot(r, r);
        for (int i = 0; i < ROWS; i++) p[i] = r[i] + rr / before * p[i];
        steps++;
    }

    /* The packed product has the bits of the plain one, and x solves the plain system. */
    multiply_plain(x, check);
    buddy(buddyCsrMultiplyHost(matrix, x, q, 1), "buddyCsrMultiplyHost");
    double residual = 0;
    for (int i = 0; i < ROWS; i++) {
        if (q[i] != check[i]) return fprintf(stderr, "row %d differs: %a and %a\n", i, q[i], check[i]), 1;
        residual += (1 - check[i]) * (1 - check[i]);
    }
    residual = sqrt(residual / ROWS);
    buddy(buddyCsrDestroy(matrix), "buddyCsrDestroy");
    printf("%llu bytes instead of %llu; residual below 1e-9 after %d steps: %s\n", (unsigned long long)packed,
           (unsigned long long)plain, steps, residual < 1e-9 ? "yes" : "no");
    return residual < 1e-9 ? 0 : 1;
}
