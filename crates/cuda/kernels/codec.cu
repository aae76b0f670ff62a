// The kernels of one codec, whose struct BUDDY_CODEC names, and `buddy_stats`, which serves all
// codecs. A warp takes 32 entries, one per thread; warps are independent.
#include "buddy_device.cuh"

using namespace buddy;
typedef BUDDY_CODEC Codec;

constexpr u32 WARPS = BUDDY_WARPS;
// The minimum of resident CTAs per SM bounds the registers per thread.
#define BUDDY_KERNEL extern "C" __global__ void __launch_bounds__(BUDDY_WARPS* WARP, BUDDY_BLOCKS)

// A warp's aligned tile of 32 consecutive entries, and which of them are requested.
struct Range {
    u64 start;   // the tile's first entry
    u32 active;  // one bit per entry
    long long skew;  // entries from the first requested one to the tile, negative where the tile begins earlier

    BUDDY_FN Range(u64 first, u64 count) {
        u64 index = (u64)blockIdx.x * WARPS + threadIdx.x / WARP;
        start = (first / WARP + index) * WARP;
        u64 end = first + count;
        active = start >= end ? 0 : ALL;
        if (start < first) active &= ALL << (u32)(first - start);
        if (active != 0 && end - start < WARP) active &= ALL >> (WARP - (u32)(end - start));
        skew = (long long)start - (long long)first;
    }
};

BUDDY_FN Tile this_tile() {
    __shared__ __align__(128) uint4 chunks[WARPS * WARP * CHUNKS];
    return {chunks + threadIdx.x / WARP * (WARP * CHUNKS), threadIdx.x % WARP};
}

BUDDY_KERNEL buddy_write(BuddyView view, const uint4* from, u64 first, u64 count) {
    settle<Codec>(view);
    Tile tile = this_tile();
    Range range(first, count);
    if (range.active == 0) return;
    fetch_plain(tile, from + range.skew * (long long)CHUNKS, range.active);
    cp_async_wait_warp();
    warp::store_entries<Codec>(view, tile, range.start, range.active);
}

BUDDY_KERNEL buddy_read(BuddyView view, uint4* to, u64 first, u64 count) {
    settle<Codec>(view);
    Tile tile = this_tile();
    Range range(first, count);
    if (range.active == 0) return;
    warp::load_entries<Codec>(view, tile, range.start, range.active);
    put_plain(tile, to + range.skew * (long long)CHUNKS, range.active);
}

// This warp's part of an index list, and a mask of the rows in the list.
struct Listed {
    u64 start;
    u32 rows;

    BUDDY_FN explicit Listed(u64 count) {
        start = ((u64)blockIdx.x * WARPS + threadIdx.x / WARP) * WARP;
        rows = start >= count ? 0 : count - start < WARP ? ALL >> (WARP - (u32)(count - start)) : ALL;
    }
};

// Gathers single entries: entry list[i] to the i-th of `to`. Entries out of range read as zeros.
BUDDY_KERNEL buddy_gather(BuddyView view, uint4* to, const u32* list, u64 count) {
    settle<Codec>(view);
    Tile tile = this_tile();
    Listed listed(count);
    if (listed.rows == 0) return;
    bool mine = listed.rows >> tile.lane & 1;
    warp::load_entry<Codec>(view, tile, mine ? list[listed.start + tile.lane] : 0, mine);
    put_plain(tile, to + listed.start * CHUNKS, listed.rows);
}

// Scatters single entries: the i-th of `from` to entry list[i]. No entry may be listed twice. One past
// the end is reported and not written.
BUDDY_KERNEL buddy_scatter(BuddyView view, const uint4* from, const u32* list, u64 count) {
    settle<Codec>(view);
    Tile tile = this_tile();
    Listed listed(count);
    if (listed.rows == 0) return;
    bool mine = listed.rows >> tile.lane & 1;
    u64 entry = mine ? list[listed.start + tile.lane] : 0;
    fetch_plain(tile, from + listed.start * CHUNKS, listed.rows);
    cp_async_wait_warp();
    warp::store_entry<Codec>(view, tile, entry, mine);
}

// Counts a buffer's nibbles by value, reserved ones at index NIBBLES, and overflowing entries after
// them.
extern "C" __global__ void buddy_stats(Memory memory, u64* counts) {
    u32 found[NIBBLES + 2] = {};
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at * 8 < memory.entries; at += (u64)gridDim.x * blockDim.x) {
        u32 word = ((const u32*)memory.nibbles)[at], room = place_of(memory, at * 8).device_bytes;
        u32 valid = memory.entries - at * 8 < 8 ? (u32)(memory.entries - at * 8) : 8;
        BUDDY_UNROLL
        for (u32 i = 0; i < 8; i++) {
            u32 nibble = i < valid ? word >> 4 * i & 15 : 16;
            BUDDY_UNROLL
            for (u32 n = 0; n < NIBBLES; n++) found[n] += nibble == n;
            found[NIBBLES] += nibble >= NIBBLES && nibble < 16;
            found[NIBBLES + 1] += nibble < NIBBLES && class_bytes(class_of(nibble)) > room;
        }
    }
    BUDDY_UNROLL
    for (u32 n = 0; n < NIBBLES + 2; n++) {
        u32 sum = __reduce_add_sync(ALL, found[n]);
        if (threadIdx.x % WARP == 0 && sum != 0) atomicAdd(counts + n, (u64)sum);
    }
}
