// A program of the driver API alone: no runtime, two contexts, a module from PTX.
#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static void* driver = dlopen("libcuda.so.1", RTLD_NOW);

#define CALL(name, ...)                                                                \
    do {                                                                               \
        CUresult result = ((decltype(&name))dlsym(driver, #name))(__VA_ARGS__);        \
        if (result != 0) {                                                             \
            fprintf(stderr, "%s: error %d\n", #name, (int)result);                     \
            exit(3);                                                                   \
        }                                                                              \
    } while (0)

// words[i] = i * step, for 1024 blocks of 256 threads.
static const char* PTX = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry ramp(.param .u64 words, .param .u32 step) {
  .reg .u32 %r<6>; .reg .u64 %a<4>;
  ld.param.u64 %a1, [words]; ld.param.u32 %r4, [step];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x;
  shl.b32 %r1, %r1, 8; add.u32 %r3, %r1, %r2;
  mul.wide.u32 %a2, %r3, 4; add.u64 %a3, %a1, %a2;
  mul.lo.u32 %r5, %r3, %r4; st.global.u32 [%a3], %r5; ret;
})";

static unsigned long long once(CUdevice device, unsigned packed) {
    CUcontext context;
    CALL(cuDevicePrimaryCtxRetain, &context, device);
    CALL(cuCtxSetCurrent, context);
    CUmodule module;
    CALL(cuModuleLoadData, &module, PTX);
    CUfunction ramp;
    CALL(cuModuleGetFunction, &ramp, module, "ramp");
    CUdeviceptr words;
    const size_t bytes = 1 << 20;
    CALL(cuMemAlloc_v2, &words, bytes);
    for (unsigned step = 1; step <= 12; step++) {
        void* list[] = {&words, &step};
        struct { CUdeviceptr words; unsigned step; } arguments = {words, step};
        size_t size = offsetof(decltype(arguments), step) + sizeof step;
        void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
        CALL(cuLaunchKernel, ramp, 1024, 1, 1, 256, 1, 1, 0, 0, packed ? nullptr : list, packed ? extra : nullptr);
    }
    unsigned* host = (unsigned*)malloc(bytes);
    CALL(cuMemcpyDtoH_v2, host, words, bytes);
    unsigned long long found = 0;
    for (size_t i = 0; i < bytes / 4; i++) found += host[i];
    free(host);
    if (packed) CALL(cuMemFree_v2, words);
    return found;
}

int main() {
    CALL(cuInit, 0);
    CUdevice device;
    CALL(cuDeviceGet, &device, 0);
    unsigned long long found = once(device, 0);
    // The context ends with live memory, and another one begins.
    CALL(cuDevicePrimaryCtxReset_v2, device);
    found += once(device, 1);
    CALL(cuCtxSynchronize);
    printf("driver %llu\n", found);
    return 0;
}
