// Page management: units for pages that the wave reaches, retargeting, and readout.
#pragma once
#include "wave_packed.cuh"

namespace buddy {

// State of the unit pool. Units below `device_end` and `host_end` have been handed out in order;
// freed ones are on a stack.
struct PoolState {
    u32 device_next, device_end, host_next, host_end;
    int freed;  // on the stack
    u32 lit;    // pages that have units
    u32 device_used, host_used;
    u32 failed;  // pages without memory
    u32 moved;  // units moved by retargeting
};

// Returns a device unit: a new one, or a freed one.
BUDDY_FN u32 take_device(PoolState* b, const u32* stack) {
    if (b->device_next < b->device_end) {
        u32 at = atomicAdd(&b->device_next, 1u);
        if (at < b->device_end) return at;
    }
    if (b->freed > 0) {
        int at = atomicAdd(&b->freed, -1) - 1;
        if (at >= 0) return stack[at];
        atomicAdd(&b->freed, 1);
    }
    return NONE;
}
BUDDY_FN u32 take_host(PoolState* b) {
    if (b->host_next >= b->host_end) return NONE;
    u32 at = atomicAdd(&b->host_next, 1u);
    return at < b->host_end ? at | HOST : NONE;
}

// A page's units: `target` of them on the device if available, the others in host memory.
struct Taken {
    u32 refs[UNITS], on_device;
    bool failed;
    BUDDY_FN Taken(PoolState* b, const u32* stack, u32 target) : on_device(0), failed(false) {
        bool whole = target == UNITS && b->device_next + 2 * UNITS < b->device_end;
        u32 first = whole ? atomicAdd(&b->device_next, (u32)UNITS) : NONE;
        whole = whole && first + UNITS <= b->device_end;
        BUDDY_UNROLL for (u32 p = 0; p < UNITS; p++) {
            refs[p] = whole ? first + p : p < target ? take_device(b, stack) : NONE;
            on_device += refs[p] != NONE;
            if (refs[p] == NONE) refs[p] = take_host(b);
            failed |= refs[p] == NONE;
        }
    }
};

// Allocates units for pages of w that this step may write.
BUDDY_FN void light_page(const Field& u, const Field& w, PoolState* b, const u32* stack, const Step& s, u32 target, u64 page) {
    if (page >= (u64)s.tiles_x * s.tiles_y * s.n.nz || w.refs[page * UNITS] != NONE) return;
    if (!reached(u, s, (int)(page / s.n.nz), (int)(page % s.n.nz))) return;
    Taken taken(b, stack, target);
    if (taken.failed) {
        atomicAdd(&b->failed, 1u);
        return;
    }
    BUDDY_UNROLL for (u32 p = 0; p < UNITS; p++) w.refs[page * UNITS + p] = taken.refs[p];
    atomicAdd(&b->lit, 1u), atomicAdd(&b->device_used, taken.on_device), atomicAdd(&b->host_used, UNITS - taken.on_device);
}

// Retargets a page from 1x to 8/7: its last unit moves to host memory if at most `most` bricks use
// it. One warp per page.
BUDDY_FN void trim_page(const Field& f, const Pool& pool, PoolState* b, u32* stack, u64 page, u32 most, u32 lane) {
    u32* ref = f.refs + page * UNITS + UNITS - 1;
    const u32 from = *ref;
    if (from == NONE || (from & HOST)) return;
    const u8* kinds = f.kinds + page * BRICKS;
    const bool low = kinds[lane] == window32::RAW, high = kinds[32 + lane] == window32::RAW;
    if (__popc(__ballot_sync(~0u, low)) + __popc(__ballot_sync(~0u, high)) > most) return;
    u32 to = NONE;
    if (lane == 0) to = take_host(b);
    to = __shfl_sync(~0u, to, 0);
    if (to == NONE) return;
    const uint4* old = (const uint4*)unit_at(pool, from);
    uint4* fresh = (uint4*)unit_at(pool, to);
    if (low) fresh[lane] = old[lane];
    if (high) fresh[32 + lane] = old[32 + lane];
    __syncwarp();
    if (lane != 0) return;
    *ref = to;
    stack[atomicAdd(&b->freed, 1)] = from;
    atomicAdd(&b->device_used, ~0u), atomicAdd(&b->host_used, 1u), atomicAdd(&b->moved, 1u);
}

// The inverse: the first `units` of a page that are in host memory move to freed device units,
// while more than `keep` of those remain.
BUDDY_FN void raise_page(const Field& f, const Pool& pool, PoolState* b, const u32* stack, u64 page, u32 units, int keep, u32 lane) {
    for (u32 p = 0; p < units; p++) {
        u32* ref = f.refs + page * UNITS + p;
        const u32 from = *ref;
        if (from == NONE || !(from & HOST)) continue;
        u32 to = NONE;
        if (lane == 0 && b->freed > keep) {
            int top = atomicAdd(&b->freed, -1) - 1;
            if (top >= keep) to = stack[top];
            else atomicAdd(&b->freed, 1);
        }
        to = __shfl_sync(~0u, to, 0);
        if (to == NONE) return;
        const uint4* old = (const uint4*)unit_at(pool, from);
        uint4* fresh = (uint4*)unit_at(pool, to);
        fresh[lane] = old[lane], fresh[32 + lane] = old[32 + lane];
        __syncwarp();
        if (lane != 0) continue;
        *ref = to;
        atomicAdd(&b->device_used, 1u), atomicAdd(&b->host_used, ~0u), atomicAdd(&b->moved, 1u);
    }
}

// Adds the numbers of a page's bricks that are zero, windows, raw, and touch host memory to four
// counters; all lanes of a warp take part.
BUDDY_FN void count_page(const Field& f, u64 page, u64 pages, u64* counts) {
    u32 n[4] = {0, 0, 0, 0};
    if (page < pages && f.active[page] == 0) n[0] = BRICKS;
    if (page < pages && f.active[page] != 0) {
        u32 host = 0;
        for (u32 p = 0; p < UNITS; p++) host |= (f.refs[page * UNITS + p] >> 31) << p;
        for (u32 k = 0; k < BRICKS; k++) {
            u32 kind = f.kinds[page * BRICKS + k];
            n[kind == window32::ZERO ? 0 : kind == window32::RAW ? 2 : 1]++;
            n[3] += kind == window32::RAW ? host != 0 : kind != window32::ZERO && (host & 0x7f) != 0;
        }
    }
    BUDDY_UNROLL for (int k = 0; k < 4; k++) {
        for (int m = 16; m > 0; m /= 2) n[k] += __shfl_xor_sync(~0u, n[k], m);
        if (threadIdx.x % 32 == 0) atomicAdd(counts + k, (u64)n[k]);
    }
}

// Addresses of a page's units.
struct alignas(16) UnitList {
    u64 at[UNITS];
};

// Unpacks a page of a field to plain rows at `to`, which begin with plane `first` of the grid. One
// block per page.
BUDDY_FN void unpack_page(const Field& f, const Pool& pool, const Step& s, int tile, int z, int first, float* to) {
    __shared__ Stage stage;
    __shared__ UnitList list;
    u64* units = list.at;
    const u64 page = (u64)tile * s.n.nz + z;
    const u32 t = threadIdx.x, kind = f.kinds[page * BRICKS + brick_of(t)];
    if (t < UNITS) units[t] = (u64)unit_at(pool, f.refs[page * UNITS + t]);
    __syncthreads();
    stage_pair<true>(stage, units, kind, t);
    cp_async_commit(), cp_async_wait<0>(), __syncwarp();
    const Pair v = take_pair<true>(stage, kind, t);
    const u64 x = tile % s.tiles_x * TX + cell_x(t), y = tile / s.tiles_x * TY + cell_y(t);
    BUDDY_UNROLL for (int j = 0; j < 2; j++) *(float4*)(to + ((u64)(z - first) * s.n.ny + y + j) * s.n.nx + x) = v.row[j];
}

// Packs a page of a field from plain rows; its units are those from `first` on.
template <bool WINDOW>
BUDDY_FN void pack_page(const float* from, const Field& f, const Pool& pool, const Step& s, int tile, int z, u32 first) {
    __shared__ Stage stage;
    __shared__ UnitList list;
    u64* units = list.at;
    const u64 page = (u64)tile * s.n.nz + z;
    const u32 t = threadIdx.x;
    if (t < UNITS) {
        f.refs[page * UNITS + t] = first + t;
        units[t] = (u64)unit_at(pool, first + t);
    }
    __syncthreads();
    const float* at = from + ((u64)z * s.n.ny + tile / s.tiles_x * TY + cell_y(t)) * s.n.nx + tile % s.tiles_x * TX + cell_x(t);
    const float4 v[2] = {*(const float4*)at, *(const float4*)(at + s.n.nx)};
    const window32::Quad a[2] = {words(v[0].x, v[0].y, v[0].z, v[0].w), words(v[1].x, v[1].y, v[1].z, v[1].w)};
    const u32 kind = kind_in_warp<WINDOW>(a, t % 32);
    store_pair<WINDOW>(stage, units, kind, t, a);
    if (lane_of(t) == 0) f.kinds[page * BRICKS + brick_of(t)] = (u8)kind;
    if (t == 0) f.active[page] = 1;
}

// Reads one cell, without the rest of its brick.
BUDDY_FN float read_cell(const Field& f, const Pool& pool, const Step& s, int x, int y, int z) {
    const u64 page = (u64)(y / TY * s.tiles_x + x / TX) * s.n.nz + z;
    const u32 brick = (u32)(y % TY / 4 * 8 + x % TX / 8), row = (u32)y % 4, q = row / 2 * 4 + (u32)x % 8 / 4 * 2 + row % 2, i = (u32)x % 4;
    const u32 kind = f.kinds[page * BRICKS + brick];
    if (kind == window32::ZERO) return 0.0f;
    auto at = [&](u32 byte) { return unit_at(pool, f.refs[page * UNITS + byte / 16]) + brick * 16 + byte % 16; };
    if (kind == window32::RAW) return __uint_as_float(*(const u32*)at(16 * q + 4 * i));
    const window32::Packed p = {{*(const u32*)at(12 * q), *(const u32*)at(12 * q + 4), *(const u32*)at(12 * q + 8)}, *(const window32::u16*)at(96 + 2 * q)};
    return __uint_as_float(window32::unpack(p, kind).v[i]);
}

}  // namespace buddy
