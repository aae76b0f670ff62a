/*
 * Runs every function of buddy.h that takes memory on the driver of driver.c, refusing its calls one after the other. After a
 * refusal there must be a code, nothing written to the caller, and nothing taken that is not given back; the same program
 * must then succeed.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "buddy.h"

void stubFailAt(long call);
long stubCalls(void);
const char *stubRefused(void);
long stubModules(void);
long stubPrograms(void);
long stubLive(void);
void stubCurrent(int on);
void stubDestroyContext(void);

static unsigned char plain_room[4096] __attribute__((aligned(512)));
int cuMemAlloc_v2(buddyDevicePtr *to, size_t bytes);
int cuMemFree_v2(buddyDevicePtr start);

/* A sparse matrix of 2 x 3, multiplied on the device; one of its rows lies in two tiles. */
static int create(buddyHandle *matrix) {
    static const double values[8200];
    static const uint32_t indices[8200];
    static const uint64_t starts[3] = {0, 8199, 8200};
    buddyCsrArrays arrays = {2, 3, starts, indices, values, 8, 0};
    return buddyCsrCreate(matrix, &arrays);
}
static int product(buddyDevicePtr plain) {
    buddyHandle matrix = 0;
    int code = create(&matrix);
    if (!code) code = buddyCsrMultiply(matrix, plain, plain + 1024, 2, NULL);
    if (!code) code = buddyCsrMultiply(matrix, plain, plain + 1024, 8, NULL);
    int freed = buddyCsrDestroy(matrix);
    return code ? code : freed;
}

/* Everything once; the first code that is not success. What was taken is given back. */
static int sequence(buddyDevicePtr plain) {
    buddyHandle handle = 77;
    int code = buddyMalloc(&handle, 1000, BUDDY_TARGET_2X, "bpc");
    if (code) return handle == 77 ? code : -1;
    buddyStatistics stats;
    memset(&stats, 0x5a, sizeof stats);
    if (!code) code = buddyWrite(handle, 0, plain, 1000, NULL);
    if (!code) code = buddyRead(handle, 128, plain, 256, NULL);
    if (!code) code = buddyReadChecked(handle, 0, plain, 1000, NULL);
    if (!code && (code = buddyStats(handle, &stats, NULL)) && stats.bytes != 0x5a5a5a5a5a5a5a5aull) code = -2;
    buddySizes sizes;
    if (!code) code = buddyHistogram(plain, 1000, "zeros32", &sizes, NULL);
    if (!code) code = product(plain);
    int freed = code % 2 ? buddyFree(handle) : buddyFreeScrubbed(handle);
    if (freed && !code) {
        code = freed;
        freed = buddyFree(handle); /* a refused scrub leaves the allocation as it was */
    }
    if (freed && freed != BUDDY_ERROR_INVALID_HANDLE) {
        /* The check of the context was refused: once more. */
        if (!code) code = freed;
        buddyFree(handle);
    }
    return code;
}

/* What is left after a run with the n-th call refused (0: none) and one without. */
static int child(long n, long *left, long *calls) {
    buddyDevicePtr plain = 0;
    stubCurrent(1);
    stubFailAt(0);
    if (cuMemAlloc_v2(&plain, sizeof plain_room)) return 9;
    stubFailAt(n);
    int code = sequence(plain);
    *calls = stubCalls();
    if (code < 0) return printf("call %ld (%s): an answer was written in spite of the failure (%d)\n", n, stubRefused(), code), 1;
    if (n == 0 && code) return printf("without a refusal: code %d, %s\n", code, buddyGetLastErrorMessage()), 1;
    if (n && code == BUDDY_ERROR_INTERNAL)
        return printf("call %ld (%s): %s\n", n, stubRefused(), buddyGetLastErrorMessage()), 1;
    stubFailAt(0);
    if ((code = sequence(plain))) return printf("after call %ld (%s): code %d, %s\n", n, stubRefused(), code, buddyGetLastErrorMessage()), 1;
    *left = 10000 * stubPrograms() + 100 * stubModules() + stubLive();
    cuMemFree_v2(plain);
    return 0;
}

