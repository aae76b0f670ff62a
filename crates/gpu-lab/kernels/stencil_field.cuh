// A field of doubles in compressed memory, accessed by the stencil four cells per thread at a time:
// a quad. Quads are numbered through the whole field, 128 per row; a quad's 16 bytes of device
// memory are at 16 times its index in every layout, so that a fetch needs no metadata.
#pragma once
#include "entry.cuh"
#include "near64.cuh"
#include "shared.cuh"

namespace buddy {

constexpr u32 QUADS = 128;

// Four cells, as bits.
struct Cells {
    u64 bits[4];

    BUDDY_FN double at(u32 i) const { return __longlong_as_double((long long)bits[i]); }
    BUDDY_FN void set(u32 i, double value) { bits[i] = (u64)__double_as_longlong(value); }
};

BUDDY_FN Cells cells_of(const uint4& a, const uint4& b) {
    return {{(u64)a.y << 32 | a.x, (u64)a.w << 32 | a.z, (u64)b.y << 32 | b.x, (u64)b.w << 32 | b.z}};
}

// A near64 buffer with target 2x on all pages. All 32 lanes call the functions that take and put.
struct Field {
    BuddyView view;

    // Returns the nibbles of the warp's eight entries.
    BUDDY_FN u32 kinds(u32 quad) const { return ((const u32*)view.memory.nibbles)[quad / 32]; }
    BUDDY_FN void fetch(uint4* slot, u32 quad) const { cp_async<16>(slot, view.memory.device + quad * 16ull); }

    BUDDY_FN Cells take(const uint4& slot, u32 quad, u32 kinds) const {
        uint4 a = slot;
        u32 q = quad % 4;
        // Exchanges the base's pieces among the four lanes of the entry.
        u32 half = permute_bytes(a.w, __shfl_xor_sync(~0u, a.w, 1), q % 2 ? 0x3276 : 0x7632), rest = __shfl_xor_sync(~0u, half, 2);
        u64 base = q < 2 ? (u64)rest << 32 | half : (u64)half << 32 | rest;
        Cells cells;
        Near64::unpack({{a.x, a.y, a.z, a.w}}, base, cells.bits);
        if (kinds != Near64::ALL_NEAR) take_others(quad, kinds, cells);
        return cells;
    }

    // Fills in entries that are zeros or raw among the warp's eight.
    BUDDY_FN void take_others(u32 quad, u32 kinds, Cells& cells) const {
        u32 kind = kinds >> quad / 4 % 8 * 4 & 15;
        if (kind == S2) return;
        cells = {{0, 0, 0, 0}};
        const uint4* at = raw_at(quad);
        if (kind == RAW) cells = cells_of(at[0], at[1]);
        else if (kind != ZERO) report(view.memory, quad / 4, NIBBLE);
    }

    // Quarters 0 and 1 of a raw entry are on the device, 2 and 3 in buddy memory.
    BUDDY_FN uint4* raw_at(u32 quad) const {
        u8* part = quad % 4 < 2 ? view.memory.device : view.memory.buddy;
        return (uint4*)(part + quad / 4 * 64ull + quad % 2 * 32);
    }

    BUDDY_FN void put(u32 quad, const Cells& cells) const {
        // Value 8 is the first of the third lane.
        u32 low = __shfl_sync(~0u, (u32)cells.bits[0], 2, 4), high = __shfl_sync(~0u, (u32)(cells.bits[0] >> 32), 2, 4), d[4];
        u64 base = Near64::base_of((u64)high << 32 | low);
        u32 over = Near64::differences(cells.bits, base, d);
        Quad chunk = Near64::pack(d, base, quad % 4);
        u32 kinds = Near64::ALL_NEAR;
        // An entry can be all zeros only if value 8 is zero.
        if (__any_sync(~0u, over != 0 || (low | high) == 0)) kinds = kinds_of(cells, over);
        u32 kind = kinds >> quad / 4 % 8 * 4 & 15;
        if (kind == RAW) put_raw(quad, cells);
        else *(Quad*)(view.memory.device + quad * 16ull) = chunk;
        if (quad % 32 == 0) ((u32*)view.memory.nibbles)[quad / 32] = kinds;
    }

    // Returns the nibbles of the warp's eight entries; `over` is set in a quarter whose differences
    // do not fit.
    static BUDDY_FN u32 kinds_of(const Cells& cells, u32 over) {
        u64 any = cells.bits[0] | cells.bits[1] | cells.bits[2] | cells.bits[3];
        u32 far = __ballot_sync(~0u, over != 0), full = __ballot_sync(~0u, any != 0), kinds = 0;
        BUDDY_UNROLL
        for (u32 e = 0; e < 8; e++) {
            u32 kind = (full >> 4 * e & 15) == 0 ? ZERO : (far >> 4 * e & 15) != 0 ? RAW : S2;
            kinds |= kind << 4 * e;
        }
        return kinds;
    }

    BUDDY_FN void put_raw(u32 quad, const Cells& cells) const {
        const u64(&v)[4] = cells.bits;
        uint4* at = raw_at(quad);
        at[0] = make_uint4((u32)v[0], (u32)(v[0] >> 32), (u32)v[1], (u32)(v[1] >> 32));
        at[1] = make_uint4((u32)v[2], (u32)(v[2] >> 32), (u32)v[3], (u32)(v[3] >> 32));
    }
};

}  // namespace buddy
