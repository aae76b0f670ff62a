// Uses CUDA as a program does that loads its driver: what it does then is in driver.c.
#include <dlfcn.h>
#include <stdlib.h>

int main(int count, char** arguments) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    return ((int (*)(int))dlsym(driver, "fake_main"))(atoi(arguments[1]));
}
