// Compressed sizes of many spans of plain memory with several codecs in one pass; BUDDY_CODECS
// names the codecs' structs. Each warp takes a run of consecutive tiles of 32 entries, sizes each
// tile with every codec, and flushes its sums at the end of a span.
#include "buddy_device.cuh"

using namespace buddy;

constexpr u32 WARPS = BUDDY_WARPS;
constexpr u32 TILE_BYTES = WARP * BUDDY_ENTRY_BYTES;
// Sums per span and codec: entries by size class, then the bytes by the paper's eight sizes.
constexpr u32 SUMS = CLASSES + 1;

// One span, as src/survey.rs writes it.
struct Span {
    const u8* from;
    u64 bytes;
    u64 first;  // tiles of all earlier spans
    u64 row;  // index of the codecs' parameters for this span
};

// A codec's parameters and output for a span.
struct CodecRequest {
    u8* classes;  // output: the size class of each entry; null if not wanted
    u64 window;
    const u32* learned;
};

// The paper's eight sizes, zero first; their bytes and classes are packed, a byte and a nibble
// each.
constexpr u32 SIZES = 8;
constexpr u64 SIZE_BYTES = 0x8060504020100800ull;
constexpr u32 SIZE_CLASSES = 0x54432210u;

BUDDY_FN constexpr u32 bytes_of_size(u32 size) { return (u32)(SIZE_BYTES >> 8 * size) & 0xff; }
BUDDY_FN constexpr u32 class_of_size(u32 size) { return SIZE_CLASSES >> 4 * size & 15; }

// The smallest size that holds a number of 64-bit words, up to 15 (`optimistic_bytes` of
// buddy-core).
BUDDY_FN constexpr u64 sizes_of_words() {
    u64 table = 0;
    for (u32 words = 0; words < 16; words++) {
        u32 bytes = 8 * words, size = bytes <= 8 ? 1 : bytes <= 16 ? 2 : bytes <= 32 ? 3 : bytes <= 64 ? 4 : bytes <= 80 ? 5 : bytes <= 96 ? 6 : 7;
        table |= (u64)size << 4 * words;
    }
    return table;
}

BUDDY_FN u32 size_of_bits(u32 bits) {
    constexpr u64 TABLE = sizes_of_words();
    u32 words = (bits + 63) / 64;
    words = words < 15 ? words : 15;
    return (words < 8 ? (u32)TABLE : (u32)(TABLE >> 32)) >> 4 * (words % 8) & 7;
}

// Fetches the last entries of a span, padded with zeros.
BUDDY_FN void fetch_tail(const Tile& tile, const u8* from, u32 bytes) {
    BUDDY_ROLLED
    for (u32 i = 0; i < CHUNKS; i++) {
        u32 index = i * WARP + tile.lane, start = index * CHUNK, words[4] = {};
        BUDDY_ROLLED
        for (u32 b = start; b < start + CHUNK && b < bytes; b++) words[b / 4 % 4] |= (u32)from[b] << 8 * (b % 4);
        *tile.at(index / CHUNKS, index % CHUNKS) = make_uint4(words[0], words[1], words[2], words[3]);
    }
    __syncwarp();
}

// A warp's histogram of sizes in a span. Lane 8 * (codec % 4) + size holds one count of four
// codecs: one register for all of them, and no reduction over lanes at the end.
template <u32 CODECS>
struct SizeCounts {
    u32 counts[(CODECS + 3) / 4] = {};

    // Adds one entry per lane in `lanes`.
    template <u32 CODEC>
    BUDDY_FN void add(u32 size, u32 lane, u32 lanes) {
        BUDDY_UNROLL
        for (u32 bit = 0; bit < 3; bit++) lanes &= __ballot_sync(ALL, size >> bit & 1) ^ ((lane >> bit & 1) - 1);
        if (lane / SIZES == CODEC % 4) counts[CODEC / 4] += ones_in(lanes);
    }

