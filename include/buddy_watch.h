/* What a program may say to `buddy watch` and `buddy profile -- PROGRAM`. Without them all of it does nothing. Nothing to link:
 * C and C++, Linux. */
#ifndef BUDDY_WATCH_H
#define BUDDY_WATCH_H

#include <dlfcn.h>
#include <stdlib.h>

/* A function of the library that watches, or null. */
static inline void* buddy_watch_function(const char* name) {
    const char* library = getenv("CUDA_INJECTION64_PATH");
    void* handle = library ? dlopen(library, RTLD_NOW | RTLD_NOLOAD) : 0;
    void* found = handle ? dlsym(handle, name) : 0;
    if (handle) dlclose(handle);
    return found;
}

/* With `--asked`, a snapshot under this label, after all work that was launched. The thread must not be capturing a graph. */
static inline void buddy_watch_look(const char* label) {
    typedef void (*Look)(const char*);
    Look look = (Look)buddy_watch_function("buddy_watch_look_now");
    if (look) look(label);
}

/* For a program that takes memory from a pool of its own, which CUDA knows as one allocation: `tell` is called before every
 * snapshot, on the thread that launched, and calls buddy_watch_piece for each piece of its pools. The record then has the
 * pieces instead of the pool. Call it once CUDA is in use; null takes it back. */
static inline void buddy_watch_pieces(void (*tell)(void)) {
    typedef void (*From)(void (*)(void));
    From from = (From)buddy_watch_function("buddy_watch_pieces_from");
    if (from) from(tell);
}

/* One piece: its device address, its bytes, and its name; null for what is free in the pool. Pieces of one name and length are
 * numbered. */
static inline void buddy_watch_piece(unsigned long long address, unsigned long long bytes, const char* name) {
    typedef void (*Piece)(unsigned long long, unsigned long long, const char*);
    static Piece piece;
    if (!piece) piece = (Piece)buddy_watch_function("buddy_watch_piece_is");
    if (piece) piece(address, bytes, name);
}

#endif
