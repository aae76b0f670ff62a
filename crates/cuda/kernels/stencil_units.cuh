// Units of pages: taken when a page is reached, moved when it is retargeted.
#pragma once
#include "stencil_pages.cuh"

namespace buddy {
namespace stencil {

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

// Gives a page its units. The page counts as failed if there are not enough, and stays dark.
BUDDY_FN void light_page(const State& to, PoolState* b, const u32* stack, u32 target, u64 page) {
    Taken taken(b, stack, target);
    if (taken.failed) {
        atomicAdd(&b->failed, 1u);
        return;
    }
    BUDDY_UNROLL for (u32 p = 0; p < UNITS; p++) to.refs[page * UNITS + p] = taken.refs[p];
    atomicAdd(&b->lit, 1u), atomicAdd(&b->device_used, taken.on_device), atomicAdd(&b->host_used, UNITS - taken.on_device);
}

// Retargets a page from 1x to 8/7: its last unit moves to host memory if at most `most` bricks use
// it. One warp per page.
BUDDY_FN void trim_page(const State& f, const Pool& pool, PoolState* b, u32* stack, u64 page, u32 most, u32 lane) {
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
BUDDY_FN void raise_page(const State& f, const Pool& pool, PoolState* b, const u32* stack, u64 page, u32 units, int keep, u32 lane) {
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
BUDDY_FN void count_page(const State& f, u64 page, u64 pages, u64* counts) {
    u32 n[4] = {0, 0, 0, 0};
    const bool lit = page < pages && f.refs[page * UNITS] != NONE;
    if (page < pages && !lit) n[0] = BRICKS;
    if (lit) {
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

}  // namespace stencil
}  // namespace buddy
