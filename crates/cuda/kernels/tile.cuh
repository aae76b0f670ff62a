// A warp's tile: 32 entries in shared memory, eight chunks per row. Global accesses are 16 bytes
// wide and run along rows; then each thread works on its own row. Chunks are swizzled by row, so
// that neither access pattern has bank conflicts.
#pragma once
#include "map.cuh"
#include "shared.cuh"
#include "stream.cuh"

namespace buddy {

constexpr u32 WARP = 32;
constexpr u32 ALL = 0xffffffffu;

BUDDY_FN u32 swizzle(u32 row) { return row * 5 % CHUNKS; }

struct Tile {
    uint4* chunks;
    u32 lane;

    BUDDY_FN uint4* at(u32 row, u32 chunk) const { return chunks + row * CHUNKS + (chunk ^ swizzle(row)); }
};

#ifdef __CUDACC__

// One entry's row as words, used by its thread. Rows start at multiples of 128 bytes, so that the
// swizzle is an XOR of the address.
struct Row {
    u32 start;  // shared address of chunk 0

    BUDDY_FN explicit Row(const Tile& tile) : start(shared_address(tile.at(tile.lane, 0))) {}

    BUDDY_FN u32 load(u32 k) const {
        u32 word;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(start ^ k * 4) : "memory");
        return word;
    }
    BUDDY_FN void store(u32 k, u32 word) {
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(start ^ k * 4), "r"(word) : "memory");
    }
    BUDDY_FN u32 load_if(u32 condition, u32 k, u32 otherwise) const {
        asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\n@p ld.shared.u32 %0, [%1];\n}"
                     : "+r"(otherwise)
                     : "r"(start ^ k * 4), "r"(condition)
                     : "memory");
        return otherwise;
    }
    BUDDY_FN void store_if(u32 condition, u32 k, u32 word) {
        asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\n@p st.shared.u32 [%0], %1;\n}" ::"r"(start ^ k * 4), "r"(word),
                     "r"(condition)
                     : "memory");
    }
    // Loads a chunk of this row, or of the row `AWAY` bytes away.
    template <int AWAY = 0>
    BUDDY_FN uint4 load_chunk(u32 c) const {
        uint4 v;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4+%5];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(start ^ c * CHUNK), "n"(AWAY)
                     : "memory");
        return v;
    }
    BUDDY_FN void store_chunk(u32 c, u32 x, u32 y, u32 z, u32 w) {
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(start ^ c * CHUNK), "r"(x), "r"(y), "r"(z), "r"(w)
                     : "memory");
    }

    BUDDY_FN Quad load_quad(u32 c) const {
        uint4 v = load_chunk(c);
        return {{v.x, v.y, v.z, v.w}};
    }
    BUDDY_FN void store_quad(u32 c, const Quad& q) { store_chunk(c, q.words[0], q.words[1], q.words[2], q.words[3]); }

    // Clears the chunks that a stream may reach, from `first` on.
    BUDDY_FN void clear(u32 first = 0) {
        BUDDY_UNROLL
        for (u32 c = first; c < STREAM_WORDS / 4; c++) store_chunk(c, 0, 0, 0, 0);
    }

    BUDDY_FN void load_all(u32 (&out)[WORDS]) const {
        BUDDY_UNROLL
        for (u32 c = 0; c < CHUNKS; c++) {
            uint4 v = load_chunk(c);
            out[4 * c] = v.x, out[4 * c + 1] = v.y, out[4 * c + 2] = v.z, out[4 * c + 3] = v.w;
        }
    }

    BUDDY_FN void store_all(const u32 (&in)[WORDS]) {
        BUDDY_UNROLL
        for (u32 c = 0; c < CHUNKS; c++) store_chunk(c, in[4 * c], in[4 * c + 1], in[4 * c + 2], in[4 * c + 3]);
    }
};

#endif  // tests/row.h stands in on a CPU

// Calls `move(row, chunk, index)` for every chunk of the rows in `active`, in the order of plain
// memory.
template <class Move>
BUDDY_FN void along_plain(const Tile& tile, u32 active, Move move) {
    u32 first = tile.lane / CHUNKS, chunk = tile.lane % CHUNKS;
    if (active == ALL) {
        // The swizzle alternates between two values every four rows, so that two base addresses and
        // constant steps suffice.
        uint4 *even = tile.at(first, chunk), *odd = tile.at(first + WARP / CHUNKS, chunk) - WARP;
        BUDDY_UNROLL
        for (u32 i = 0; i < CHUNKS; i++) move((i % 2 == 0 ? even : odd) + i * WARP, i * WARP + tile.lane);
        return;
    }
    for (u32 i = 0; i < CHUNKS; i++) {
        u32 row = i * (WARP / CHUNKS) + first;
        if (active >> row & 1) move(tile.at(row, chunk), i * WARP + tile.lane);
    }
}

