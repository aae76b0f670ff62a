/* Functions by which a program marks snapshots and pool pieces for `buddy watch` and
 * `buddy profile -- PROGRAM`. Without these commands they do nothing. Needs no library; C and C++ on
 * Linux. */
#ifndef BUDDY_WATCH_H
#define BUDDY_WATCH_H

#include <dlfcn.h>
#include <stdlib.h>

/* Returns a function of the injected library, or null. */
static inline void* buddy_watch_function(const char* name) {
    const char* library = getenv("CUDA_INJECTION64_PATH");
    void* handle = library ? dlopen(library, RTLD_NOW | RTLD_NOLOAD) : 0;
    void* found = handle ? dlsym(handle, name) : 0;
    if (handle) dlclose(handle);
    return found;
}

/* Takes a labelled snapshot after all launched work, if `--on-request` was given. The thread must not be
 * capturing a graph. */
static inline void buddy_watch_look(const char* label) {
    typedef void (*Look)(const char*);
    Look look = (Look)buddy_watch_function("buddy_watch_look_now");
    if (look) look(label);
}

/* Registers `tell` for a program with its own memory pools, each of which CUDA sees as one allocation.
 * It is called before every snapshot, on the launching thread, and calls buddy_watch_piece for each
 * piece; the record then has pieces instead of pools. Call this once CUDA is in use; null
 * unregisters. */
static inline void buddy_watch_pieces(void (*tell)(void)) {
    typedef void (*From)(void (*)(void));
    From from = (From)buddy_watch_function("buddy_watch_pieces_from");
    if (from) from(tell);
}

/* Reports a piece: device address, bytes, and name, or null for free memory. Pieces of equal name and
 * length are numbered. */
static inline void buddy_watch_piece(unsigned long long address, unsigned long long bytes, const char* name) {
    typedef void (*Piece)(unsigned long long, unsigned long long, const char*);
    static Piece piece;
    if (!piece) piece = (Piece)buddy_watch_function("buddy_watch_piece_is");
    if (piece) piece(address, bytes, name);
}

#endif
