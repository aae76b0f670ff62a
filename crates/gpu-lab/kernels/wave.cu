// Kernels of the wave: a step in plain and in compressed memory, page management, the model, and
// readout. BUDDY_WAVE_PLANES is the number of planes that a block of the packed step traverses;
// BUDDY_WAVE_PLAIN_PLANES that of the plain one.
#include "stencil_units.cuh"
#include "wave_packed.cuh"
#include "wave_plain.cuh"

using namespace buddy;

#define BUDDY_KERNEL extern "C" __global__ void
#define BUDDY_STEP extern "C" __global__ void __launch_bounds__(THREADS, 2)

static_assert(sizeof(PackedShared<BUDDY_WAVE_PLANES>) <= BUDDY_WAVE_PACKED_SHARED, "as Rust counts it");
static_assert(sizeof(SlabShared) <= BUDDY_WAVE_PLAIN_SHARED, "as Rust counts it");

BUDDY_FN u64 thread_number() { return blockIdx.x * (u64)blockDim.x + threadIdx.x; }

BUDDY_STEP wave_plain(Slab slab, const float* table, Step s) { step_slab<BUDDY_WAVE_PLAIN_PLANES>(slab, table, s); }

// Before windows are used: every brick is zero or raw.
BUDDY_STEP wave_raw(State u, State w, Pool pool, const u8* v, const float* table, Step s) {
    step_packed<BUDDY_WAVE_PLANES, false>(u, w, pool, v, table, s);
}
// Bricks may be windows, and become windows.
BUDDY_STEP wave_window(State u, State w, Pool pool, const u8* v, const float* table, Step s) {
    step_packed<BUDDY_WAVE_PLANES, true>(u, w, pool, v, table, s);
}

BUDDY_KERNEL light_pages(State u, State w, PoolState* books, const u32* stack, Step s, u32 target) {
    const u64 page = thread_number();
    if (page >= s.n.pages() || w.refs[page * UNITS] != NONE) return;
    const int tile = (int)(page / s.n.nz), z = (int)(page % s.n.nz);
    if (reached<RADIUS>(u, s.n, tile, z) || has_source(s, tile, z)) light_page(w, books, stack, target, page);
}
BUDDY_KERNEL trim_pages(State f, Pool pool, PoolState* books, u32* stack, u64 pages, u32 most) {
    u64 page = thread_number() / 32;
    if (page < pages) trim_page(f, pool, books, stack, page, most, threadIdx.x % 32);
}
BUDDY_KERNEL raise_pages(State f, Pool pool, PoolState* books, const u32* stack, u64 pages, u32 units, int keep) {
    u64 page = thread_number() / 32;
    if (page < pages) raise_page(f, pool, books, stack, page, units, keep, threadIdx.x % 32);
}
BUDDY_KERNEL count_kinds(State f, u64 pages, u64* counts) { count_page(f, thread_number(), pages, counts); }

BUDDY_FN u64 offset_in_plane(const Step& s, u32 t) {
    const int tile = (int)blockIdx.x, tiles_x = s.n.tiles_x();
    return (u64)(tile / tiles_x * TY + cell_y(t)) * s.n.nx + tile % tiles_x * TX + cell_x(t);
}
// Unpacks planes from `first` on to plain rows.
BUDDY_KERNEL unpack_field(State f, Pool pool, Step s, int first, float* to) {
    __shared__ Stage stage;
    __shared__ UnitList list;
    const Pair v = load_page(f, pool, (u64)blockIdx.x * s.n.nz + first + blockIdx.y, stage, list);
    float* at = to + (u64)blockIdx.y * s.n.ny * s.n.nx + offset_in_plane(s, threadIdx.x);
    BUDDY_UNROLL for (int j = 0; j < 2; j++) *(float4*)(at + (u64)j * s.n.nx) = v.row[j];
}
// Packs a page from plain rows; units are taken in the order of pages, from `first` on.
template <bool WINDOW>
BUDDY_FN void pack_page(const float* from, const State& f, const Pool& pool, const Step& s, u32 first) {
    __shared__ Stage stage;
    __shared__ UnitList list;
    const u64 page = (u64)blockIdx.x * s.n.nz + blockIdx.y;
    const u32 t = threadIdx.x, unit = first + UNITS * (u32)page + t;
    if (t < UNITS) f.refs[page * UNITS + t] = unit, list.at[t] = (u64)unit_at(pool, unit);
    if (t == 0) f.active[page] = 1;
    __syncthreads();
    const float* at = from + (u64)blockIdx.y * s.n.ny * s.n.nx + offset_in_plane(s, t);
    store_page<WINDOW>(f, page, {{*(const float4*)at, *(const float4*)(at + s.n.nx)}}, stage, list);
}
BUDDY_KERNEL pack_field_raw(const float* from, State f, Pool pool, Step s, u32 first) { pack_page<false>(from, f, pool, s, first); }
BUDDY_KERNEL pack_field_window(const float* from, State f, Pool pool, Step s, u32 first) { pack_page<true>(from, f, pool, s, first); }
// Cells of a picture: every `by`th along x and z, at one y.
struct Slice {
    int y, by, width, height;
};
BUDDY_KERNEL slice_field(State f, Pool pool, Step s, Slice slice, float* to) {
    int at = (int)thread_number();
    if (at >= slice.width * slice.height) return;
    const int x = at % slice.width * slice.by, z = at / slice.width * slice.by;
    to[at] = read_cell(f, pool, (u64)(slice.y / TY * s.n.tiles_x() + x / TX) * s.n.nz + z, x, slice.y);
}

// The model: planes from `first` on as plain numbers, and as indices in page order.
BUDDY_KERNEL fill_velocity_plain(float* to, const float* table, Grid n, int first, int planes) {
    u64 at = thread_number();
    if (at >= (u64)n.nx * n.ny * planes) return;
    to[at] = table[velocity_index((int)(at % n.nx), (int)(at / n.nx % n.ny), first + (int)(at / n.nx / n.ny), n)];
}
BUDDY_KERNEL fill_velocity_pages(u32* to, Step s) {
    u64 at = thread_number(), page = at / (PAGE_CELLS / 4);  // four cells
    if (page >= s.n.pages()) return;
    u32 t = (u32)(at % (PAGE_CELLS / 4)) / 2, word = 0;
    int tile = (int)(page / s.n.nz), z = (int)(page % s.n.nz);
    int x = tile % s.n.tiles_x() * TX + cell_x(t), y = tile / s.n.tiles_x() * TY + cell_y(t) + (int)(at % 2);
    BUDDY_UNROLL for (int i = 0; i < 4; i++) word |= velocity_index(x + i, y, z, s.n) << 8 * i;
    to[at] = word;
}
// Waves everywhere, with full mantissas and amplitudes over several powers of ten.
BUDDY_KERNEL fill_waves(float* to, Grid n, float phase, int first, int planes) {
    u64 at = thread_number();
    if (at >= (u64)n.nx * n.ny * planes) return;
    float x = (float)(at % n.nx), y = (float)(at / n.nx % n.ny), z = (float)(first + (int)(at / n.nx / n.ny));
    float v = sinf(0.31f * x + 0.11f * y + phase) * cosf(0.23f * z - 0.17f * y) + 0.3f * sinf(0.4f * z + 0.05f * x - phase);
    to[at] = flush(1e-3f * v * expf(-0.004f * z));
}
