// The fields of a stencil at one time, in compressed memory. A page is one plane of a column: 64 x 32
// cells, 64 bricks of 8 x 4, 8 KiB, in eight units of 1 KiB; unit p has bytes 16p to 16p + 15 of every
// brick. A page is dark and has no units, or has eight, each on the device or in host memory. All units
// are equal, so that memory never fragments. Retargeting a page (1x: eight units on the device; 8/7:
// seven) moves one unit; a brick keeps its places as long as its page keeps its target.
//
// Pages lie in the order of tiles, then planes. With several fields, page p of field f is number
// p * FIELDS + f of `refs` and `kinds`.
#pragma once
#include "stencil_cells.cuh"
#include "window32.cuh"

namespace buddy {
namespace stencil {

constexpr int PAGE_CELLS = TX * TY, BRICKS = 64, UNITS = 8;
constexpr u32 UNIT = 1024, NONE = ~0u, HOST = 1u << 31;

struct State {
    u32* refs;  // eight per page: a unit's index, with HOST if in host memory; NONE for a dark page
    u8* kinds;  // 64 per page: a brick's kind in window32.cuh
    u8* active;  // one for the pages of all fields: whether anything was written to them
};
struct Pool {
    u8 *device, *host;
};
BUDDY_FN u8* unit_at(const Pool& pool, u32 ref) { return (ref & HOST ? pool.host : pool.device) + (u64)(ref & ~HOST) * UNIT; }

// A thread's cells in its tile. A warp has a row of eight bricks, four lanes each, eight lanes
// apart, so that consecutive lanes move consecutive bytes. Lane l of a brick's four has quads 2l
// and 2l + 1: two rows of a half.
BUDDY_FN u32 brick_of(u32 t) { return t / 32 * 8 + t % 8; }
BUDDY_FN u32 lane_of(u32 t) { return t / 8 % 4; }
BUDDY_FN int cell_x(u32 t) { return (int)(t % 8 * 8 + (t >> 3 & 1) * 4); }
BUDDY_FN int cell_y(u32 t) { return (int)(t / 32 * 4 + (t >> 4 & 1) * 2); }
// Returns a quad's row and half in its brick.
BUDDY_FN u32 quad_row(u32 q) { return (q >> 2) * 2 + (q & 1); }
BUDDY_FN u32 quad_half(u32 q) { return q >> 1 & 1; }

BUDDY_FN float4 floats(const window32::Quad& a) {
    return make_float4(__uint_as_float(a.v[0]), __uint_as_float(a.v[1]), __uint_as_float(a.v[2]), __uint_as_float(a.v[3]));
}
BUDDY_FN window32::Quad words(const float4& a) {
    return {{__float_as_uint(a.x), __float_as_uint(a.y), __float_as_uint(a.z), __float_as_uint(a.w)}};
}

// Bricks in flight, in the order of units: 16 bytes of each brick consecutively. Copies and both
// kinds of reads are free of bank conflicts, and copies of eight lanes are one request.
struct Stage {
    uint4 chunk[UNITS][BRICKS];
};
// WINDOW: true if bricks may be windows; otherwise nonzero bricks are raw.
template <bool WINDOW>
BUDDY_FN void stage_quad(uint4* to, u64 unit, u32 kind, u32 brick, u32 q) {
    if (kind != window32::ZERO && (!WINDOW || kind == window32::RAW || q < UNITS - 1)) cp_async<16>(to, (const void*)(unit + brick * 16));
}
template <bool WINDOW>
BUDDY_FN void stage_pair(Stage& to, const u64* units, u32 kind, u32 t) {
    const u32 brick = brick_of(t), q = lane_of(t) * 2;
    ulonglong2 both = *(const ulonglong2*)(units + q);
    stage_quad<WINDOW>(&to.chunk[q][brick], both.x, kind, brick, q);
    stage_quad<WINDOW>(&to.chunk[q + 1][brick], both.y, kind, brick, q + 1);
}

// Returns the address of quad q of a packed brick whose chunks are `APART` chunks apart: its words,
// and its codes.
template <int APART>
BUDDY_FN u32& packed_word(uint4* first, u32 word) {
    return *((u32*)(first + word / 4 * APART) + word % 4);
}
template <int APART>
BUDDY_FN window32::u16& packed_codes(uint4* first, u32 q) {
    return ((window32::u16*)(first + 6 * APART))[q];
}

// Reads quad q of a brick whose chunks are `APART` chunks apart, once the warp's copies have
// arrived.
template <bool WINDOW, int APART>
BUDDY_FN float4 take_quad(uint4* first, u32 kind, u32 q) {
    if (kind == window32::ZERO) return zero4();
    if (!WINDOW || kind == window32::RAW) {
        uint4 c = first[q * APART];
        return floats({{c.x, c.y, c.z, c.w}});
    }
    const u32 a = packed_word<APART>(first, 3 * q), b = packed_word<APART>(first, 3 * q + 1), c = packed_word<APART>(first, 3 * q + 2);
    return floats(window32::unpack({{a, b, c}, packed_codes<APART>(first, q)}, kind));
}

// A thread's two packed quads: 24 bytes from 24 l on, and codes. For odd l they begin and end in
// the middle of a chunk.
struct PackedPair {
    u8* at;
    u32 odd, codes_at;
    BUDDY_FN PackedPair(uint4* first, u32 l) : at((u8*)(first + 3 * l / 2 * BRICKS)), odd(l & 1), codes_at((6 * BRICKS - 3 * l / 2 * BRICKS) * 16 + 4 * l) {}
    BUDDY_FN uint2& a() const { return *(uint2*)(at + 8 * odd); }
    BUDDY_FN uint2& b() const { return *(uint2*)(at + 8 + odd * (16 * BRICKS - 8)); }
    BUDDY_FN uint2& c() const { return *(uint2*)(at + 8 * odd + 16 * BRICKS); }
    BUDDY_FN u32& codes() const { return *(u32*)(at + codes_at); }
};
template <bool WINDOW>
BUDDY_FN Pair take_pair(Stage& from, u32 kind, u32 t) {
    uint4* first = &from.chunk[0][brick_of(t)];
    const u32 l = lane_of(t);
    if (kind == window32::ZERO) return zero_pair();
    if (!WINDOW || kind == window32::RAW) {
        uint4 a = first[2 * l * BRICKS], b = first[(2 * l + 1) * BRICKS];
        return {{floats({{a.x, a.y, a.z, a.w}}), floats({{b.x, b.y, b.z, b.w}})}};
    }
    const PackedPair p(first, l);
    const uint2 a = p.a(), b = p.b(), c = p.c();
    const u32 codes = p.codes();
    return {{floats(window32::unpack({{a.x, a.y, b.x}, codes & 0xffff}, kind)),
             floats(window32::unpack({{b.y, c.x, c.y}, codes >> 16}, kind))}};
}

// Writes a pair through `to`, which no lane of the warp reads any more.
template <bool WINDOW>
BUDDY_FN void store_pair(Stage& to, const u64* units, u32 kind, u32 t, const window32::Quad (&a)[2]) {
    const u32 brick = brick_of(t), l = lane_of(t);
    uint4* first = &to.chunk[0][brick];
    uint4 low = make_uint4(a[0].v[0], a[0].v[1], a[0].v[2], a[0].v[3]), high = make_uint4(a[1].v[0], a[1].v[1], a[1].v[2], a[1].v[3]);
    const bool window = WINDOW && window32::is_window(kind);
    if (WINDOW) {
        if (window) {
            window32::Packed p = window32::pack(a[0], kind), q = window32::pack(a[1], kind);
            const PackedPair to_at(first, l);
            to_at.a() = make_uint2(p.w[0], p.w[1]), to_at.b() = make_uint2(p.w[2], q.w[0]), to_at.c() = make_uint2(q.w[1], q.w[2]);
            to_at.codes() = p.codes | q.codes << 16;
        }
        __syncwarp();
        if (window) low = first[2 * l * BRICKS], high = first[(2 * l + 1) * BRICKS];
    }
    if (kind == window32::ZERO) return;
    ulonglong2 both = *(const ulonglong2*)(units + 2 * l);
    *(uint4*)(both.x + brick * 16) = low;
    if (!window || l < 3) *(uint4*)(both.y + brick * 16) = high;
}

// Returns the kind of a warp's eight bricks; every lane has two quads of one.
template <bool WINDOW>
BUDDY_FN u32 kind_in_warp(const window32::Quad (&a)[2], u32 lane) {
    u32 bits = 0;
    BUDDY_UNROLL for (int i = 0; i < 4; i++) bits |= a[0].v[i] | a[1].v[i];
    const u32 any = __ballot_sync(~0u, bits != 0) >> lane % 8 & 0x01010101u;
    if (!WINDOW) return any ? window32::RAW : window32::ZERO;
    u32 extent = window32::larger_halves(window32::extent(a[0]), window32::extent(a[1]));
    BUDDY_UNROLL for (int m = 8; m < 32; m *= 2) extent = window32::larger_halves(extent, __shfl_xor_sync(~0u, extent, m));
    return window32::kind_of(extent, any != 0);
}

// Returns true if a page or one that it depends on is active: it may become nonzero in this step.
template <int R>
BUDDY_FN bool reached(const State& from, const Grid& n, int tile, int z) {
    const int tiles_x = n.tiles_x(), tx = tile % tiles_x, ty = tile / tiles_x;
    const u8* a = from.active + (u64)tile * n.nz + z;
    u32 any = 0;
    for (int k = -R; k <= R; k++)
        if (z + k >= 0 && z + k < n.nz) any |= a[k];
    const i64 x = n.nz, y = (i64)n.nz * tiles_x;
    if (tx > 0) any |= a[-x];
    if (tx + 1 < tiles_x) any |= a[x];
    if (ty > 0) any |= a[-y];
    if (ty + 1 < n.tiles_y()) any |= a[y];
    return any != 0;
}

// Addresses of a page's units; 0 for a dark page.
struct alignas(16) UnitList {
    u64 at[UNITS];
};

// Returns a thread's cells of page `page`, which a block reads through `stage` and `list`.
BUDDY_FN Pair load_page(const State& from, const Pool& pool, u64 page, Stage& stage, UnitList& list) {
    const u32 t = threadIdx.x, kind = from.kinds[page * BRICKS + brick_of(t)];
    if (t < UNITS) list.at[t] = (u64)unit_at(pool, from.refs[page * UNITS + t]);
    __syncthreads();
    stage_pair<true>(stage, list.at, kind, t);
    cp_async_commit(), cp_async_wait<0>(), __syncwarp();
    return take_pair<true>(stage, kind, t);
}
// Stores a page whose units it has in `list`.
template <bool WINDOW>
BUDDY_FN void store_page(const State& to, u64 page, const Pair& cells, Stage& stage, const UnitList& list) {
    const u32 t = threadIdx.x;
    const window32::Quad a[2] = {words(cells.row[0]), words(cells.row[1])};
    const u32 kind = kind_in_warp<WINDOW>(a, t % 32);
    store_pair<WINDOW>(stage, list.at, kind, t, a);
    if (lane_of(t) == 0) to.kinds[page * BRICKS + brick_of(t)] = (u8)kind;
}

// Reads one cell, without the rest of its brick.
BUDDY_FN float read_cell(const State& f, const Pool& pool, u64 page, int x, int y) {
    const u32 brick = (u32)(y % TY / 4 * 8 + x % TX / 8), row = (u32)y % 4, q = row / 2 * 4 + (u32)x % 8 / 4 * 2 + row % 2, i = (u32)x % 4;
    const u32 kind = f.kinds[page * BRICKS + brick];
    if (kind == window32::ZERO) return 0.0f;
    auto at = [&](u32 byte) { return unit_at(pool, f.refs[page * UNITS + byte / 16]) + brick * 16 + byte % 16; };
    if (kind == window32::RAW) return __uint_as_float(*(const u32*)at(16 * q + 4 * i));
    const window32::Packed p = {{*(const u32*)at(12 * q), *(const u32*)at(12 * q + 4), *(const u32*)at(12 * q + 8)}, *(const window32::u16*)at(96 + 2 * q)};
    return __uint_as_float(window32::unpack(p, kind).v[i]);
}

}  // namespace stencil
}  // namespace buddy
