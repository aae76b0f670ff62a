// The sizes of many spans of plain memory in one launch: BUDDY_CODEC names the codec's struct. Each warp takes a
// run of consecutive tiles of 32 entries, and adds up what it found when a span ends.
#include "buddy_device.cuh"

using namespace buddy;
typedef BUDDY_CODEC Codec;

constexpr u32 WARPS = BUDDY_WARPS;
constexpr u32 TILE_BYTES = WARP * BUDDY_ENTRY_BYTES;
// Numbers for each span: its size classes, then the bytes of the paper's eight sizes.
constexpr u32 SUMS = CLASSES + 1;

// One span, as src/survey.rs writes it.
struct Span {
    const u8* from;
    u64 bytes;
    u64 first;    // tiles of the spans before it
    u8* classes;  // where each entry's class goes, or null
    u64 window;
    const u32* learned;
};

// The smallest of the paper's sizes that holds a stream (`optimistic_bytes` of buddy-core).
BUDDY_FN u32 optimistic_bytes(u32 bits) {
    u32 bytes = (bits + 7) / 8;
    return bytes <= 8 ? 8 : bytes <= 16 ? 16 : bytes <= 32 ? 32 : bytes <= 64 ? 64 : bytes <= 80 ? 80 : bytes <= 96 ? 96 : 128;
}

// Fetches the last entries of a span, and zeros after them.
BUDDY_FN void fetch_tail(const Tile& tile, const u8* from, u32 bytes) {
    for (u32 i = 0; i < CHUNKS; i++) {
        u32 index = i * WARP + tile.lane, start = index * CHUNK;
        uint4 chunk = make_uint4(0, 0, 0, 0);
        if (start + CHUNK <= bytes) {
            chunk = *(const uint4*)(from + start);
        } else {
            for (u32 b = start; b < bytes; b++) ((u8*)&chunk)[b - start] = from[b];
        }
        *tile.at(index / CHUNKS, index % CHUNKS) = chunk;
    }
    __syncwarp();
}

// What a thread found of one span.
struct Found {
    u32 sums[SUMS];

    BUDDY_FN Found() { clear(); }

    BUDDY_FN void clear() {
        BUDDY_UNROLL
        for (u32 i = 0; i < SUMS; i++) sums[i] = 0;
    }

    BUDDY_FN void add(u32 size_class, u32 bytes) {
        BUDDY_UNROLL
        for (u32 c = 0; c < CLASSES; c++) sums[c] += size_class == c;
        sums[CLASSES] += bytes;
    }

    BUDDY_FN void flush(u64* to, u32 lane) {
        BUDDY_UNROLL
        for (u32 i = 0; i < SUMS; i++) {
            u32 sum = __reduce_add_sync(ALL, sums[i]);
            if (lane == 0 && sum != 0) atomicAdd(to + i, (u64)sum);
        }
        clear();
    }
};

BUDDY_FN void look(const Tile& tile, const Span& span, u64 at, Found& found) {
    const u8* from = span.from + at * TILE_BYTES;
    u64 left = span.bytes - at * TILE_BYTES;
    u32 entries = WARP;
    if (left >= TILE_BYTES) {
        fetch_plain(tile, (const uint4*)from, ALL);
        cp_async_wait_warp();
    } else {
        fetch_tail(tile, from, (u32)left);
        entries = ((u32)left + BUDDY_ENTRY_BYTES - 1) / BUDDY_ENTRY_BYTES;
    }
    u32 words[WORDS];
    Row(tile).load_all(words);
    __syncwarp();
    Params params = {(u32)span.window, 0, span.learned};
    bool zero = AsksFirst<Codec>::VALUE && all_zero(words);
    u32 bits = Codec::size_bits(words, params);
    if (!AsksFirst<Codec>::VALUE) zero = Codec::is_zero(words, bits);
    u32 size_class = zero ? (u32)ZERO : class_of_bits(bits);
    if (tile.lane >= entries) return;
    found.add(size_class, zero ? 0 : optimistic_bytes(bits));
    if (span.classes != nullptr) span.classes[at * WARP + tile.lane] = (u8)size_class;
}

// The last span that begins at this tile or before it: the one that has it.
BUDDY_FN u32 span_of(const Span* spans, u32 count, u64 tile) {
    u32 low = 0, high = count;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        (spans[middle].first <= tile ? low : high) = middle;
    }
    return low;
}

// Adds to seven numbers for each span what its entries would be.
extern "C" __global__ void __launch_bounds__(BUDDY_WARPS* WARP, BUDDY_BLOCKS)
    buddy_survey(const Span* spans, u32 count, u64 tiles, u64* sums) {
    __shared__ __align__(128) uint4 chunks[WARPS * WARP * CHUNKS];
    Tile tile = {chunks + threadIdx.x / WARP * (WARP * CHUNKS), threadIdx.x % WARP};
    u64 warps = (u64)gridDim.x * WARPS, warp = (u64)blockIdx.x * WARPS + threadIdx.x / WARP;
    u64 at = warp * tiles / warps, end = (warp + 1) * tiles / warps;
    if (at >= end) return;
    Found found;
    for (u32 index = span_of(spans, count, at); at < end; index++) {
        Span span = spans[index];
        u64 stop = index + 1 < count && spans[index + 1].first < end ? spans[index + 1].first : end;
        for (; at < stop; at++) look(tile, span, at - span.first, found);
        found.flush(sums + index * SUMS, tile.lane);
    }
}
