// Packs and reads a frozen buffer with the emulated kernels: parameters and data from stdin, the
// buffer and the data read back to stdout. With three kernels, or with two and separate memory for
// sums.
#include "row.h"

#include "../kernels/frozen.cu"

static void take(void* to, size_t bytes) {
    if (bytes && fread(to, 1, bytes, stdin) != bytes) _Exit(3);
}
static u32 pieces(u64 all, u64 each) { return (u32)((all + each - 1) / each); }

// Memory aligned like a GPU's.
struct alignas(128) Line { u8 bytes[128]; };
static u8* memory(std::vector<Line>& lines, u64 bytes) { return lines.resize(bytes / 128 + 1), lines[0].bytes; }

int main() {
    struct { u32 device_bytes, row, window, capacity, parts, apart; } how;
    struct { u64 entries, device, nibbles, index, overflow, total; } at;
    Packing of = {};
    take(&how, sizeof how), take(&at, sizeof at), take(of.head, sizeof of.head);
    std::vector<Line> data, packed, again, beside;
    u8* from = memory(data, at.entries * ENTRY);
    take(from, at.entries * ENTRY);
    u8* base = memory(packed, at.total);
    u32 told = ~0u, sums[MOST_PARTS + 1] = {};
    of.from = (const uint4*)from, of.device = base + at.device, of.nibbles = base + at.nibbles, of.index = (u32*)(base + at.index);
    of.overflow = how.apart ? memory(beside, how.capacity * SECTOR) : base + at.overflow;
    of.header = (u32*)base, of.told = &told, of.sums = how.parts ? sums : of.header + 16, of.order = {at.entries, how.row};
    of.device_bytes = how.device_bytes, of.capacity = how.capacity, of.params = {how.window, 0, nullptr};
    of.part_pages = pieces(of.pages(), how.parts ? how.parts : 16);
    emu::launch(frozen_pack, dim3((u32)of.pages()), WARPS * WARP, of);
    if (how.parts) {
        emu::launch(frozen_finish, dim3(pieces(of.pages(), of.part_pages)), FINISHERS, of);
        if (std::count(sums, sums + MOST_PARTS + 1, 0u) != MOST_PARTS + 1) emu::fail("sums that were left");
    } else {
        emu::launch(frozen_index, dim3(16), SCANNERS, of);
        emu::launch(frozen_overflow, dim3(pieces(of.pages() * (PAGE_ENTRIES / Overflows::PER_LANE), 128)), 128, of);
    }
    fwrite(&told, 4, 1, stdout), fwrite(base, 1, at.total, stdout);
    if (how.apart) fwrite(of.overflow, 1, how.capacity * SECTOR, stdout);
    Reading reading = {{of.device, of.nibbles, of.index, of.overflow, nullptr, of.order, of.device_bytes, of.capacity},
                       (uint4*)memory(again, at.entries * ENTRY), of.params};
    emu::launch(frozen_read, dim3(pieces(of.order.places(), PAGE_ENTRIES)), WARPS * WARP, reading, (u64)0, of.order.places(), (u64)0);
    fwrite(again[0].bytes, 1, at.entries * ENTRY, stdout);
}
