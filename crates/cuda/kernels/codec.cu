// The kernels of one codec: BUDDY_CODEC names its struct, BUDDY_CODEC_FILE its header. One warp takes 32 entries,
// one thread to an entry; warps need nothing from one another.
#include "tile.cuh"
#include BUDDY_CODEC_FILE

using namespace buddy;
typedef BUDDY_CODEC Codec;

constexpr u32 WARPS = BUDDY_WARPS;
// Threads of a block, and blocks that a multiprocessor shall hold: this bounds the registers of a thread.
#define BUDDY_KERNEL extern "C" __global__ void __launch_bounds__(BUDDY_WARPS* WARP, BUDDY_BLOCKS)

// Consecutive entries: the aligned tile of this warp, and which of its 32 entries are asked for.
struct Range {
    u64 start;   // the tile's first entry
    u32 active;  // a bit for each row
    long long skew;

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

// Encodes the row in place, unless it is stored raw; returns its nibble.
BUDDY_FN u32 encode_row(Row& row, const Params& params) {
    u32 words[WORDS], layout;
    row.load_all(words);
    u32 bits = Codec::encode(words, row, layout, params);
    return Codec::is_zero(words, bits) ? (u32)ZERO : nibble_of(class_of_bits(bits), layout);
}

BUDDY_FN void report(const Memory& memory, u64 entry, u32 status) { atomicMin(memory.fault, entry << 8 | status); }

// Decodes the row in place; a fault leaves zeros and is reported.
BUDDY_FN void decode_row(Row& row, u32 nibble, u64 entry, const Memory& memory, const Params& params) {
    u32 size_class = class_of(nibble), status = nibble < NIBBLES ? OK : NIBBLE;
    if (nibble == RAW) return;
    u32 words[WORDS];
    bool stream = status == OK && size_class != ZERO;
    if (stream) status = Codec::decode(row, class_bytes(size_class) * 8, layout_of(nibble), words, params);
    if (!stream || status != OK) {
        BUDDY_UNROLL
        for (u32 i = 0; i < WORDS; i++) words[i] = 0;
    }
    row.store_all(words);
    if (status != OK) report(memory, entry, status);
}

BUDDY_FN u32 load_nibble(const Memory& memory, u64 entry, bool active) {
    return active ? memory.nibbles[entry / 2] >> (entry % 2 * 4) & 15 : (u32)ZERO;
}

// Two nibbles share a byte: exchange only this one's bits.
BUDDY_FN void store_nibble(const Memory& memory, u64 entry, u32 nibble) {
    u32* word = (u32*)memory.nibbles + entry / 8;
    u32 shift = entry % 8 * 4;
    atomicAnd(word, ~(15u << shift));
    atomicOr(word, nibble << shift);
}

BUDDY_FN void store_nibbles(const Memory& memory, const Range& range, u32 lane, u32 nibble) {
    if (range.active == ALL) {
        u32 pair = nibble | __shfl_down_sync(ALL, nibble, 1) << 4;
        if (lane % 2 == 0) memory.nibbles[(range.start + lane) / 2] = (u8)pair;
    } else if (range.active >> lane & 1) {
        store_nibble(memory, range.start + lane, nibble);
    }
}

// Chunks that a row moves: none of a reserved nibble's.
BUDDY_FN u32 chunks_of(u32 nibble) { return nibble < NIBBLES ? class_chunks(class_of(nibble)) : 0; }

// A row of 8 bytes is padded to a sector where the target has one: whole sectors are cheaper to write.
BUDDY_FN u32 chunks_to_put(u32 nibble, u32 device_bytes) {
    return nibble == B8 && device_bytes != SMALL ? SECTOR / CHUNK : chunks_of(nibble);
}

BUDDY_KERNEL buddy_write(Memory memory, Params params, const uint4* from, u64 first, u64 count) {
    Tile tile = this_tile();
    Range range(first, count);
    if (range.active == 0) return;
    fetch_plain(tile, from + range.skew * (long long)CHUNKS, range.active);
    arrive();
    Row row(tile);
    bool mine = range.active >> tile.lane & 1;
    u32 nibble = encode_row(row, params);
    if (!mine) nibble = ZERO;
    __syncwarp();
    Place place = place_of(memory, range.start);
    u32 used = chunks_to_put(nibble, place.device_bytes);
    along_page(tile, place, used, Put());
    if (place.device_bytes == SMALL && nibble == B8) {
        *(uint2*)(place.device + tile.lane * SMALL) = make_uint2(row.load(0), row.load(1));
    }
    store_nibbles(memory, range, tile.lane, nibble);
}

BUDDY_KERNEL buddy_read(Memory memory, Params params, uint4* to, u64 first, u64 count) {
    Tile tile = this_tile();
    Range range(first, count);
    if (range.active == 0) return;
    bool mine = range.active >> tile.lane & 1;
    u64 entry = range.start + tile.lane;
    u32 nibble = load_nibble(memory, entry, mine);
    Place place = place_of(memory, range.start);
    u32 used = chunks_of(nibble);
    Row row(tile);
    along_page(tile, place, used, Fetch());
    if (place.device_bytes == SMALL && nibble == B8) fetch<8>(tile.at(tile.lane, 0), place.device + tile.lane * SMALL);
    arrive();
    decode_row(row, nibble, entry, memory, params);
    put_plain(tile, to + range.skew * (long long)CHUNKS, range.active);
}

// An index list: the entry of each lane, if it has one that exists.
BUDDY_FN u64 listed_entry(const Memory& memory, const u32* list, u64 count, u32 lane, bool& mine) {
    u64 at = ((u64)blockIdx.x * WARPS + threadIdx.x / WARP) * WARP + lane;
    mine = at < count;
    u64 entry = mine ? list[at] : 0;
    if (mine && entry >= memory.entries) {
        report(memory, entry, RANGE);
        mine = false;
    }
    return entry;
}

// Reads single entries: the i-th of `to` is entry list[i]. One that does not exist is zeros.
BUDDY_KERNEL buddy_gather(Memory memory, Params params, uint4* to, const u32* list, u64 count) {
    Tile tile = this_tile();
    u64 start = ((u64)blockIdx.x * WARPS + threadIdx.x / WARP) * WARP;
    if (start >= count) return;
    u32 rows = count - start < WARP ? ALL >> (WARP - (u32)(count - start)) : ALL;
    bool mine;
    u64 entry = listed_entry(memory, list, count, tile.lane, mine);
    u32 nibble = load_nibble(memory, entry, mine);
    Row row(tile);
    Place place = place_of(memory, entry);
    auto there = [&](u32 row) { return place_of(memory, __shfl_sync(ALL, entry, row)); };
    u32 used = nibble == B8 && place.device_bytes == SMALL ? 0 : chunks_of(nibble);
    along_rows(tile, ALL, 0, used, there, Fetch());
    if (nibble == B8 && place.device_bytes == SMALL) fetch<8>(tile.at(tile.lane, 0), place.device);
    arrive();
    decode_row(row, nibble, entry, memory, params);
    put_plain(tile, to + start * CHUNKS, rows);
}

// Writes single entries: entry list[i] becomes the i-th of `from`. No entry may be listed twice.
BUDDY_KERNEL buddy_scatter(Memory memory, Params params, const uint4* from, const u32* list, u64 count) {
    Tile tile = this_tile();
    u64 start = ((u64)blockIdx.x * WARPS + threadIdx.x / WARP) * WARP;
    if (start >= count) return;
    u32 rows = count - start < WARP ? ALL >> (WARP - (u32)(count - start)) : ALL;
    bool mine;
    u64 entry = listed_entry(memory, list, count, tile.lane, mine);
    fetch_plain(tile, from + start * CHUNKS, rows);
    arrive();
    Row row(tile);
    u32 nibble = encode_row(row, params);
    if (!mine) nibble = ZERO;
    __syncwarp();
    Place place = place_of(memory, entry);
    auto there = [&](u32 row) { return place_of(memory, __shfl_sync(ALL, entry, row)); };
    bool small = nibble == B8 && place.device_bytes == SMALL;
    along_rows(tile, ALL, 0, small ? 0 : chunks_to_put(nibble, place.device_bytes), there, Put());
    if (small) *(uint2*)place.device = make_uint2(row.load(0), row.load(1));
    if (mine) store_nibble(memory, entry, nibble);
}

// How many entries each size class would have.
BUDDY_KERNEL buddy_sizes(Params params, const uint4* from, u64 count, u64* histogram) {
    Tile tile = this_tile();
    u64 tiles = (count + WARP - 1) / WARP;
    u64 stride = (u64)gridDim.x * WARPS;
    u32 found[CLASSES] = {};
    for (u64 at = (u64)blockIdx.x * WARPS + threadIdx.x / WARP; at < tiles; at += stride) {
        u64 left = count - at * WARP;
        u32 active = left < WARP ? ALL >> (WARP - (u32)left) : ALL;
        fetch_plain(tile, from + at * (WARP * CHUNKS), active);
        arrive();
        u32 words[WORDS];
        Row(tile).load_all(words);
        __syncwarp();
        u32 bits = Codec::size_bits(words, params);
        u32 size_class = Codec::is_zero(words, bits) ? (u32)ZERO : class_of_bits(bits);
        BUDDY_UNROLL
        for (u32 c = 0; c < CLASSES; c++) found[c] += size_class == c && (active >> tile.lane & 1);
    }
    BUDDY_UNROLL
    for (u32 c = 0; c < CLASSES; c++) {
        u32 sum = __reduce_add_sync(ALL, found[c]);
        if (tile.lane == 0 && sum != 0) atomicAdd(histogram + c, (u64)sum);
    }
}
