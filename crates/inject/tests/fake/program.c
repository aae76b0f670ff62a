// Uses CUDA as a program does that loads its driver: what it does then is in driver.c. `program LAUNCHES [again | abort]`
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char** arguments) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    int code = ((int (*)(int))dlsym(driver, "fake_main"))(atoi(arguments[1]));
    if (count > 2 && strcmp(arguments[2], "again") == 0) execl(arguments[0], arguments[0], arguments[1], (char*)0);
    if (count > 2 && strcmp(arguments[2], "abort") == 0) abort();
    return code;
}
