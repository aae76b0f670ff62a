// Kernels of the wave: a step in plain and in compressed memory, page management, the model, and
// readout. BUDDY_WAVE_PLANES is the number of planes that a block of the packed step traverses;
// BUDDY_WAVE_PLAIN_PLANES that of the plain one.
#include "wave_pages.cuh"
#include "wave_plain.cuh"

using namespace buddy;

#define BUDDY_KERNEL extern "C" __global__ void
#define BUDDY_STEP extern "C" __global__ void __launch_bounds__(THREADS, 2)

static_assert(sizeof(PackedShared<BUDDY_WAVE_PLANES>) <= BUDDY_WAVE_PACKED_SHARED, "as Rust counts it");
static_assert(sizeof(PlainShared) <= BUDDY_WAVE_PLAIN_SHARED, "as Rust counts it");

BUDDY_FN u64 thread_number() { return blockIdx.x * (u64)blockDim.x + threadIdx.x; }
BUDDY_FN u64 pages_of(const Step& s) { return (u64)s.tiles_x * s.tiles_y * s.n.nz; }

BUDDY_STEP wave_plain(Slab slab, const float* table, Step s) { step_plain<BUDDY_WAVE_PLAIN_PLANES>(slab, table, s); }

// Before windows are used: every brick is zero or raw.
BUDDY_STEP wave_raw(Field u, Field w, Pool pool, const u8* v, const float* table, Step s) {
    step_packed<BUDDY_WAVE_PLANES, false>(u, w, pool, v, table, s);
}
// Bricks may be windows, and become windows.
BUDDY_STEP wave_window(Field u, Field w, Pool pool, const u8* v, const float* table, Step s) {
    step_packed<BUDDY_WAVE_PLANES, true>(u, w, pool, v, table, s);
}

BUDDY_KERNEL light_pages(Field u, Field w, PoolState* books, const u32* stack, Step s, u32 target) {
    light_page(u, w, books, stack, s, target, thread_number());
}
BUDDY_KERNEL trim_pages(Field f, Pool pool, PoolState* books, u32* stack, u64 pages, u32 most) {
    u64 page = thread_number() / 32;
    if (page < pages) trim_page(f, pool, books, stack, page, most, threadIdx.x % 32);
}
BUDDY_KERNEL raise_pages(Field f, Pool pool, PoolState* books, const u32* stack, u64 pages, u32 units, int keep) {
    u64 page = thread_number() / 32;
    if (page < pages) raise_page(f, pool, books, stack, page, units, keep, threadIdx.x % 32);
}
BUDDY_KERNEL count_kinds(Field f, u64 pages, u64* counts) { count_page(f, thread_number(), pages, counts); }

// Unpacks planes from `first` on to plain rows.
BUDDY_KERNEL unpack_field(Field f, Pool pool, Step s, int first, float* to) {
    unpack_page(f, pool, s, (int)blockIdx.x, first + (int)blockIdx.y, first, to);
}
BUDDY_KERNEL pack_field_raw(const float* from, Field f, Pool pool, Step s, u32 first) {
    pack_page<false>(from, f, pool, s, (int)blockIdx.x, (int)blockIdx.y, first + UNITS * (blockIdx.x * (u32)s.n.nz + blockIdx.y));
}
BUDDY_KERNEL pack_field_window(const float* from, Field f, Pool pool, Step s, u32 first) {
    pack_page<true>(from, f, pool, s, (int)blockIdx.x, (int)blockIdx.y, first + UNITS * (blockIdx.x * (u32)s.n.nz + blockIdx.y));
}
// Cells of a picture: every `by`th along x and z, at one y.
struct Slice {
    int y, by, width, height;
};
BUDDY_KERNEL slice_field(Field f, Pool pool, Step s, Slice slice, float* to) {
    int at = (int)thread_number();
    if (at < slice.width * slice.height) to[at] = read_cell(f, pool, s, at % slice.width * slice.by, slice.y, at / slice.width * slice.by);
}

// The model: planes from `first` on as plain numbers, and as indices in page order.
BUDDY_KERNEL fill_velocity_plain(float* to, const float* table, Dims n, int first, int planes) {
    u64 at = thread_number();
    if (at >= (u64)n.nx * n.ny * planes) return;
    to[at] = table[velocity_index((int)(at % n.nx), (int)(at / n.nx % n.ny), first + (int)(at / n.nx / n.ny), n)];
}
BUDDY_KERNEL fill_velocity_pages(u32* to, Step s) {
    u64 at = thread_number(), page = at / (PAGE_CELLS / 4);  // four cells
    if (page >= pages_of(s)) return;
    u32 t = (u32)(at % (PAGE_CELLS / 4)) / 2, word = 0;
    int tile = (int)(page / s.n.nz), z = (int)(page % s.n.nz);
    int x = tile % s.tiles_x * TX + cell_x(t), y = tile / s.tiles_x * TY + cell_y(t) + (int)(at % 2);
    BUDDY_UNROLL for (int i = 0; i < 4; i++) word |= velocity_index(x + i, y, z, s.n) << 8 * i;
    to[at] = word;
}
// Waves everywhere, with full mantissas and amplitudes over several powers of ten.
BUDDY_KERNEL fill_waves(float* to, Dims n, float phase) {
    u64 at = thread_number();
    if (at >= (u64)n.nx * n.ny * n.nz) return;
    float x = (float)(at % n.nx), y = (float)(at / n.nx % n.ny), z = (float)(at / n.nx / n.ny);
    float v = sinf(0.31f * x + 0.11f * y + phase) * cosf(0.23f * z - 0.17f * y) + 0.3f * sinf(0.4f * z + 0.05f * x - phase);
    to[at] = flush(1e-3f * v * expf(-0.004f * z));
}
