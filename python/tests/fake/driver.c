// A stub CUDA driver and NVRTC in one library: kernels do not run, and the arguments of the last launch are kept. For tests and
// measurements of host time (linear_plan.py, tools/host_cost.py).
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint64_t u64;
typedef uint32_t u32;

static void* current;
int fake_launches, fake_capturing, fake_overlaps, fake_memsets, fake_modules, fake_blocks;
unsigned char fake_view[96];  // first argument of the last launch: a linear layer's or a frozen buffer's view
const char* fake_kernel;      // name of the launched kernel

// GPUs of several architectures: compute capability, shared memory of an SM and of a CTA (CUDA C++ Programming Guide, table of
// technical specifications).
static const struct { int major, minor, of_sm, of_cta; } cards[] = {
    {9, 0, 228 << 10, 227 << 10}, {8, 0, 164 << 10, 163 << 10}, {8, 9, 100 << 10, 99 << 10}, {10, 0, 228 << 10, 227 << 10}, {12, 0, 100 << 10, 99 << 10}};

// The driver.
int cuInit(u32 flags) { return 0; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuDeviceGet(int* device, int number) { return *device = number, 0; }
int cuDeviceGetCount(int* count) { return *count = sizeof cards / sizeof *cards, 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
    switch (attribute) {
        case 75: return *value = cards[device].major, 0;
        case 76: return *value = cards[device].minor, 0;
        case 81: return *value = cards[device].of_sm, 0;
        case 97: return *value = cards[device].of_cta, 0;
        case 111: return *value = 1 << 10, 0;  // reserved for each CTA
        default: return *value = 132, 0;
    }
}
int cuDevicePrimaryCtxRetain(void** context, int device) { return *context = (void*)7, 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxGetCurrent(void** context) { return *context = current, 0; }
int cuCtxSetCurrent(void* context) { return current = context, 0; }
int cuCtxGetId(void* context, u64* id) { return *id = 1, 0; }
int cuPointerGetAttribute(void* value, int attribute, u64 address) { return 1; }
int cuModuleLoadData(void** module, const void* image) { return __sync_fetch_and_add(&fake_modules, 1), *module = (void*)9, 0; }
int cuModuleUnload(void* module) { return 0; }
int cuModuleGetFunction(void** function, void* module, const char* name) { return *function = strdup(name), 0; }
int cuFuncGetAttribute(int* value, int attribute, void* function) { return *value = 0, 0; }
int cuFuncSetAttribute(void* function, int attribute, int value) { return 0; }
int cuTensorMapEncodeTiled(void* map) { return 0; }
int cuMemsetD8Async(u64 at, unsigned char value, size_t bytes, void* stream) { return fake_memsets++, 0; }
int cuStreamIsCapturing(void* stream, int* status) { return *status = fake_capturing, 0; }
int cuLaunchKernelEx(const void* config, void* function, void** arguments, void** extra) {
    memcpy(fake_view, arguments[0], sizeof fake_view);
    fake_kernel = function;
    // Attributes of 72 bytes each begin with their id; 6 is programmatic stream serialisation.
    const unsigned char* attributes = ((unsigned char* const*)config)[5];
    fake_overlaps = 0, fake_blocks = ((const int*)config)[0];
    for (u32 i = 0; i < ((const u32*)config)[12]; i++) fake_overlaps |= *(const u32*)(attributes + 72 * i) == 6;
    return fake_launches++, 0;
}

// The compiler.
int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, 0; }
int nvrtcCreateProgram(void** program, const char* source, const char* name, int headers, void* texts, void* names) { return *program = (void*)13, 0; }
int nvrtcDestroyProgram(void** program) { return 0; }
int nvrtcCompileProgram(void* program, int count, void* options) { return 0; }
int nvrtcGetProgramLogSize(void* program, size_t* size) { return *size = 1, 0; }
int nvrtcGetProgramLog(void* program, char* log) { return *log = 0, 0; }
int nvrtcGetCUBINSize(void* program, size_t* size) { return *size = 4, 0; }
int nvrtcGetCUBIN(void* program, char* image) { return memcpy(image, "fake", 4), 0; }
