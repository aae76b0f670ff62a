// A driver, a CUPTI and a program without a GPU, in one library: device memory is the host's, and the size kernel tells zeros
// from the rest. tests/fake.rs has the program watched and knows what must be found.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;
typedef uint32_t u32;
typedef struct { int site; const char* function; const void* parameters; const int* result; const char* symbol; void* context; } Data;
typedef void (*Callback)(void*, u32, u32, const void*);

enum { ALLOCATE, FREE, LAUNCH, CALLS };
static const char* NAMES[CALLS] = {"cuMemAlloc_v2", "cuMemFree_v2", "cuLaunchKernel"};
static Callback callback;

// CUPTI.
int cuptiSubscribe(void** subscriber, Callback f, void* data) { return *subscriber = data, callback = f, 0; }
int cuptiEnableCallback(u32 on, void* subscriber, u32 domain, u32 call) { return 0; }
int cuptiGetResultString(int result, const char** text) { return *text = "fake", 0; }
int cuptiGetCallbackName(u32 domain, u32 call, const char** name) {
    if (call >= CALLS) return 1;
    return *name = NAMES[call], 0;
}

// The driver, as the library calls it.
int cuCtxSynchronize(void) { return 0; }
int cuCtxPushCurrent_v2(void* context) { return 0; }
int cuCtxPopCurrent_v2(void** context) { return 0; }
int cuCtxGetDevice(int* device) { return *device = 0, 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) { return *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 2, 0; }
int cuDeviceGetName(char* name, int bytes, int device) { return snprintf(name, bytes, "Fake GPU"), 0; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuModuleLoadData(void** module, const void* code) { return *module = strdup(code), 0; }
int cuModuleGetFunction(void** function, void* module, const char* name) { return *function = module, 0; }
int cuMemAlloc_v2(u64* at, size_t bytes) { return *at = (u64)aligned_alloc(4096, (bytes + 4095) / 4096 * 4096), 0; }
int cuMemFree_v2(u64 at) { return free((void*)at), 0; }
int cuMemAllocHost_v2(void** at, size_t bytes) { return cuMemAlloc_v2((u64*)at, bytes); }
int cuMemFreeHost(void* at) { return free(at), 0; }
int cuMemcpyHtoDAsync_v2(u64 to, const void* from, size_t bytes, void* stream) { return memcpy((void*)to, from, bytes), 0; }
int cuMemcpyDtoHAsync_v2(void* to, u64 from, size_t bytes, void* stream) { return memcpy(to, (void*)from, bytes), 0; }
int cuMemsetD8Async(u64 at, unsigned char byte, size_t bytes, void* stream) { return memset((void*)at, byte, bytes), 0; }
int cuStreamCreate(void** stream, u32 flags) { return *stream = (void*)1, 0; }
int cuStreamSynchronize(void* stream) { return 0; }
int cuStreamIsCapturing(void* stream, int* status) { return *status = 0, 0; }

// The size kernel, whose code is the names of its codecs: an entry is zero or raw, with "bf16" 96 bytes if it was given the right window,
// with "table64" 64 if the block says that its codec learned of as many entries as the sample of 20000 bytes has.
int cuLaunchKernel(void* code, u32 x, u32 y, u32 z, u32 a, u32 b, u32 c, u32 shared, void* stream, void** arguments, void** extra) {
    u64 *table = *(u64**)arguments[0], *asked = *(u64**)arguments[3], *sums = *(u64**)arguments[4];
    u32 spans = *(u32*)arguments[1], codecs = 1, codec = 0;
    for (const char* c = code; *c; c++) codecs += *c == '+';
    char names[64];
    for (char* name = strtok(strcpy(names, code), "+"); name; name = strtok(NULL, "+"), codec++) {
        for (u32 span = 0; span < spans; span++) {
            u64 *row = table + 4 * span, *wanted = asked + 3 * (row[3] * codecs + codec), *to = sums + 7 * (codec * spans + span);
            const char* bytes = (const char*)row[0];
            for (u64 at = 0; at < row[1]; at += 128) {
                u64 length = row[1] - at < 128 ? row[1] - at : 128;
                int zero = 1;
                for (u64 i = 0; i < length; i++) zero &= bytes[at + i] == 0;
                int class = zero ? 0 : strcmp(name, "bf16") == 0 && wanted[1] == 114 ? 4
                    : strcmp(name, "table64") == 0 && ((u32*)wanted[2])[0] == 152 && ((u32*)wanted[2])[2] == 7 ? 3 : 5;
                to[class]++;
                to[6] += class == 0 ? 0 : class == 3 ? 64 : class == 4 ? 96 : 128;
                if (wanted[0]) ((char*)wanted[0])[at / 128] = class;
            }
        }
    }
    return 0;
}

// The program.
static void call(u32 which, int site, const void* parameters) {
    int result = 0;
    Data data = {site, NAMES[which], parameters, &result, "kernel", (void*)7};
    callback(0, 1, which, &data);
}

static char* allocate(u64 bytes) {
    u64 at, parameters[2] = {(u64)&at, bytes};
    cuMemAlloc_v2(&at, bytes);
    memset((void*)at, 0, bytes);
    call(ALLOCATE, 1, parameters);
    return (char*)at;
}

static void launch(void) {
    u64 parameters[8] = {0};
    call(LAUNCH, 1, parameters);
}

static char* pool;
static void (*piece)(u64, u64, const char*);
static void tell(void) {
    piece((u64)pool, 4096, "left");
    piece((u64)pool + 4096, 8192, 0);
    piece((u64)pool + 12288, 4096, "right");
}

// So many launches over an allocation of 20000 bytes, the second half of them with a pool of two pieces.
int fake_main(int launches) {
    void* library = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_NOW | RTLD_GLOBAL);
    ((int (*)(void))dlsym(library, "InitializeInjection"))();
    piece = (void (*)(u64, u64, const char*))dlsym(library, "buddy_watch_piece_is");
    uint16_t* numbers = (uint16_t*)allocate(20000);
    // Ten exponents from 120 on, but for the first 40 entries.
    for (int i = 40 * 64; i < 10000; i++) numbers[i] = (120 + i % 10) << 7 | (i & 0x7f);
    for (int i = 0; i < launches / 2; i++) launch();
    pool = allocate(16384);
    memset(pool + 12288, 9, 4096);
    ((void (*)(void (*)(void)))dlsym(library, "buddy_watch_pieces_from"))(tell);
    for (int i = 0; i < launches / 2; i++) launch();
    u64 at = (u64)numbers;
    call(FREE, 0, &at);
    printf("done\n");
    return 3;
}
