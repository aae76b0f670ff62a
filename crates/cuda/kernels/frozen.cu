// Packs a buffer once and for all (docs/format.md, "Frozen buffers"): what overflows lies compact behind an index. Three kernels
// in a row: parts on the device, nibbles and how many sectors overflow of each page; the index, a running sum of these; and the
// sectors themselves, which are then known by their places. BUDDY_CODEC names the codec's struct.
#include "buddy_device.cuh"
#include "frozen.cuh"

using namespace buddy;
typedef BUDDY_CODEC Codec;

constexpr u32 WARPS = PAGE_ENTRIES / WARP, SCANNERS = 1024;

struct Packing {
    const uint4* from;
    u8* device;
    u8* nibbles;
    u32* index;  // one for each page, and the sum of all
    u8* overflow;
    u64 entries;
    u32 device_bytes, capacity;  // sectors that there is room for
    Params params;

    BUDDY_FN u64 pages() const { return (entries + PAGE_ENTRIES - 1) / PAGE_ENTRIES; }
};

// A block to a page. Entries past the end are zeros.
extern "C" __global__ void __launch_bounds__(WARPS* WARP, BUDDY_BLOCKS) frozen_pack(Packing of) {
    __shared__ __align__(128) uint4 chunks[WARPS * WARP * CHUNKS];
    __shared__ u32 sums[WARPS];
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    Tile tile = {chunks + warp * (WARP * CHUNKS), lane};
    u64 start = (u64)blockIdx.x * PAGE_ENTRIES + warp * WARP;
    u32 active = start >= of.entries ? 0 : of.entries - start < WARP ? ALL >> (WARP - (u32)(of.entries - start)) : ALL;
    Row row(tile);
    if (active != ALL) {
        BUDDY_UNROLL
        for (u32 c = 0; c < CHUNKS; c++) row.store_chunk(c, 0, 0, 0, 0);
        __syncwarp();
    }
    fetch_plain(tile, of.from + start * CHUNKS, active);
    arrive();
    u32 words[WORDS];
    row.load_all(words);
    u32 nibble = encode_words<Codec>(words, row, of.params);
    __syncwarp();
    u32 per_row = of.device_bytes / CHUNK, used = chunks_to_put(nibble, of.device_bytes);
    Place place = {of.device + start * of.device_bytes, nullptr, of.device_bytes};
    if (per_row != 0) along_page(tile, place, used < per_row ? used : per_row, Put());
    if (is_small(nibble, place)) *(uint2*)(place.device + lane * SMALL) = make_uint2(row.load(0), row.load(1));
    u32 pair = nibble | __shfl_down_sync(ALL, nibble, 1) << 4;
    if (lane % 2 == 0) of.nibbles[(start + lane) / 2] = (u8)pair;
    u32 over = __reduce_add_sync(ALL, sectors_over(nibble, of.device_bytes));
    if (lane == 0) sums[warp] = over;
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 sum = 0;
        for (u32 i = 0; i < WARPS; i++) sum += sums[i];
        of.index[blockIdx.x] = sum;
    }
}

// One block: counts become the sums of those before them.
extern "C" __global__ void __launch_bounds__(SCANNERS) frozen_index(Packing of) {
    __shared__ u32 sums[SCANNERS];
    u64 pages = of.pages(), each = (pages + SCANNERS - 1) / SCANNERS;
    u64 begin = min(threadIdx.x * each, pages), end = min(begin + each, pages);
    u32 sum = 0;
#pragma unroll 8
    for (u64 i = begin; i < end; i++) sum += of.index[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (u32 step = 1; step < SCANNERS; step *= 2) {
        u32 other = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        sums[threadIdx.x] += other;
        __syncthreads();
    }
    u32 before = sums[threadIdx.x] - sum;
#pragma unroll 8
    for (u64 i = begin; i < end; i++) {
        u32 count = of.index[i];
        of.index[i] = before, before += count;
    }
    if (threadIdx.x == SCANNERS - 1) of.index[pages] = sums[SCANNERS - 1];
}

// A thread to eight entries: those that overflow are encoded once more, and their last sectors put in place. Nothing is written
// past the room that there is.
extern "C" __global__ void __launch_bounds__(128) frozen_overflow(Packing of) {
    u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= of.pages() * (PAGE_ENTRIES / 8)) return;
    u32 word = ((const u32*)of.nibbles)[at];
    if (sectors_over_word(word, 8, of.device_bytes) == 0) return;
    u32 sector = first_sector(of.index, (const u32*)of.nibbles, at * 8, of.device_bytes);
    for (u32 i = 0; i < 8; i++) {
        u32 nibble = word >> 4 * i & 15, over = sectors_over(nibble, of.device_bytes);
        if (over == 0) continue;
        if (sector + over > of.capacity) return;
        const uint4* plain = of.from + (at * 8 + i) * CHUNKS;
        thread::OwnRow row = {};
        u32 words[WORDS];
        BUDDY_UNROLL
        for (u32 c = 0; c < CHUNKS; c++) {
            uint4 v = plain[c];
            words[4 * c] = v.x, words[4 * c + 1] = v.y, words[4 * c + 2] = v.z, words[4 * c + 3] = v.w;
        }
        if (nibble != RAW) {
            encode_words<Codec>(words, row, of.params);
        } else {
            BUDDY_UNROLL
            for (u32 k = 0; k < WORDS; k++) row.store(k, words[k]);
        }
        u32 kept = of.device_bytes == SMALL ? 0 : of.device_bytes / CHUNK;
        for (u32 c = 0; c < over * (SECTOR / CHUNK); c++) ((Quad*)of.overflow)[sector * (SECTOR / CHUNK) + c] = row.chunks[kept + c];
        sector += over;
    }
}
