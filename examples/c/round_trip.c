/*
 * Keeps an array in compressed GPU memory and reads it back.
 *
 *     cc -std=c11 -Iinclude examples/c/round_trip.c -Ltarget/release -lbuddy -ldl -o round_trip
 *     LD_LIBRARY_PATH=target/release ./round_trip
 *
 * A program would include cuda.h, or call cudaMalloc. This one is built on machines without CUDA too, so it declares
 * the few functions of the driver that it needs and finds them when it runs.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buddy.h"

typedef struct CUctx_st *Context;

static int (*cu_init)(unsigned);
static int (*cu_context)(Context *, int);
static int (*cu_set_current)(Context);
static int (*cu_alloc)(buddyDevicePtr *, size_t);
static int (*cu_to_device)(buddyDevicePtr, const void *, size_t);
static int (*cu_to_host)(void *, buddyDevicePtr, size_t);
static int (*cu_clear)(buddyDevicePtr, unsigned char, size_t);

/* Ends the program if a call of the library failed, with what it says. */
static void buddy(buddyError error, const char *what)
{
    if (error == BUDDY_SUCCESS) return;
    fprintf(stderr, "%s: %s (%s)\n", what, buddyGetErrorString(error), buddyGetLastErrorMessage());
    exit(2);
}

static void cuda(int error, const char *what)
{
    if (error == 0) return;
    fprintf(stderr, "%s: CUDA error %d\n", what, error);
    exit(3);
}

static void find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "libcuda has no %s\n", name);
        exit(3);
    }
    memcpy(function, &found, sizeof found);
}

/* Makes the context of GPU 0 current on this thread. Without a driver nothing happens. */
static void start_cuda(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    Context context;
    if (!library) return;
    find(library, "cuInit", &cu_init);
    find(library, "cuDevicePrimaryCtxRetain", &cu_context);
    find(library, "cuCtxSetCurrent", &cu_set_current);
    find(library, "cuMemAlloc_v2", &cu_alloc);
    find(library, "cuMemcpyHtoD_v2", &cu_to_device);
    find(library, "cuMemcpyDtoH_v2", &cu_to_host);
    find(library, "cuMemsetD8_v2", &cu_clear);
    cuda(cu_init(0), "cuInit");
    cuda(cu_context(&context, 0), "cuDevicePrimaryCtxRetain");
    cuda(cu_set_current(context), "cuCtxSetCurrent");
}

/* Noise that no codec shrinks. */
static uint32_t noise(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* A ramp, with noise in one entry of 32 words in twenty. 24 bytes of the last entry are ours. */
static void fill(uint32_t *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        words[i] = i / 32 % 20 == 7 ? noise((uint32_t)i) : 1000000 + (uint32_t)i;
}

int main(void)
{
    const size_t count = ((size_t)1 << 22) + 6, bytes = 4 * count;
    uint32_t *words = malloc(bytes), *back = malloc(bytes);
    buddyHandle memory = 0;
    buddyDevicePtr plain = 0;
    buddySizes sizes;
    buddyStatistics stats;

    if (!words || !back) return 1;
    fill(words, count);
    start_cuda();

    buddy(buddyMalloc(&memory, bytes, BUDDY_TARGET_2X, "bpc"), "buddyMalloc");

    cuda(cu_alloc(&plain, bytes), "cuMemAlloc");
    cuda(cu_to_device(plain, words, bytes), "cuMemcpyHtoD");
    buddy(buddyHistogram(plain, bytes, "bpc", &sizes, NULL), "buddyHistogram");
    printf("of %zu bytes, %llu entries do not compress\n", bytes, (unsigned long long)sizes.classes[BUDDY_CLASS_RAW]);

    buddy(buddyWrite(memory, 0, plain, bytes, NULL), "buddyWrite");
    cuda(cu_clear(plain, 0xee, bytes), "cuMemsetD8");
    buddy(buddyRead(memory, 0, plain, bytes, NULL), "buddyRead");
    cuda(cu_to_host(back, plain, bytes), "cuMemcpyDtoH");
    buddy(buddyStats(memory, &stats, NULL), "buddyStats");
    printf("%llu bytes of device memory, %llu of %llu entries reach into host memory\n",
           (unsigned long long)stats.device_bytes, (unsigned long long)stats.overflowing,
           (unsigned long long)stats.entries);
    buddy(buddyFree(memory), "buddyFree");

    if (memcmp(words, back, bytes) != 0) {
        fprintf(stderr, "what was read is not what was written\n");
        return 1;
    }
    if (buddyFree(memory) != BUDDY_ERROR_INVALID_HANDLE || buddyRead(memory, 0, plain, 128, NULL) == BUDDY_SUCCESS) {
        fprintf(stderr, "a freed handle was taken for an allocation\n");
        return 1;
    }
    if (stats.overflowing != sizes.classes[BUDDY_CLASS_S3] + sizes.classes[BUDDY_CLASS_RAW]) {
        fprintf(stderr, "the histogram foretold another overflow\n");
        return 1;
    }
    printf("every byte came back\n");
    free(words);
    free(back);
    return 0;
}
