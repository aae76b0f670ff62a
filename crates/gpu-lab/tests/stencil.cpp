// The stencil, run on the CPU: over compressed memory it writes the same bits as over plain memory,
// with entries of zeros, distant values or special numbers, and at every edge. For kernels.rs.
#include "../../cuda/tests/emu.h"

#include "../kernels/stencil.cu"

#include <algorithm>

using namespace buddy;

static u64 state = 7;
static u64 random_bits() { return state = state * 6364136223846793005ull + 1442695040888963407ull, state ^ state >> 29; }

// A buffer at 2x and its memory.
struct Buffer {
    std::vector<uint4> device, buddy;
    std::vector<u32> nibbles;
    u64 fault = ~0ull;

    explicit Buffer(u64 entries) : device(entries * 4), buddy(entries * 4), nibbles(entries / 8, 0x99999999) {}
    BuddyView view() {
        u64 entries = nibbles.size() * 8;
        return {{(u8*)device.data(), (u8*)buddy.data(), (u8*)nibbles.data(), nullptr, &fault, entries, 64, 0}, {}};
    }
    void write(const std::vector<double>& cells) {
        for (u64 e = 0; e < cells.size() / 16; e++) {
            u32 words[32];
            memcpy(words, cells.data() + 16 * e, 128);
            thread::store_entry<Near64>(view(), e, words);
        }
    }
    std::vector<double> read() {
        std::vector<double> cells(nibbles.size() * 128);
        for (u64 e = 0; e < cells.size() / 16; e++) {
            u32 words[32];
            thread::load_entry<Near64>(view(), e, words);
            memcpy(cells.data() + 16 * e, words, 128);
        }
        return cells;
    }
    u32 count(u32 kind) {
        u32 found = 0;
        for (u32 word : nibbles)
            for (u32 i = 0; i < 8; i++) found += (word >> 4 * i & 15) == kind;
        return found;
    }
};

static void expect(const std::vector<double>& want, const std::vector<double>& got, const char* what) {
    if (memcmp(want.data(), got.data(), want.size() * 8) != 0) printf("%s differs\n", what), exit(1);
}

// Checks the plain stencil cell by cell, with the same order of additions.
static void check_plain(const std::vector<double>& from, const std::vector<double>& got, const Grid& grid) {
    std::vector<double> want;
    auto at = [&](int x, int y, int z) {
        x = std::clamp(x, 0, 511), y = std::clamp(y, 0, (int)grid.rows - 1), z = std::clamp(z, 0, (int)grid.planes - 1);
        return from[((u64)z * grid.rows + (u64)y) * 512 + (u64)x];
    };
    for (int z = 0; z < (int)grid.planes; z++)
        for (int y = 0; y < (int)grid.rows; y++)
            for (int x = 0; x < 512; x++) {
                double sum = at(x - 1, y, z) + at(x + 1, y, z) + (at(x, y - 1, z) + at(x, y + 1, z)) + at(x, y, z - 1);
                want.push_back(fma(SIDE, at(x, y, z + 1), fma(SIDE, sum, CENTRE * at(x, y, z))));
            }
    expect(want, got, "the plain stencil");
}

static void check(u32 rows, u32 planes, u32 planes_per_block, bool rough) {
    Grid grid = {rows, planes, planes_per_block};
    u64 cells = (u64)rows * planes * 512;
    std::vector<double> from(cells), want(cells);
    for (u64 i = 0; i < cells; i++) {
        from[i] = 1.5 + 0.25 * sin(6e-9 * (double)i);
        if (rough && random_bits() % 97 == 0) from[i] = __longlong_as_double((long long)(random_bits() & ~(1ull << 62)));
        if (rough && i / 512 % 5 < 3 && i / 2048 % 3 == 0) from[i] = 0;
    }
    Buffer source(cells / 16), result(cells / 16);
    source.write(from);
    expect(from, source.read(), "what was written");
    dim3 blocks((rows + INNER - 1) / INNER, (planes + planes_per_block - 1) / planes_per_block);
    emu::launch(stencil_simple, dim3((rows + 3) / 4, blocks.y), 1024, (const double*)from.data(), want.data(), grid);
    check_plain(from, want, grid);
    emu::launch(stencil_fused, blocks, THREADS, source.view(), result.view(), grid);
    expect(want, result.read(), "the stencil in compressed memory");
    // The stored bytes and nibbles equal those of a single thread.
    Buffer again(cells / 16);
    again.write(want);
    if (again.nibbles != result.nibbles || source.fault != ~0ull) printf("nibbles differ\n"), exit(1);
    bool all = result.count(ZERO) && result.count(S2) && result.count(RAW);
    if (rough ? !all : result.count(S2) * 16ull != cells) printf("not every kind of entry was there\n"), exit(1);
}

int main() {
    check(13, 7, 4, false);
    check(12, 5, 5, true);
}
