// Reads a tight matrix with the emulated kernels: its parts from stdin; all rows, those from a
// multiple of sixteen on, and listed entries to stdout.
#include <sys/mman.h>

#include <algorithm>

#include "emu.h"
#include "../kernels/bits.cuh"

using std::min;

#include "../kernels/tight.cu"

static void take(void* to, size_t bytes) {
    if (bytes && fread(to, 1, bytes, stdin) != bytes) _Exit(3);
}
static u32 pieces(u64 all, u64 each) { return (u32)((all + each - 1) / each); }

// Memory whose end, to 16 bytes, is that of a page; the next page cannot be read.
static u8* guarded(u64 bytes) {
    u64 page = 4096, used = (bytes + 15) / 16 * 16, all = (used + page - 1) / page * page;
    u8* memory = (u8*)mmap(nullptr, all + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + all, page, PROT_NONE) != 0) emu::fail("no memory");
    return memory + (all - used);
}

int main() {
    u32 rows, per_row, words, first, listed;
    for (u32* at : {&rows, &per_row, &words, &first, &listed}) take(at, 4);
    u64 bytes[5];
    take(bytes, sizeof bytes);
    u8* at[5];
    for (u32 i = 0; i < 5; i++) at[i] = guarded(bytes[i]), take(at[i], bytes[i]);
    std::vector<u32> list(listed + 1);
    take(list.data(), 4 * listed);
    TightView view = {at[0], at[1], at[4], (const u32*)at[2], at[3], words, per_row};
    auto read = [&](u32 first, u32 count) {
        std::vector<uint4> out((u64)count * per_row * CHUNKS + 1);
        u64 warps = (u64)pieces(count, TILE) * per_row;
        emu::launch(tight_read, dim3(pieces(warps * LANES, READERS)), READERS, TightReading{view, out.data(), rows, first, count, 0});
        fwrite(out.data(), 128, (u64)count * per_row, stdout);
    };
    read(0, rows), read(first, rows - first);
    std::vector<uint4> out((u64)listed * CHUNKS + 1);
    emu::launch(tight_gather, dim3(pieces(4ull * listed, READERS)), READERS, TightReading{view, out.data(), rows, 0, 0, 0}, (const u32*)list.data(), (u64)listed);
    fwrite(out.data(), 128, listed, stdout);
}
