// Compressed memory in your own kernels. docs/reference/device-header.md is the guide; in short:
//
//   #include "buddy_device.cuh"
//   __global__ void scale(buddy::BuddyView view) {
//       buddy::u64 entry = blockIdx.x * (buddy::u64)blockDim.x + threadIdx.x;
//       if (entry >= view.memory.entries) return;
//       buddy::u32 words[32];  // 128 bytes: 16 doubles, 64 bf16 values, ...
//       buddy::thread::load_entry<buddy::Planes64>(view, entry, words);
//       ...
//       buddy::thread::store_entry<buddy::Planes64>(view, entry, words);
//   }
//
// Reads and writes match the runtime bit for bit: `BuddyBuffer::read` reads what a kernel stores.
// The functions of a thread (entry.cuh) work anywhere. Those of a warp are faster: its 32 lanes
// move 32 entries together, 16 bytes per lane in memory order, through a tile of 4 KiB of shared
// memory. All 32 lanes must call them.
//
// The codec is one of Bpc, Planes64, Zeros<16>, Zeros<32>, Bf16, Fp16, Fp32, Table32, Table64,
// Scaled64, Prefix32, Prefix64, Rank32, Rank64, Near64, BpcBest, and must be the buffer's. The
// constants of the address map are macros of the library: NVRTC programs receive them as defines,
// and `buddy gpu headers DIR` writes them to buddy_constants.cuh for nvcc.
#pragma once
#ifndef BUDDY_ENTRY_BYTES
#include "buddy_constants.cuh"
#endif
#include "bf16.cuh"
#include "bpc.cuh"
#include "bpc_best.cuh"
#include "entry.cuh"
#include "near64.cuh"
#include "planes.cuh"
#include "prefix.cuh"
#include "rank.cuh"
#include "scaled.cuh"
#include "table.cuh"
#if defined(__CUDACC__) || defined(BUDDY_EMULATED)
#include "tile.cuh"

