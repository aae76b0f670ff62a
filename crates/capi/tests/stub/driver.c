/*
 * A CUDA driver and compiler without a GPU, which refuses one call: the n-th of those that may fail. It keeps memory on the
 * host and runs no kernel; it counts what was taken and not given back. One library under both names, libcuda and libnvrtc.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int Result;
typedef unsigned long long Pointer;
enum { REFUSED = 999, NO_MEMORY = 2, INVALID = 1, LIVES = 4096 };

static long calls, fail_at, modules, programs;
static const char *refused_name = "";
static struct { Pointer start; size_t bytes; int host; } lives[LIVES];
static __thread void *current;
static int alive = 1, context;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What a test asks and sets. */
void stubFailAt(long call) { calls = 0; fail_at = call; refused_name = ""; }
long stubCalls(void) { return calls; }
const char *stubRefused(void) { return refused_name; }
long stubModules(void) { return modules; }
long stubPrograms(void) { return programs; }
void stubCurrent(int on) { current = on ? &context : NULL; }
void stubDestroyContext(void) { alive = 0; current = NULL; }
long stubLive(void) {
    long count = 0;
    for (int i = 0; i < LIVES; i++) count += lives[i].start != 0;
    return count;
}

static int refuses(const char *name) {
    if (__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) != fail_at) return 0;
    refused_name = name;
    return 1;
}
#define MAY_FAIL(code) do { if (refuses(__func__)) return code; } while (0)

static Result take_locked(Pointer *to, size_t bytes, int host) {
    for (int i = 0; i < LIVES; i++) {
        if (lives[i].start) continue;
        void *memory = NULL;
        if (posix_memalign(&memory, 512, bytes ? bytes : 1)) return NO_MEMORY;
        lives[i].start = (Pointer)(uintptr_t)memory;
        lives[i].bytes = bytes;
        lives[i].host = host;
        *to = lives[i].start;
        return 0;
    }
    return NO_MEMORY;
}

static Result give_locked(Pointer start) {
    for (int i = 0; i < LIVES; i++) {
        if (lives[i].start != start) continue;
        free((void *)(uintptr_t)start);
        lives[i].start = 0;
        return 0;
    }
    return INVALID;
}

static Result take(Pointer *to, size_t bytes, int host) {
    pthread_mutex_lock(&lock);
    Result result = take_locked(to, bytes, host);
    pthread_mutex_unlock(&lock);
    return result;
}

static Result give(Pointer start) {
    pthread_mutex_lock(&lock);
    Result result = give_locked(start);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Contexts and devices. */
Result cuInit(unsigned flags) { (void)flags; MAY_FAIL(REFUSED); return 0; }
Result cuDriverGetVersion(int *version) { MAY_FAIL(REFUSED); *version = 13000; return 0; }
Result cuDeviceGetCount(int *count) { MAY_FAIL(REFUSED); *count = 1; return 0; }
Result cuDeviceGet(int *device, int ordinal) { MAY_FAIL(REFUSED); *device = ordinal; return 0; }
Result cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    MAY_FAIL(REFUSED);
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 4 : 1;
    return 0;
}
/* Reads a variable of the thread: a driver that was started never refuses it. */
Result cuCtxGetCurrent(void **to) { *to = current; return 0; }
Result cuCtxSetCurrent(void *context) {
    if (context && !alive) return 709; /* the context is destroyed */
    current = context;
    return 0;
}
Result cuCtxGetId(void *context, unsigned long long *id) {
    if (!alive || !context) return 709;
    MAY_FAIL(REFUSED);
    *id = 7;
    return 0;
}
Result cuCtxDestroy_v2(void *which) { (void)which; alive = 0; return 0; }
Result cuCtxGetDevice(int *device) { MAY_FAIL(REFUSED); *device = 0; return 0; }
Result cuCtxSynchronize(void) { MAY_FAIL(REFUSED); return alive ? 0 : 709; }
Result cuMemGetInfo_v2(size_t *free_bytes, size_t *total) { MAY_FAIL(REFUSED); *free_bytes = *total = 1 << 30; return 0; }
Result cuGetErrorString(Result error, const char **text) { (void)error; *text = "refused"; return 0; }
Result cuGetErrorName(Result error, const char **text) { (void)error; *text = "REFUSED"; return 0; }