/* The same in a process of its own: every run begins afresh. */
static int apart(long n, long *left, long *calls) {
    int pipes[2];
    long answer[2] = {0, 0};
    if (pipe(pipes)) return 9;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int failed = child(n, &answer[0], &answer[1]);
        fflush(stdout);
        if (write(pipes[1], answer, sizeof answer) != sizeof answer) failed = 9;
        _exit(failed);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (read(pipes[0], answer, sizeof answer) != sizeof answer) status = 9;
    close(pipes[0]), close(pipes[1]);
    *left = answer[0], *calls = answer[1];
    if (status) printf("call %ld: the process ended with %d\n", n, status);
    return status != 0;
}

/* Many threads that take, use and give back memory at once, and one allocation that all of them ask for its counts. */
static buddyHandle shared_handle;
static void *thread(void *seed) {
    buddyDevicePtr plain = 0;
    stubCurrent(1);
    if (cuMemAlloc_v2(&plain, sizeof plain_room)) return seed;
    for (int i = 0; i < 300; i++) {
        buddyStatistics stats;
        if (sequence(plain) || buddyStats(shared_handle, &stats, NULL) || stats.bytes != 4000) return seed;
    }
    cuMemFree_v2(plain);
    return NULL;
}

static int threads(void) {
    pthread_t all[8];
    stubCurrent(1);
    stubFailAt(0);
    if (buddyMalloc(&shared_handle, 4000, BUDDY_TARGET_4X, "bpc")) return printf("%s\n", buddyGetLastErrorMessage()), 1;
    long before = stubLive();
    for (size_t i = 0; i < 8; i++) pthread_create(&all[i], NULL, thread, &plain_room[i]);
    int failures = 0;
    for (size_t i = 0; i < 8; i++) {
        void *failed;
        pthread_join(all[i], &failed);
        failures += failed != NULL;
    }
    /* Surveys keep memory that they share, one piece of each kind. */
    long more = stubLive() - before;
    printf("8 threads of 300 rounds, %d failures, %ld pieces of memory more\n", failures, more);
    return failures || more > 4 || buddyFree(shared_handle);
}

/* A context that ends before its allocations: they say so, and can be freed. */
static int destroyed(void) {
    buddyHandle handle = 0;
    stubCurrent(1);
    stubFailAt(0);
    buddyHandle matrix = 0;
    buddyDevicePtr plain = 0;
    if (buddyMalloc(&handle, 1000, BUDDY_TARGET_2X, "bpc") || create(&matrix) || cuMemAlloc_v2(&plain, sizeof plain_room)) return 1;
    if (buddyCsrMultiply(matrix, plain, plain + 1024, 1, NULL)) return 1;
    stubDestroyContext();
    if (buddyCsrDestroy(matrix)) return 1;
    buddyStatistics stats;
    int asked = buddyStats(handle, &stats, NULL), freed = buddyFree(handle), again = buddyFree(handle);
    printf("after the context: %d, %d, %d\n", asked, freed, again);
    return asked != BUDDY_ERROR_CONTEXT_LOST || freed != 0 || again != BUDDY_ERROR_INVALID_HANDLE;
}

int main(int count, char **words) {
    if (count > 1) return strcmp(words[1], "threads") ? destroyed() : threads();
    long expected = 0, calls = 0, left = 0, ignored = 0;
    if (apart(0, &expected, &calls)) return 1;
    int failures = 0;
    for (long n = 1; n <= calls; n++) {
        if (apart(n, &left, &ignored)) failures++;
        else if (left != expected) failures++, printf("call %ld: %ld is left instead of %ld\n", n, left, expected);
    }
    printf("%ld calls refused one by one, %d failures\n", calls, failures);
    return failures != 0 || calls < 30;
}