    // Adds the counts to a span's sums; the next codec's are `apart` further on.
    BUDDY_FN void flush(u64* to, u64 apart, u32 lane) {
        BUDDY_UNROLL
        for (u32 i = 0; i < (CODECS + 3) / 4; i++) {
            u32 count = counts[i], bytes = count * bytes_of_size(lane % SIZES);
            counts[i] = 0;
            BUDDY_UNROLL
            for (u32 step = 1; step < SIZES; step *= 2) bytes += __shfl_xor_sync(ALL, bytes, step);
            u64* sums = to + (4 * i + lane / SIZES) * apart;
            if (count != 0) atomicAdd(sums + class_of_size(lane % SIZES), (u64)count);
            if (lane % SIZES == 0 && bytes != 0) atomicAdd(sums + CLASSES, (u64)bytes);
        }
    }
};

// A tile to be sized: the index of its first entry in the span, and its number of entries.
struct TileSizes {
    const Tile& tile;
    const CodecRequest* requests;
    u64 entry;
    u32 entries;
    bool zero;  // this lane's entry is all zeros

    // Each codec reloads the words: registers held across codecs would spill in those that need
    // many.
    template <u32 AT, class Counts, class Codec, class... Others>
    BUDDY_FN void count(Counts& counts) const {
        u32 words[WORDS];
        Row(tile).load_all(words);
        Params params = {(u32)__ldg(&requests[AT].window), 0, (const u32*)__ldg((const u64*)&requests[AT].learned)};
        u32 size = zero ? 0 : size_of_bits(Codec::size_bits(words, params));
        counts.template add<AT>(size, tile.lane, entries < WARP ? (1u << entries) - 1 : ALL);
        u8* classes = (u8*)__ldg((const u64*)&requests[AT].classes);
        if (classes != nullptr && tile.lane < entries) classes[entry + tile.lane] = (u8)class_of_size(size);
        if constexpr (sizeof...(Others) > 0) count<AT + 1, Counts, Others...>(counts);
    }
};

template <class... Codecs>
struct Survey {
    typedef SizeCounts<sizeof...(Codecs)> All;
    static constexpr u32 COUNT = sizeof...(Codecs);

    static BUDDY_FN void measure(const Tile& tile, const Span& span, const CodecRequest* requests, u64 at, All& counts) {
        const u8* from = span.from + at * TILE_BYTES;
        u64 left = span.bytes - at * TILE_BYTES;
        u32 entries = WARP, words[WORDS];
        if (left >= TILE_BYTES) {
            fetch_plain(tile, (const uint4*)from, ALL);
            cp_async_wait_warp();
        } else {
            fetch_tail(tile, from, (u32)left);
            entries = ((u32)left + BUDDY_ENTRY_BYTES - 1) / BUDDY_ENTRY_BYTES;
        }
        Row(tile).load_all(words);
        TileSizes sizes = {tile, requests, at * WARP, entries, all_zero(words)};
        sizes.count<0, All, Codecs...>(counts);
        __syncwarp();
    }
};

// Returns the last span that begins at or before a tile.
BUDDY_FN u32 span_of(const Span* spans, u32 count, u64 tile) {
    u32 low = 0, high = count;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        (spans[middle].first <= tile ? low : high) = middle;
    }
    return low;
}

// Adds the sizes of all spans to `sums`: seven numbers for each codec and span, the spans of a
// codec together.
extern "C" __global__ void __launch_bounds__(BUDDY_WARPS* WARP, BUDDY_BLOCKS)
    buddy_survey(const Span* spans, u32 count, u64 tiles, const CodecRequest* requests, u64* sums) {
    typedef Survey<BUDDY_CODECS> Codecs;
    __shared__ __align__(128) uint4 chunks[WARPS * WARP * CHUNKS];
    Tile tile = {chunks + threadIdx.x / WARP * (WARP * CHUNKS), threadIdx.x % WARP};
    u64 warps = (u64)gridDim.x * WARPS, warp = (u64)blockIdx.x * WARPS + threadIdx.x / WARP;
    u64 at = warp * tiles / warps, end = (warp + 1) * tiles / warps;
    if (at >= end) return;
    Codecs::All counts;
    for (u32 index = span_of(spans, count, at); at < end; index++) {
        Span span = spans[index];
        u64 stop = index + 1 < count && spans[index + 1].first < end ? spans[index + 1].first : end;
        for (; at < stop; at++) Codecs::measure(tile, span, requests + span.row * Codecs::COUNT, at - span.first, counts);
        counts.flush(sums + index * SUMS, count * SUMS, tile.lane);
    }
}
