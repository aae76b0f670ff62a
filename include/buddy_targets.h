/*
 * Compressed memory by a targets file, from C11 and C++17. Link with -lbuddy_targets, which holds
 * all of libbuddy.so too; link with one of the two, not with both.
 *
 *     buddy profile RUN --targets targets.toml
 *
 * writes a codec and targets for every allocation of a program. docs/reference/targets.md describes
 * the file.
 */
#ifndef BUDDY_TARGETS_H
#define BUDDY_TARGETS_H

#include "buddy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A targets file that was read. */
typedef struct buddyTargets buddyTargets;

/* A row of the file. The strings belong to the buddyTargets. */
typedef struct buddyTargetsRow {
    const char *name;
    const char *call_site;  /* "" if the file has none */
    const char *codec;
    uint64_t bytes;         /* the length for which the targets were chosen */
    uint64_t device_bytes;  /* device memory for that length, metadata and the codec's parameters included */
    uint64_t buddy_bytes;   /* pinned host memory for that length */
    uint64_t ranges;        /* ranges of pages with targets of their own; 1 for a uniform target */
    uint64_t changes;       /* changes of its targets that the file has */
} buddyTargetsRow;

/*
 * Reads and checks a file. On an error, the message names the line or the allocation, and *targets
 * is unchanged.
 */
buddyError buddyTargetsOpen(const char *path, buddyTargets **targets);

/* Frees what buddyTargetsOpen made; NULL is allowed. Its allocations stay, for buddyFree. */
void buddyTargetsClose(buddyTargets *targets);

/* Returns the number of rows. */
size_t buddyTargetsCount(const buddyTargets *targets);

/* Writes the row at an index, from 0. */
buddyError buddyTargetsGet(const buddyTargets *targets, size_t index, buddyTargetsRow *row);

/*
 * Allocates compressed memory, filled with zeros, with the codec and targets of the row `name`, as
 * buddyMalloc does. bytes is 0 for the row's own length. Another length needs a uniform target:
 * ranges fit only the number of 8 KiB pages that they were chosen for. A trained codec uses the
 * parameters in the file.
 */
buddyError buddyTargetsMalloc(buddyTargets *targets, const char *name, size_t bytes, buddyHandle *handle);

/*
 * Applies the changes that the file has for a snapshot to the allocations that buddyTargetsMalloc
 * made and that live; those that free memory come first. Waits for the stream. A failed change leaves its
 * allocation as it was and stops no other; the call then returns the first failure. No other thread
 * may use these allocations meanwhile.
 */
buddyError buddyTargetsChange(buddyTargets *targets, uint64_t snapshot, buddyStream stream);

#ifdef __cplusplus
}
#endif
#endif
