// Products of a packed sparse matrix by the emulated kernels: the matrix and x from stdin, y to
// stdout. Memory ends at a page that cannot be read.
#include <sys/mman.h>

#include "emu.h"

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __uint_as_float(unsigned bits) {
    float value;
    return memcpy(&value, &bits, 4), value;
}

#include "../kernels/csr.cu"

static void take(void* to, size_t bytes) {
    if (bytes && fread(to, 1, bytes, stdin) != bytes) _Exit(3);
}

// Memory whose end, to 8 bytes, is that of a page; the next page cannot be read.
static u8* guarded(u64 bytes) {
    u64 page = 4096, used = (bytes + 7) / 8 * 8, all = (used + page - 1) / page * page;
    u8* memory = (u8*)mmap(nullptr, all + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + all, page, PROT_NONE) != 0) emu::fail("no memory");
    return memory + (all - used);
}

template <class Kernel>
static void launch(Kernel kernel, u32 blocks, const CsrProduct& of) {
    if (blocks) emu::launch(kernel, dim3(blocks), SEGMENTS, of);
}

int main() {
    struct { u32 value_bytes, columns, tiles, joined, parts, rows; u64 payload, x; } how;
    take(&how, sizeof how);
    u8 *tiles = guarded(how.tiles * sizeof(CsrTile)), *payload = guarded(how.payload), *joins = guarded(how.joined * sizeof(CsrJoin)), *x = guarded(how.x);
    take(tiles, how.tiles * sizeof(CsrTile)), take(payload, how.payload), take(joins, how.joined * sizeof(CsrJoin)), take(x, how.x);
    u64 y_bytes = (u64)how.rows * how.columns * how.value_bytes;
    u8 *y = guarded(y_bytes), *parts = guarded((u64)how.parts * how.columns * how.value_bytes);
    memset(y, 0xff, y_bytes);
    CsrProduct of = {(const CsrTile*)tiles, payload, (const CsrJoin*)joins, x, y, parts, how.columns, how.joined};
    bool wide = how.value_bytes == 8;
    auto kernel = how.columns > 4 ? wide ? csr_double_8 : csr_float_8 : how.columns > 2 ? wide ? csr_double_4 : csr_float_4
                : how.columns > 1 ? wide ? csr_double_2 : csr_float_2 : wide ? csr_double_1 : csr_float_1;
    launch(kernel, how.tiles, of);
    launch(wide ? csr_double_join : csr_float_join, (how.joined * how.columns + SEGMENTS - 1) / SEGMENTS, of);
    fwrite(y, 1, y_bytes, stdout);
}
