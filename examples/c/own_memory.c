/*
 * Compressed memory and a linear layer in the program's own memory: nothing waits until the end, and
 * the library allocates nothing.
 *
 *     cc -std=c11 -I include -I $CUDA/include examples/c/own_memory.c \
 *         -L target/release -lbuddy -L $CUDA/lib64 -lcudart -o own_memory
 */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buddy.h"

enum { ROWS = 1000, COLUMNS = 1024, TOKENS = 20, SECTORS = 4096, MADE = 200 };
#define MATRIX ((size_t)ROWS * COLUMNS * 2)

static void check(int failed, const char *what) {
    if (failed) {
        fprintf(stderr, "%s: %s\n", what, buddyGetLastErrorMessage());
        exit(1);
    }
}
#define CUDA(call) check((call) != cudaSuccess, #call)
#define BUDDY(call) check((call) != BUDDY_SUCCESS, #call)

static buddyDevicePtr take(size_t bytes) {
    void *memory;
    CUDA(cudaMalloc(&memory, bytes));
    return (buddyDevicePtr)(size_t)memory;
}
static void *pointer(buddyDevicePtr address) { return (void *)(size_t)address; }

/* Converts between bf16 and float. */
static unsigned short narrow(float value) {
    union { float value; unsigned bits; } both = {value};
    return (unsigned short)(both.bits >> 16);
}
static float wide(unsigned short bits) {
    union { unsigned bits; float value; } both = {(unsigned)bits << 16};
    return both.value;
}

static double now(void) {
    struct timespec time;
    timespec_get(&time, TIME_UTC);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(void) {
    static unsigned short weights[ROWS * COLUMNS], x[TOKENS * COLUMNS], back[ROWS * COLUMNS];
    static float y[TOKENS * ROWS], other[TOKENS * ROWS];
    unsigned random = 1;
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++) weights[i] = narrow(0.02f * ((float)((random = random * 1664525u + 1013904223u) >> 8) / 8388608.0f - 1));
    for (size_t i = 0; i < TOKENS * COLUMNS; i++) x[i] = narrow((float)((random = random * 1664525u + 1013904223u) >> 8) / 8388608.0f - 1);

    cudaStream_t stream;
    CUDA(cudaStreamCreate(&stream));
    buddyDevicePtr plain = take(MATRIX), device_x = take(sizeof x), device_y = take(sizeof y);
    CUDA(cudaMemcpy(pointer(plain), weights, MATRIX, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(pointer(device_x), x, sizeof x, cudaMemcpyHostToDevice));

    /* A writable buffer with overflow in pinned memory. */
    buddyRoom room;
    BUDDY(buddyBufferRoom(MATRIX, BUDDY_TARGET_4_3X, &room));
    void *pinned, *pinned_device;
    CUDA(cudaHostAlloc(&pinned, room.overflow, cudaHostAllocMapped));
    CUDA(cudaHostGetDevicePointer(&pinned_device, pinned, 0));
    buddyBuffer buffer = {take(room.device), take(room.metadata), (buddyDevicePtr)(size_t)pinned_device, MATRIX, "bf16", BUDDY_TARGET_4_3X, take(4)};
    /* The window is trained on the device and stays there, without a wait. */
    BUDDY(buddyTrainWindow(plain, MATRIX, buffer.window, (buddyStream)stream));
    /* Clearing a buffer creates it. The first call also compiles or loads the kernels. */
    BUDDY(buddyBufferClear(&buffer, (buddyStream)stream));
    double before = now();
    for (int i = 0; i < MADE; i++) BUDDY(buddyBufferClear(&buffer, (buddyStream)stream));
    double made = (now() - before) / MADE;
    BUDDY(buddyBufferWrite(&buffer, 0, plain, MATRIX, (buddyStream)stream));
    CUDA(cudaMemsetAsync(pointer(plain), 0, MATRIX, stream));
    BUDDY(buddyBufferRead(&buffer, 0, plain, MATRIX, (buddyStream)stream));

    /* The same data as a frozen buffer. */
    buddyFrozen frozen = {0, 0, MATRIX, COLUMNS * 2, "bf16:108", BUDDY_TARGET_4_3X};
    BUDDY(buddyFrozenRoom(MATRIX, COLUMNS * 2, BUDDY_TARGET_4_3X, "bf16:108", SECTORS, &frozen.memory_bytes));
    frozen.memory = take(frozen.memory_bytes);
    BUDDY(buddyFreeze(&frozen, plain, (buddyStream)stream));
    CUDA(cudaMemsetAsync(pointer(plain), 0, MATRIX, stream));
    BUDDY(buddyFrozenRead(&frozen, 0, plain, MATRIX, (buddyStream)stream));

    /* A linear layer. */
    buddyLayer layer = {device_x, 0, device_y, 0, 0, TOKENS, 1, 1};
    BUDDY(buddyLinearRoom(&frozen, TOKENS, &layer.scratch_bytes));
    layer.scratch = take(layer.scratch_bytes);
    BUDDY(buddyLinearPrepare(layer.scratch, layer.scratch_bytes, (buddyStream)stream));
    BUDDY(buddyLinear(&frozen, &layer, (buddyStream)stream));

    /* The same layer with a writable matrix, whose halves are written separately. */
    buddyMatrix matrix = {0, 0, 0, ROWS, COLUMNS * 2, "bf16:108"};
    BUDDY(buddyMatrixRoom(ROWS, COLUMNS * 2, &room));
    matrix.device = take(room.device), matrix.metadata = take(room.metadata), matrix.overflow = take(room.overflow);
    BUDDY(buddyMatrixClear(&matrix, (buddyStream)stream));
    BUDDY(buddyMatrixWrite(&matrix, ROWS / 2, plain + MATRIX / 2, ROWS / 2, (buddyStream)stream));
    BUDDY(buddyMatrixWrite(&matrix, 0, plain, ROWS / 2, (buddyStream)stream));
    BUDDY(buddyMatrixRead(&matrix, 0, plain, ROWS, (buddyStream)stream));
    buddyLayer written = layer;
    written.y = take(sizeof y), written.overlaps = 0;
    BUDDY(buddyMatrixLinear(&matrix, &written, (buddyStream)stream));
    CUDA(cudaStreamSynchronize(stream));

    CUDA(cudaMemcpy(back, pointer(plain), MATRIX, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(y, pointer(device_y), sizeof y, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(other, pointer(written.y), sizeof other, cudaMemcpyDeviceToHost));
    if (memcmp(y, other, sizeof y) != 0) return fprintf(stderr, "weights that were written give other sums\n"), 1;
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++) {
        if (back[i] != weights[i]) return fprintf(stderr, "weight %zu differs\n", i), 1;
    }
    for (size_t token = 0; token < TOKENS; token++) {
        for (size_t row = 0; row < ROWS; row++) {
            double sum = 0, size = 0;
            for (size_t i = 0; i < COLUMNS; i++) {
                double product = (double)wide(weights[row * COLUMNS + i]) * wide(x[token * COLUMNS + i]);
                sum += product, size += fabs(product);
            }
            if (!(fabs(y[token * ROWS + row] - sum) <= 1e-5 * size)) return fprintf(stderr, "result %zu of token %zu differs\n", row, token), 1;
        }
    }
    printf("%d x %d weights in %zu of %zu bytes, read back and multiplied by %d tokens\n", ROWS, COLUMNS, frozen.memory_bytes, MATRIX, TOKENS);
    printf("a buffer over given memory is made in %.1f us of the host's time\n", 1e6 * made);
    return 0;
}
