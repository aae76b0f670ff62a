/*
 * Loaded before the system's library: of the calls of one kind on files below $FAULT_DIR, the n-th
 * fails ($FAULT, such as "write:3:28": the number after the second colon is errno, 0 is a short
 * write, 4 an interruption, -9 kills the process before the call). Without $FAULT it counts, and
 * leaves the counts in $FAULT_COUNTS. With $FAULT_RELATIVE, relative paths count as below $FAULT_DIR.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

enum { OPEN, READ, WRITE, FSYNC, RENAME, MMAP, KINDS, FILES = 1024 };
static const char *names[KINDS] = {"open", "read", "write", "fsync", "rename", "mmap"};
static long counts[KINDS];
static char ours[FILES];
static int kind = -1, error;
static long at;

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("FAULT");
    char name[16];
    if (!text || sscanf(text, "%15[a-z]:%ld:%d", name, &at, &error) != 3) return;
    for (int i = 0; i < KINDS; i++)
        if (!strcmp(name, names[i])) kind = i;
}

__attribute__((destructor)) static void end(void) {
    const char *path = getenv("FAULT_COUNTS");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    for (int i = 0; i < KINDS; i++) fprintf(file, "%s %ld\n", names[i], counts[i]);
    fclose(file);
}

/* Whether this call fails; errno is set then. */
static int fails(int which) {
    if (__atomic_add_fetch(&counts[which], 1, __ATOMIC_RELAXED) != at || which != kind) return 0;
    if (error < 0) raise(-error);
    errno = error;
    return 1;
}
static int is_below(const char *path) {
    const char *dir = getenv("FAULT_DIR");
    if (dir && path && *path != '/' && getenv("FAULT_RELATIVE")) return 1;
    return dir && path && !strncmp(path, dir, strlen(dir));
}
static int is_ours(int fd) { return fd >= 0 && fd < FILES && ours[fd]; }
#define REAL(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

static int opened(int fd, const char *path) {
    if (fd >= 0 && fd < FILES) ours[fd] = is_below(path);
    return fd;
}
#define OPENS(name)                                                                          \
    int name(const char *path, int flags, ...) {                                             \
        va_list rest;                                                                        \
        va_start(rest, flags);                                                               \
        int mode = flags & O_CREAT ? va_arg(rest, int) : 0;                                  \
        va_end(rest);                                                                        \
        if (is_below(path) && fails(OPEN)) return -1;                                        \
        return opened(REAL(int, name, const char *, int, ...)(path, flags, mode), path);     \
    }
OPENS(open)
OPENS(open64)

int close(int fd) {
    if (fd >= 0 && fd < FILES) ours[fd] = 0;
    return REAL(int, close, int)(fd);
}
ssize_t read(int fd, void *to, size_t bytes) {
    if (is_ours(fd) && fails(READ)) {
        if (error) return -1;
        bytes = bytes > 1 ? bytes / 2 : bytes;
    }
    return REAL(ssize_t, read, int, void *, size_t)(fd, to, bytes);
}
ssize_t write(int fd, const void *from, size_t bytes) {
    if (is_ours(fd) && fails(WRITE)) {
        if (error) return -1;
        bytes = bytes > 1 ? bytes / 2 : bytes;
    }
    return REAL(ssize_t, write, int, const void *, size_t)(fd, from, bytes);
}
ssize_t pread64(int fd, void *to, size_t bytes, off_t offset) {
    if (is_ours(fd) && fails(READ)) {
        if (error) return -1;
        bytes = bytes > 1 ? bytes / 2 : bytes;
    }
    return REAL(ssize_t, pread64, int, void *, size_t, off_t)(fd, to, bytes, offset);
}
ssize_t pwrite64(int fd, const void *from, size_t bytes, off_t offset) {
    if (is_ours(fd) && fails(WRITE)) {
        if (error) return -1;
        bytes = bytes > 1 ? bytes / 2 : bytes;
    }
    return REAL(ssize_t, pwrite64, int, const void *, size_t, off_t)(fd, from, bytes, offset);
}
int fsync(int fd) {
    if (is_ours(fd) && fails(FSYNC)) return -1;
    return REAL(int, fsync, int)(fd);
}
int rename(const char *from, const char *to) {
    if (is_below(to) && fails(RENAME)) return -1;
    return REAL(int, rename, const char *, const char *)(from, to);
}
void *mmap64(void *where, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (is_ours(fd) && fails(MMAP)) return MAP_FAILED;
    return REAL(void *, mmap64, void *, size_t, int, int, int, off_t)(where, bytes, protection, flags, fd, offset);
}