/* Memory. What gives it back is never refused: nobody could do anything about it. */
Result cuMemAlloc_v2(Pointer *to, size_t bytes) { MAY_FAIL(NO_MEMORY); return take(to, bytes, 0); }
Result cuMemFree_v2(Pointer start) { return give(start); }
Result cuMemHostAlloc(void **to, size_t bytes, unsigned flags) {
    Pointer start = 0;
    (void)flags;
    MAY_FAIL(NO_MEMORY);
    Result result = take(&start, bytes, 1);
    *to = (void *)(uintptr_t)start;
    return result;
}
Result cuMemFreeHost(void *start) { return give((Pointer)(uintptr_t)start); }
Result cuMemHostGetDevicePointer_v2(Pointer *to, void *host, unsigned flags) {
    (void)flags;
    MAY_FAIL(REFUSED);
    *to = (Pointer)(uintptr_t)host;
    return 0;
}
static Result attribute_of(void *to, int attribute, Pointer at);
Result cuPointerGetAttribute(void *to, int attribute, Pointer at) {
    MAY_FAIL(REFUSED);
    pthread_mutex_lock(&lock);
    Result result = attribute_of(to, attribute, at);
    pthread_mutex_unlock(&lock);
    return result;
}
static Result attribute_of(void *to, int attribute, Pointer at) {
    for (int i = 0; i < LIVES; i++) {
        if (!lives[i].start || at < lives[i].start || at >= lives[i].start + lives[i].bytes) continue;
        if (attribute == 2) *(unsigned *)to = lives[i].host ? 1 : 2;
        else if (attribute == 11) *(Pointer *)to = lives[i].start;
        else if (attribute == 12) *(size_t *)to = lives[i].bytes;
        else return INVALID;
        return 0;
    }
    return INVALID;
}
Result cuMemRetainAllocationHandle(unsigned long long *handle, void *at) { (void)handle; (void)at; return INVALID; }
Result cuMemRelease(unsigned long long handle) { (void)handle; return 0; }
Result cuMemsetD8_v2(Pointer to, unsigned char value, size_t bytes) {
    MAY_FAIL(REFUSED);
    memset((void *)(uintptr_t)to, value, bytes);
    return 0;
}
Result cuMemsetD8Async(Pointer to, unsigned char value, size_t bytes, void *stream) {
    (void)stream;
    MAY_FAIL(REFUSED);
    memset((void *)(uintptr_t)to, value, bytes);
    return 0;
}
static Result copy(Pointer to, Pointer from, size_t bytes) {
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return 0;
}
Result cuMemcpyHtoD_v2(Pointer to, const void *from, size_t bytes) {
    MAY_FAIL(REFUSED);
    return copy(to, (Pointer)(uintptr_t)from, bytes);
}
Result cuMemcpyDtoH_v2(void *to, Pointer from, size_t bytes) {
    MAY_FAIL(REFUSED);
    return copy((Pointer)(uintptr_t)to, from, bytes);
}
Result cuMemcpyHtoDAsync_v2(Pointer to, const void *from, size_t bytes, void *stream) {
    (void)stream;
    MAY_FAIL(REFUSED);
    return copy(to, (Pointer)(uintptr_t)from, bytes);
}
Result cuMemcpyDtoHAsync_v2(void *to, Pointer from, size_t bytes, void *stream) {
    (void)stream;
    MAY_FAIL(REFUSED);
    return copy((Pointer)(uintptr_t)to, from, bytes);
}
Result cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, void *stream) {
    (void)stream;
    MAY_FAIL(REFUSED);
    return copy(to, from, bytes);
}

/* Streams, kernels and modules. */
Result cuStreamSynchronize(void *stream) { (void)stream; MAY_FAIL(REFUSED); return 0; }
Result cuModuleLoadData(void **module, const void *image) {
    (void)image;
    MAY_FAIL(REFUSED);
    __atomic_add_fetch(&modules, 1, __ATOMIC_RELAXED);
    *module = &modules;
    return 0;
}
Result cuModuleUnload(void *module) { (void)module; __atomic_sub_fetch(&modules, 1, __ATOMIC_RELAXED); return 0; }
Result cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)module;
    MAY_FAIL(REFUSED);
    *function = (void *)name;
    return 0;
}
Result cuFuncSetAttribute(void *function, int attribute, int value) {
    (void)function, (void)attribute, (void)value;
    MAY_FAIL(REFUSED);
    return 0;
}
Result cuLaunchKernelEx(const void *config, void *function, void **arguments, void **extra) {
    (void)config, (void)function, (void)arguments, (void)extra;
    MAY_FAIL(REFUSED);
    return 0;
}
Result cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, void *stream, void **arguments, void **extra) {
    (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz;
    (void)shared, (void)stream, (void)arguments, (void)extra;
    MAY_FAIL(REFUSED);
    return 0;
}

/* The compiler: its machine code is one word. */
Result nvrtcCreateProgram(void **program, const char *text, const char *name, int headers, const char **texts, const char **names) {
    (void)text, (void)name, (void)headers, (void)texts, (void)names;
    MAY_FAIL(1);
    __atomic_add_fetch(&programs, 1, __ATOMIC_RELAXED);
    *program = &programs;
    return 0;
}
Result nvrtcCompileProgram(void *program, int count, const char **options) {
    (void)program, (void)count, (void)options;
    MAY_FAIL(6);
    return 0;
}
Result nvrtcDestroyProgram(void **program) { __atomic_sub_fetch(&programs, 1, __ATOMIC_RELAXED); *program = NULL; return 0; }
Result nvrtcGetCUBINSize(void *program, size_t *size) { (void)program; MAY_FAIL(1); *size = 4; return 0; }
Result nvrtcGetCUBIN(void *program, char *code) { (void)program; MAY_FAIL(1); memcpy(code, "code", 4); return 0; }
Result nvrtcGetProgramLogSize(void *program, size_t *size) { (void)program; *size = 4; return 0; }
Result nvrtcGetProgramLog(void *program, char *log) { (void)program; memcpy(log, "log", 4); return 0; }
const char *nvrtcGetErrorString(Result error) { (void)error; return "refused"; }