namespace buddy {

// Fetches a bf16 window that was trained into device memory; call it before any other use of the
// view. Does nothing for other codecs.
template <class Codec>
BUDDY_FN void settle(BuddyView&) {}
template <>
BUDDY_FN void settle<Bf16>(BuddyView& view) {
    if (view.params.learned != nullptr) view.params.window = *view.params.learned & 255;
}

namespace warp {

// Consecutive entries in three steps that can be interleaved with other work: nibbles, fetch,
// decode. `first` is a multiple of 32; lane i has entry first + i. `active` has a bit per requested
// entry; other rows are zeros after a load and are not stored.

BUDDY_FN u32 load_nibbles(const BuddyView& view, u64 first, u32 active = ALL) {
    u32 lane = threadIdx.x % WARP;
    return load_nibble(view.memory, first + lane, active >> lane & 1);
}

// The same ahead of time: starts a copy of the nibbles into 16 bytes of shared memory. Complete
// after `cp_async_wait_warp`.
BUDDY_FN void fetch_nibbles(const BuddyView& view, uint4* shared, u64 first, u32 lane) {
    if (lane == 0) cp_async<16>(shared, view.memory.nibbles + first / 2);
}
BUDDY_FN u32 fetched_nibble(const uint4* shared, u32 lane) { return ((const u8*)shared)[lane / 2] >> (lane % 2 * 4) & 15; }

// Starts the copy of the stored bytes into the tile. Complete after `cp_async_wait_warp`.
BUDDY_FN void fetch_entries(const BuddyView& view, const Tile& tile, u64 first, u32 nibble) {
    Place place = place_of(view.memory, first);
    along_page(tile, place, chunks_of(nibble), Fetch());
    if (is_small(nibble, place)) cp_async<8>(tile.at(tile.lane, 0), place.device + tile.lane * SMALL);
}

// Decodes this lane's row into `words`, after `cp_async_wait_warp`.
template <class Codec>
BUDDY_FN u32 decode_entry(const BuddyView& view, const Tile& tile, u64 entry, u32 nibble, u32 (&words)[WORDS]) {
    Row row(tile);
    if (nibble == RAW) {
        row.load_all(words);
        return OK;
    }
    u32 status = decode_words<Codec>(row, nibble, words, view.params);
    if (status != OK) report(view.memory, entry, status);
    return status;
}

// The same in place. Other lanes see the result after a __syncwarp.
template <class Codec>
BUDDY_FN u32 decode_entry(const BuddyView& view, const Tile& tile, u64 entry, u32 nibble) {
    if (nibble == RAW) return OK;
    u32 words[WORDS], status = decode_entry<Codec>(view, tile, entry, nibble, words);
    Row(tile).store_all(words);
    return status;
}

// The three steps in one call.
template <class Codec>
BUDDY_FN u32 load_entries(const BuddyView& view, const Tile& tile, u64 first, u32 active = ALL) {
    u32 nibble = load_nibbles(view, first, active);
    fetch_entries(view, tile, first, nibble);
    cp_async_wait_warp();
    return decode_entry<Codec>(view, tile, first + tile.lane, nibble);
}

// Writes encoded rows with their nibbles.
BUDDY_FN void put_entries(const BuddyView& view, const Tile& tile, u64 first, u32 nibble, u32 active) {
    const Memory& memory = view.memory;
    bool mine = active >> tile.lane & 1;
    if (!mine) nibble = ZERO;
    __syncwarp();
    Place place = place_of(memory, first);
    along_page(tile, place, chunks_to_put(nibble, place.device_bytes), Put());
    if (is_small(nibble, place)) {
        Row row(tile);
        *(uint2*)(place.device + tile.lane * SMALL) = make_uint2(row.load(0), row.load(1));
    }
    if (active == ALL) {
        u32 pair = nibble | __shfl_down_sync(ALL, nibble, 1) << 4;
        if (tile.lane % 2 == 0) memory.nibbles[(first + tile.lane) / 2] = (u8)pair;
    } else if (mine) {
        store_nibble(memory, first + tile.lane, nibble);
    }
}

// Compresses and writes the rows, each by its own lane. Leaves the tile undefined.
template <class Codec>
BUDDY_FN void store_entries(const BuddyView& view, const Tile& tile, u64 first, u32 active = ALL) {
    Row row(tile);
    u32 words[WORDS];
    row.load_all(words);
    u32 nibble = encode_words<Codec>(words, row, view.params);
    put_entries(view, tile, first, nibble, active);
}

// The same for entries in `words`, one per lane; the tile is scratch memory.
template <class Codec>
BUDDY_FN void store_entries(const BuddyView& view, const Tile& tile, u64 first, u32 (&words)[WORDS], u32 active = ALL) {
    Row row(tile);
    u32 nibble = encode_words<Codec>(words, row, view.params);
    if (nibble == RAW) row.store_all(words);
    put_entries(view, tile, first, nibble, active);
}

// Any 32 entries, one per lane. A lane without an entry passes `wanted` = false; its row is zeros
// after a load.

template <class Codec>
BUDDY_FN u32 load_entry(const BuddyView& view, const Tile& tile, u64 entry, bool wanted = true) {
    const Memory& memory = view.memory;
    bool exists = entry < memory.entries;
    if (wanted && !exists) report(memory, entry, RANGE);
    bool mine = wanted && exists;
    if (!mine) entry = 0;
    u32 nibble = load_nibble(memory, entry, mine);
    Place place = place_of(memory, entry);
    auto there = [&](u32 row) { return place_of(memory, __shfl_sync(ALL, entry, row)); };
    bool small = is_small(nibble, place);
    along_rows(tile, ALL, 0, small ? 0 : chunks_of(nibble), there, Fetch());
    if (small) cp_async<8>(tile.at(tile.lane, 0), place.device);
    cp_async_wait_warp();
    u32 status = decode_entry<Codec>(view, tile, entry, nibble);
    return wanted && !exists ? (u32)RANGE : status;
}

// No two lanes may name the same entry.
template <class Codec>
BUDDY_FN void store_entry(const BuddyView& view, const Tile& tile, u64 entry, bool wanted = true) {
    const Memory& memory = view.memory;
    bool exists = entry < memory.entries;
    if (wanted && !exists) report(memory, entry, RANGE);
    bool mine = wanted && exists;
    if (!mine) entry = 0;
    Row row(tile);
    u32 words[WORDS];
    row.load_all(words);
    u32 nibble = encode_words<Codec>(words, row, view.params);
    if (!mine) nibble = ZERO;
    __syncwarp();
    Place place = place_of(memory, entry);
    auto there = [&](u32 row) { return place_of(memory, __shfl_sync(ALL, entry, row)); };
    bool small = is_small(nibble, place);
    along_rows(tile, ALL, 0, small ? 0 : chunks_to_put(nibble, place.device_bytes), there, Put());
    if (small) *(uint2*)place.device = make_uint2(row.load(0), row.load(1));
    if (mine) store_nibble(memory, entry, nibble);
}

}  // namespace warp
}  // namespace buddy
#endif
