// The wave's kernels, run on the CPU, in plain and in compressed memory: `wave PROBLEM RESULT`.
// PROBLEM: cells along x, y and z, steps, 1 for windows, percentage of the units on the device, 1
// to retarget on the way (7 ints); the table; the source's amplitude in each step (floats). RESULT:
// the last field of compressed memory, its slice cell by cell, and plain memory's field, in rows.
// Exits with 1 and a message if two of them differ on the way.
#include "../../cuda/tests/emu.h"
#include "../../cuda/tests/runtime.h"

#include "../kernels/wave.cu"

struct Problem {
    int nx, ny, nz, steps, window, percent, retarget;
};
static void expect(bool holds, const char* what) {
    if (!holds) fprintf(stderr, "%s\n", what), exit(1);
}
template <class T>
static std::vector<T> read(FILE* file, size_t count) {
    std::vector<T> all(count);
    expect(fread(all.data(), sizeof(T), count, file) == count, "the problem is too short");
    return all;
}
static u8* aligned(std::vector<u8>& bytes) { return (u8*)(((u64)bytes.data() + 1023) & ~1023ull); }

struct Store {
    std::vector<u32> refs;
    std::vector<u8> kinds, active;
    State field;
    explicit Store(u64 pages) : refs(pages * UNITS, NONE), kinds(pages * BRICKS), active(pages) { field = {refs.data(), kinds.data(), active.data()}; }
};

struct Wave {
    Problem p;
    std::vector<float> table, pushes, plain_a, plain_b, v2;
    u64 fault = ~0ull, pages, cells;
    Step s;
    Store a, b;
    State u, w;
    std::vector<u8> device, host;
    std::vector<u32> stack, v;
    Pool pool;
    PoolState books = {};
    float *plain_u, *plain_w;
    u32 tiles;

    Wave(Problem p, FILE* file)
        : p(p), table(read<float>(file, TABLE)), pushes(read<float>(file, p.steps)), pages((u64)(p.nx / TX) * (p.ny / TY) * p.nz),
          cells(pages * PAGE_CELLS), s{{p.nx, p.ny, p.nz}, 0.0f, &fault}, a(pages), b(pages), u(a.field), w(b.field) {
        u64 units = 2 * pages * UNITS;
        books.device_end = (u32)(units * p.percent / 100), books.host_end = (u32)(units + 2 * pages) - books.device_end;
        device.assign((u64)books.device_end * UNIT + 1024, 0xee), host.assign((u64)books.host_end * UNIT + 1024, 0xdd);
        pool = {aligned(device), aligned(host)};
        stack.resize(units), v.resize(cells / 4), plain_a.resize(cells), plain_b.resize(cells), v2.resize(cells);
        plain_u = plain_a.data(), plain_w = plain_b.data(), tiles = (u32)s.n.tiles();
        emu::launch(fill_velocity_pages, dim3((u32)(cells / 1024)), 256, v.data(), s);
        emu::launch(fill_velocity_plain, dim3((u32)(cells / 256)), 256, v2.data(), (const float*)table.data(), s.n, 0, p.nz);
    }
    static u32 chunks(int planes, int each) { return (u32)((planes + each - 1) / each); }
    void step(int i) {
        s.push = pushes[i];
        const u32 groups = (u32)((pages + 255) / 256), warps = (u32)((pages * 32 + 255) / 256);
        emu::launch(light_pages, dim3(groups), 256, u, w, &books, (const u32*)stack.data(), s, 8u);
        emu::launch(p.window ? wave_window : wave_raw, dim3(tiles, chunks(p.nz, BUDDY_WAVE_PLANES)), THREADS, u, w, pool, (const u8*)v.data(),
                    (const float*)table.data(), s);
        slab(0, i % 2 ? p.nz : p.nz * 3 / 5);  // whole, or in two parts
        std::swap(u, w), std::swap(plain_u, plain_w);
        if (p.retarget && i % 3 == 1) emu::launch(trim_pages, dim3(warps), 256, u, pool, &books, stack.data(), pages, (u32)(i % 9 * 8));
        if (p.retarget && i % 3 == 2) emu::launch(raise_pages, dim3(warps), 256, u, pool, &books, (const u32*)stack.data(), pages, 7u, 2);
    }
    void slab(int from, int to) {
        const u64 off = (u64)from * p.nx * p.ny;
        const int below = from < 4 ? from : 4, above = p.nz - to < 4 ? p.nz - to : 4;
        Slab one = {plain_u + off, plain_w + off, v2.data() + off, from, to - from, below, above};
        emu::launch(wave_plain, dim3(tiles, chunks(to - from, BUDDY_WAVE_PLAIN_PLANES)), THREADS, one, (const float*)table.data(), s);
        if (to < p.nz) slab(to, p.nz);
    }
    std::vector<float> unpacked(const State& field, const Pool& from) {
        std::vector<float> back(cells, -1.0f);
        emu::launch(unpack_field, dim3(tiles, (u32)p.nz), THREADS, field, from, s, 0, back.data());
        return back;
    }
    void compare() {
        expect(memcmp(unpacked(u, pool).data(), plain_u, cells * 4) == 0, "compressed and plain memory differ");
        expect(fault == ~0ull && books.failed == 0, "a page had no room");
    }
    // Packs a plain field at once; the result must be equal.
    void repack() {
        Store other(pages);
        std::vector<u8> more((pages + 1) * UNITS * UNIT, 0x77);
        Pool second = {aligned(more), nullptr};
        emu::launch(p.window ? pack_field_window : pack_field_raw, dim3(tiles, (u32)p.nz), THREADS, (const float*)plain_u, other.field, second, s, 0u);
        expect(memcmp(unpacked(other.field, second).data(), plain_u, cells * 4) == 0, "a field packed at once differs");
    }
    std::vector<float> slice() {
        std::vector<float> all((size_t)p.nx * p.nz);
        emu::launch(slice_field, dim3((u32)(all.size() / 256 + 1)), 256, u, pool, s, Slice{p.ny / 2, 1, p.nx, p.nz}, all.data());
        return all;
    }
    // Checks that every kind of brick, and every place, occurred.
    void count() {
        u64 n[4] = {};
        emu::launch(count_kinds, dim3((u32)((pages + 255) / 256)), 256, u, pages, n);
        printf("zero %llu window %llu raw %llu on host %llu, moved %u\n", n[0], n[1], n[2], n[3], books.moved);
        expect(n[0] + n[1] + n[2] == pages * BRICKS && (n[1] > 0) == (p.window != 0), "kinds are counted wrong");
        expect(!p.retarget || (n[3] > 0 && books.moved > 0), "nothing was retargeted");
    }
};

int main(int, char** argv) {
    FILE* file = fopen(argv[1], "rb");
    expect(file != nullptr, "no problem");
    Problem p;
    expect(fread(&p, sizeof p, 1, file) == 1, "the problem is too short");
    Wave wave(p, file);
    for (int i = 0; i < p.steps; i++) {
        wave.step(i);
        if (i % 4 == 3 || i == p.steps - 1) wave.compare();
    }
    wave.repack(), wave.count();
    FILE* out = fopen(argv[2], "wb");
    const std::vector<float> packed = wave.unpacked(wave.u, wave.pool), slice = wave.slice();
    fwrite(packed.data(), 4, packed.size(), out), fwrite(slice.data(), 4, slice.size(), out), fwrite(wave.plain_u, 4, wave.cells, out);
    fclose(out);
}