// Fetches uncompressed entries.
BUDDY_FN void fetch_plain(const Tile& tile, const uint4* from, u32 active) {
    const uint4* mine = from + tile.lane;
    along_plain(tile, active, [&](uint4* shared, u32 index) { cp_async<16>(shared, mine + (index - tile.lane)); });
}

BUDDY_FN void put_plain(const Tile& tile, uint4* to, u32 active) {
    __syncwarp();
    along_plain(tile, active, [&](uint4* shared, u32 index) { __stcs(to + index, *shared); });
}

// Calls `move(shared, global)` for the rows' chunks on the device, which are contiguous: `PER_ROW`
// per row, of which this lane's row uses `used`.
template <u32 PER_ROW, class Move>
BUDDY_FN void along_device(const Tile& tile, u8* device, u32 used, Move move) {
    constexpr u32 ROWS = WARP / PER_ROW;  // rows per access
    if (__all_sync(ALL, used >= PER_ROW)) {
        // Rows are contiguous. If one access moves a multiple of the swizzle's period, steps are
        // constants.
        uint4* shared = tile.at(tile.lane / PER_ROW, tile.lane % PER_ROW);
        u8* global = device + tile.lane * CHUNK;
        BUDDY_UNROLL
        for (u32 i = 0; i < PER_ROW; i++) {
            u32 at = i * WARP + tile.lane;
            if (ROWS % CHUNKS != 0) shared = tile.at(at / PER_ROW, at % PER_ROW);
            move(ROWS % CHUNKS == 0 ? shared + i * ROWS * CHUNKS : shared, global + i * (WARP * CHUNK));
        }
        return;
    }
    BUDDY_UNROLL
    for (u32 i = 0; i < PER_ROW; i++) {
        u32 at = i * WARP + tile.lane, row = at / PER_ROW, chunk = at % PER_ROW;
        if (chunk < __shfl_sync(ALL, used, row)) move(tile.at(row, chunk), device + at * CHUNK);
    }
}

// Moves the chunks from `first` on of the rows in `rows`, eight lanes per row; `place(row)` returns
// their place.
template <class PlaceOf, class Move>
BUDDY_FN void along_rows(const Tile& tile, u32 rows, u32 first, u32 used, PlaceOf place, Move move) {
    const u32 step = WARP / CHUNKS;
    BUDDY_UNROLL
    for (u32 i = 0; i < CHUNKS; i++) {
        if ((rows >> (i * step) & ((1u << step) - 1)) == 0) continue;
        u32 row = i * step + tile.lane / CHUNKS, chunk = tile.lane % CHUNKS;
        u32 count = __shfl_sync(ALL, used, row);
        Place there = place(row);
        if ((rows >> row & 1) && chunk >= first && chunk < count) move(tile.at(row, chunk), chunk_at(there, chunk));
    }
}

// Moves the compressed rows of consecutive entries between shared memory and their places: `device`
// is the device address of the first, `place(row)` returns the place of any.
template <class PlaceOf, class Move>
BUDDY_FN void along_page(const Tile& tile, u8* device, u32 device_bytes, u32 used, PlaceOf place, Move move) {
    u32 per_row = device_bytes / CHUNK;
    // No switch: it would load from a jump table.
    if (per_row == 4) along_device<4>(tile, device, used, move);
    else if (per_row == 6) along_device<6>(tile, device, used, move);
    else if (per_row == 8) along_device<8>(tile, device, used, move);
    else if (per_row == 2) along_device<2>(tile, device, used, move);
    u32 over = __ballot_sync(ALL, used > (per_row == 0 ? 1 : per_row));
    if (over != 0) along_rows(tile, over, per_row, used, place, move);
}

// The same within a page, where places are a constant step apart.
template <class Move>
BUDDY_FN void along_page(const Tile& tile, const Place& place, u32 used, Move move) {
    along_page(tile, place.device, place.device_bytes, used, [&](u32 row) { return step_by(place, row); }, move);
}

struct Fetch {
    BUDDY_FN void operator()(uint4* shared, u8* global) const { cp_async<16>(shared, global); }
};

struct Put {
    BUDDY_FN void operator()(uint4* shared, u8* global) const { __stcs((uint4*)global, *shared); }
};

}  // namespace buddy
