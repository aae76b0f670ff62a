// A writable matrix, and a window, by the emulated kernels: shape, old data, new data and the rows
// per write from stdin; the matrix's parts after the first write, the data after both, and the
// window to stdout.
#include "row.h"

#include "../kernels/external.cu"

static void take(void* to, size_t bytes) {
    if (bytes && fread(to, 1, bytes, stdin) != bytes) _Exit(3);
}

// Memory aligned like a GPU's.
struct alignas(128) Line { u8 bytes[128]; };
static u8* memory(std::vector<Line>& lines, u64 bytes) { return lines.resize(bytes / 128 + 1), lines[0].bytes; }

struct Matrix {
    BuddyView view;
    Order order;

    // One warp more than there are places; warps without a place do nothing.
    template <class Kernel>
    void each(Kernel kernel, u32 first, u32 count, u8* plain) {
        u32 warps = (u32)(order.places() / WARP + 2);
        emu::launch(kernel, dim3((warps + WARPS - 1) / WARPS), WARPS * WARP, view, Rows{order, first, count}, (u64)plain);
    }
};

int main() {
    struct { u32 rows, row, window, at_once, runs, run; } how;
    take(&how, sizeof how);
    u64 entries = (u64)how.rows * how.row, bytes = entries * ENTRY;
    std::vector<Line> lines[6];
    u8 *other = memory(lines[0], bytes), *data = memory(lines[1], bytes), *again = memory(lines[2], bytes);
    take(other, bytes), take(data, bytes);
    Order order = {entries, how.row};
    u64 places = order.places();
    u8 *device = memory(lines[3], places * 96), *buddy = memory(lines[4], places * SECTOR), *nibbles = memory(lines[5], places / 2);
    Memory all = {device, buddy, nibbles, nullptr, nullptr, places, 96, 0};
    Matrix matrix = {{all, {how.window, 0, nullptr}}, order};
    auto write = [&](u8* from) {
        for (u32 first = 0; first < how.rows; first += how.at_once) {
            matrix.each(rows_write, first, min(how.at_once, how.rows - first), from + (u64)first * how.row * ENTRY);
        }
    };
    write(other);
    fwrite(device, 1, places * 96, stdout), fwrite(nibbles, 1, places / 2, stdout), fwrite(buddy, 1, places * SECTOR, stdout);
    write(data);
    for (u32 first = 0; first < how.rows; first += 7) matrix.each(rows_read, first, min(7u, how.rows - first), again + (u64)first * how.row * ENTRY);
    u32 window = ~0u;
    emu::launch(window_train, dim3(1), TRAIN_THREADS, (const uint4*)data, entries, (u64)how.runs, (u64)how.run, &window);
    fwrite(again, 1, bytes, stdout), fwrite(&window, 4, 1, stdout);
}
