// Packs a buffer for good (docs/reference/format.md, "Frozen buffers"), so that overflowing sectors
// are stored compact behind an index. Three kernels follow each other: `frozen_pack` writes the
// parts on the device, the nibbles, and the number of overflow sectors of each page; `frozen_index`
// makes the index, a prefix sum of these numbers; `frozen_overflow` writes the overflow sectors,
// whose positions are then known, and the header. `frozen_finish` replaces the last two where
// scratch memory for the sums is available. `frozen_read` reads a range of places, and
// `frozen_gather` single entries.
//
// Pages are processed from the last to the first, so that each kernel starts with the pages that
// the preceding kernel left in L2.
//
// BUDDY_CODEC names the codec's struct. BUDDY_ACTIVATION, if defined, names an activation: packing
// then also writes its output, reading returns the output instead of the packed value, and
// `frozen_back` computes the gradient of its input.
#include "activation.cuh"
#include "buddy_device.cuh"
#include "frozen.cuh"
#include "positive.cuh"

#ifndef BUDDY_ACTIVATION
#define BUDDY_ACTIVATION Same
#endif
// Resident CTAs per SM that packing aims for.
#ifndef BUDDY_PACK_BLOCKS
#define BUDDY_PACK_BLOCKS BUDDY_BLOCKS
#endif

using namespace buddy;
typedef BUDDY_CODEC Codec;
typedef BUDDY_ACTIVATION Activation;

constexpr u32 WARPS = PAGE_ENTRIES / WARP, SCANNERS = 1024, FINISHERS = 512;
constexpr u32 HEADER_WORDS = 32, AT_SECTORS = 12, MOST_PARTS = 255;

struct Packing {
    const uint4* from;
    u8* device;
    u8* nibbles;
    u32* index;  // one per page, and the total
    u8* overflow;
    u32* header;
    u32* told;  // pinned host memory for the number of sectors, or null
    u32* sums;  // zeroed sums of the index parts, one per CTA; in the header, or separate memory
    Order order;
    u32 device_bytes, capacity;  // sectors available in `overflow`
    u32 part_pages, reserved;  // pages of an index part
    Params params;
    u32 head[HEADER_WORDS];  // the header, without the number of sectors
    uint4* out;  // the activation's output

    BUDDY_FN u64 pages() const { return (order.places() + PAGE_ENTRIES - 1) / PAGE_ENTRIES; }
};

// Programmatic dependent launch: lets the next kernel in the stream start, and waits for the
// preceding one. No-ops before Hopper.
BUDDY_FN void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
BUDDY_FN void wait_for_last() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Returns this CTA's page; pages run from the last to the first.
BUDDY_FN u32 page_of_block() { return gridDim.x - 1 - blockIdx.x; }

template <class Each>
BUDDY_FN uint4 each(const uint4& v, Each of) {
    return make_uint4(of(v.x), of(v.y), of(v.z), of(v.w));
}
BUDDY_FN uint4 kept_of(const uint4& v) { return each(v, [](u32 pair) { return Activation::kept(pair); }); }
BUDDY_FN uint4 forward_of(const uint4& v) { return each(v, [](u32 pair) { return Activation::forward(pair); }); }

// Fetches those of a warp's entries in the mask `wanted`, at any places; the others are zeros.
BUDDY_FN void fetch_entries(const Packing& of, const Tile& tile, u64 entry, u32 wanted) {
    Row row(tile);
    BUDDY_UNROLL
    for (u32 c = 0; c < CHUNKS; c++) row.store_chunk(c, 0, 0, 0, 0);
    __syncwarp();
    BUDDY_UNROLL
    for (u32 i = 0; i < CHUNKS; i++) {
        u32 of_row = i * (WARP / CHUNKS) + tile.lane / CHUNKS, chunk = tile.lane % CHUNKS;
        u64 from = __shfl_sync(ALL, entry, of_row);
        if (wanted >> of_row & 1) cp_async<16>(tile.at(of_row, chunk), of.from + from * CHUNKS + chunk);
    }
}

// Packs those of a warp's entries in the mask `wanted`; returns each lane's nibble.
BUDDY_FN u32 pack_tile(const Packing& of, const Tile& tile, u64 start, u64 entry, u32 wanted) {
    Row row(tile);
    if (wanted == ALL && of.order.row == 0) {
        fetch_plain(tile, of.from + start * CHUNKS, ALL);
    } else {
        fetch_entries(of, tile, entry, wanted);
    }
    cp_async_wait_warp();
    if (Activation::ACTIVE) {
        along_plain(tile, wanted, [&](uint4* shared, u32 index) { __stcg(of.out + start * CHUNKS + index, forward_of(kept_of(*shared))); });
        __syncwarp();
    }
    u32 words[WORDS];
    row.load_all(words);
    BUDDY_UNROLL
    for (u32 k = 0; k < WORDS; k++) words[k] = Activation::kept(words[k]);
    of.order.to_stored(words);
    u32 nibble = encode_words<Codec>(words, row, of.params);
    if (nibble == RAW && (of.order.row != 0 || Activation::ACTIVE)) row.store_all(words);
    __syncwarp();
    u32 per_row = of.device_bytes / CHUNK, used = chunks_to_put(nibble, of.device_bytes);
    Place place = {of.device + start * of.device_bytes, nullptr, of.device_bytes};
    if (per_row != 0) along_page(tile, place, used < per_row ? used : per_row, Put());
    if (is_small(nibble, place)) *(uint2*)(place.device + tile.lane * SMALL) = make_uint2(row.load(0), row.load(1));
    return nibble;
}

// One CTA per page. Entries past the end are packed as zeros.
extern "C" __global__ void __launch_bounds__(WARPS* WARP, BUDDY_PACK_BLOCKS) frozen_pack(const __grid_constant__ Packing of) {
    __shared__ __align__(128) uint4 chunks[WARPS * WARP * CHUNKS];
    __shared__ u32 sums[WARPS];
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, page = page_of_block();
    let_next_begin();
    Tile tile = {chunks + warp * (WARP * CHUNKS), lane};
    u64 start = (u64)page * PAGE_ENTRIES + warp * WARP;
    u64 entry = of.order.entry_at(start + lane);
    u32 active = __ballot_sync(ALL, start + lane < of.order.places() && entry < of.order.entries);
    u32 nibble = pack_tile(of, tile, start, entry, active);
    u32 pair = nibble | __shfl_down_sync(ALL, nibble, 1) << 4;
    if (lane % 2 == 0) of.nibbles[(start + lane) / 2] = (u8)pair;
    u32 over = __reduce_add_sync(ALL, sectors_over(nibble, of.device_bytes));
    if (lane == 0) sums[warp] = over;
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 sum = 0;
        for (u32 i = 0; i < WARPS; i++) sum += sums[i];
        of.index[page] = sum;
        if (sum != 0) atomicAdd(of.sums + page / of.part_pages, sum);
    }
}

// Inclusive prefix sum over the CTA's threads. The last element of `sums` holds the total until the
// next barrier.
template <u32 THREADS>
BUDDY_FN u32 running_sum(u32 value, u32 (&sums)[WARP]) {
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    auto along = [&](u32 value) {
        for (u32 step = 1; step < WARP; step *= 2) {
            u32 other = __shfl_up_sync(ALL, value, step);
            value += lane >= step ? other : 0;
        }
        return value;
    };
    value = along(value);
    if (lane == WARP - 1) sums[warp] = value;
    __syncthreads();
    if (warp == 0) sums[lane] = along(lane < THREADS / WARP ? sums[lane] : 0);
    __syncthreads();
    return value + (warp == 0 ? 0 : sums[warp - 1]);
}

// Turns a part of the index from counts into exclusive prefix sums, which begin at `before`.
// Returns the sum after the part.
template <u32 THREADS>
BUDDY_FN u32 make_index(const Packing& of, u64 begin, u64 end, u32 before, u32 (&sums)[WARP]) {
    for (u64 first = begin; first < end; first += THREADS) {
        u64 at = first + threadIdx.x;
        u32 count = at < end ? of.index[at] : 0, sum = running_sum<THREADS>(count, sums);
        if (at < end) of.index[at] = before + sum - count;
        before += sums[WARP - 1];
        __syncthreads();
    }
    return before;
}

// One CTA per part of the index.
extern "C" __global__ void __launch_bounds__(SCANNERS) frozen_index(const __grid_constant__ Packing of) {
    __shared__ u32 sums[WARP];
    u64 begin = min((u64)blockIdx.x * of.part_pages, of.pages()), end = min(begin + of.part_pages, of.pages());
    u32 before = 0;
    for (u32 i = 0; i < blockIdx.x; i++) before += of.sums[i];
    before = make_index<SCANNERS>(of, begin, end, before, sums);
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) of.index[of.pages()] = before;
}

// A compact list of a warp's overflowing entries and the positions of their sectors. A lane has
// eight entries; overflows are few and unevenly spread, so the list gives each one a lane.
struct Overflows {
    static constexpr u32 PER_LANE = 8;
    u32 entries[WARP * PER_LANE], sectors[WARP * PER_LANE];

    // Lists the overflows of `word`, eight nibbles of the warp's pages from `page` on. Returns
    // their number in the warp.
    BUDDY_FN u32 list(const Packing& of, u32 word, u64 page, u32 lane) {
        u32 some = sectors_over_word(word, PER_LANE, of.device_bytes), count = 0;
        for (u32 i = 0; some != 0 && i < PER_LANE; i++) count += sectors_over(word >> 4 * i & 15, of.device_bytes) != 0;
        // One scan for both sums, packed: at most 1024 sectors of 256 entries.
        u32 end = some << 16 | count;
        for (u32 step = 1; step < WARP; step *= 2) {
            u32 other = __shfl_up_sync(ALL, end, step);
            end += lane >= step ? other : 0;
        }
        if (some != 0) {
            u32 at = (end & 0xffff) - count, sector = of.index[page] + (end >> 16) - some;
            for (u32 i = 0; i < PER_LANE; i++) {
                u32 over = sectors_over(word >> 4 * i & 15, of.device_bytes);
                if (over != 0) entries[at] = lane * PER_LANE + i, sectors[at++] = sector;
                sector += over;
            }
        }
        __syncwarp();
        return __shfl_sync(ALL, end, WARP - 1) & 0xffff;
    }
};

// Encodes an entry again and writes its overflow sectors.
BUDDY_FN void put_overflow(const Packing& of, u64 at, u64 sector) {
    u32 nibble = of.nibbles[at / 2] >> at % 2 * 4 & 15, over = sectors_over(nibble, of.device_bytes);
    const uint4* plain = of.from + of.order.entry_at(at) * CHUNKS;
    thread::OwnRow row = {};
    u32 words[WORDS];
    BUDDY_UNROLL
    for (u32 c = 0; c < CHUNKS; c++) {
        uint4 v = kept_of(plain[c]);
        words[4 * c] = v.x, words[4 * c + 1] = v.y, words[4 * c + 2] = v.z, words[4 * c + 3] = v.w;
    }
    of.order.to_stored(words);
    if (nibble != RAW) {
        encode_words<Codec>(words, row, of.params);
    } else {
        BUDDY_UNROLL
        for (u32 k = 0; k < WORDS; k++) row.store(k, words[k]);
    }
    u32 kept = of.device_bytes == SMALL ? 0 : of.device_bytes / CHUNK;
    Quad* to = (Quad*)of.overflow + sector * (SECTOR / CHUNK);
    for (u32 c = 0; c < over * (SECTOR / CHUNK); c++) to[c] = row.chunks[kept + c];
}

// Writes the overflow sectors of a warp's four pages; `word` is the index of this lane's eight
// nibbles.
BUDDY_FN void put_overflows(const Packing& of, Overflows& overflows, u64 word, bool there, u32 lane) {
    u32 nibbles = there ? ((const u32*)of.nibbles)[word] : 0;
    u64 first = (word - lane) * Overflows::PER_LANE;
    u32 count = overflows.list(of, nibbles, first / PAGE_ENTRIES, lane);
    for (u32 i = lane; i < count; i += WARP) put_overflow(of, first + overflows.entries[i], overflows.sectors[i]);
}

// Writes the header with the first threads, and the number of sectors to the host. Returns false if
// the overflow does not fit; the header then holds that number alone.
BUDDY_FN bool put_header(const Packing& of, u64 thread, u32 all) {
    bool fits = all <= of.capacity;
    if (thread == 0 && of.told != nullptr) *(volatile u32*)of.told = all;
    if (thread < HEADER_WORDS) of.header[thread] = thread == AT_SECTORS ? all : fits ? of.head[thread] : 0;
    return fits;
}

// One warp per 256 entries.
extern "C" __global__ void __launch_bounds__(128) frozen_overflow(const __grid_constant__ Packing of) {
    __shared__ Overflows all_overflows[128 / WARP];
    u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u32 all = of.index[of.pages()];
    if (!put_header(of, at, all) || all == 0) return;
    bool there = at < of.pages() * (PAGE_ENTRIES / Overflows::PER_LANE);
    put_overflows(of, all_overflows[threadIdx.x / WARP], at, there, threadIdx.x % WARP);
}

// Zeroes the sums once every CTA has read them; `sums[MOST_PARTS]` counts the CTAs.
BUDDY_FN void clear_sums(u32* sums, u32 lane) {
    u32 ticket = lane == 0 ? atomicInc(sums + MOST_PARTS, gridDim.x - 1) : 0;
    if (__shfl_sync(ALL, ticket, 0) != gridDim.x - 1) return;
    for (u32 i = lane; i < MOST_PARTS; i += WARP) sums[i] = 0;
}

// Index and overflow in one kernel, one CTA per part. The sums have their own memory, which is zero
// before and after. Two CTAs per SM, so that all parts of a large buffer are resident.
extern "C" __global__ void __launch_bounds__(FINISHERS, 2) frozen_finish(const __grid_constant__ Packing of) {
    constexpr u32 PER_PAGE = PAGE_ENTRIES / Overflows::PER_LANE;
    __shared__ Overflows all_overflows[FINISHERS / WARP];
    __shared__ u32 sums[WARP], of_part[2];
    u32 part = blockIdx.x;
    u64 begin = min((u64)part * of.part_pages, of.pages()), end = min(begin + of.part_pages, of.pages());
    wait_for_last();
    u32 sum = threadIdx.x < gridDim.x ? of.sums[threadIdx.x] : 0, up_to = running_sum<FINISHERS>(sum, sums);
    if (threadIdx.x == part) of_part[0] = up_to - sum, of_part[1] = sum;
    u32 all = sums[WARP - 1];
    __syncthreads();
    u32 before = of_part[0], own = of_part[1];
    if (all != 0 && threadIdx.x < WARP) clear_sums(of.sums, threadIdx.x);
    if (own != 0) {
        make_index<FINISHERS>(of, begin, end, before, sums);
    } else {
        for (u64 at = begin + threadIdx.x; at < end; at += FINISHERS) of.index[at] = before;
    }
    if (part == gridDim.x - 1 && threadIdx.x == 0) of.index[of.pages()] = all;
    bool fits = put_header(of, (u64)part * FINISHERS + threadIdx.x, all);
    if (!fits || own == 0) return;
    for (u64 first = begin * PER_PAGE; first < end * PER_PAGE; first += FINISHERS) {
        u64 at = first + threadIdx.x;
        put_overflows(of, all_overflows[threadIdx.x / WARP], at, at < end * PER_PAGE, threadIdx.x % WARP);
        __syncwarp();
    }
}

struct Reading {
    Frozen from;
    uint4* to;
    Params params;
};

BUDDY_FN Tile this_tile() {
    __shared__ __align__(128) uint4 chunks[WARPS * WARP * CHUNKS];
    return {chunks + threadIdx.x / WARP * (WARP * CHUNKS), threadIdx.x % WARP};
}

// Fetches and decodes the entries at 32 places, one per lane. Entries that are not wanted or fail
// to decode read as zeros. `IN_ORDER` states that the places are consecutive.
template <bool IN_ORDER>
BUDDY_FN void load_places(const Reading& of, const Tile& tile, u64 place, bool wanted) {
    const Frozen& from = of.from;
    u32 nibble = wanted ? from.nibbles[place / 2] >> (place % 2 * 4) & 15 : (u32)ZERO;
    u32 over = sectors_over(nibble, from.device_bytes);
    const u8* rest = over == 0 ? nullptr : from.sectors_of(place, over);
    // An index past the overflow area counts as a reserved nibble.
    if (over != 0 && rest == nullptr) nibble = NIBBLES;
    Place mine = {(u8*)from.device + place * from.device_bytes, (u8*)rest, from.device_bytes};
    auto there = [&](u32 row) {
        return Place{(u8*)__shfl_sync(ALL, (u64)mine.device, row), (u8*)__shfl_sync(ALL, (u64)mine.buddy, row), mine.device_bytes};
    };
    bool small = is_small(nibble, mine);
    u32 used = small ? 0 : chunks_of(nibble);
    if (IN_ORDER) along_page(tile, (u8*)from.device + (place - tile.lane) * from.device_bytes, from.device_bytes, used, there, Fetch());
    else along_rows(tile, ALL, 0, used, there, Fetch());
    if (small) cp_async<8>(tile.at(tile.lane, 0), mine.device);
    cp_async_wait_warp();
    if (nibble == RAW && from.order.row == 0) return;
    u32 words[WORDS];
    Row row(tile);
    if (nibble == RAW) row.load_all(words);
    else if (decode_words<Codec>(row, nibble, words, of.params) != OK && from.fault != nullptr) atomicMin(from.fault, place << 8 | INVALID);
    from.order.to_plain(words);
    row.store_all(words);
}

// Stores chunks as the activation's output.
struct Forward {
    static BUDDY_FN void put(const Reading& of, u64 at, const uint4& kept, const uint4*) { __stcg(of.to + at, forward_of(kept)); }
};
// Stores chunks as gradients of the activation's input.
struct Backward {
    static BUDDY_FN void put(const Reading& of, u64 at, const uint4& kept, const uint4* gradients) {
        auto of_pair = [](u32 pair, u32 gradients) { return Activation::backward(pair, gradients); };
        uint4 g = __ldcs(gradients + at);
        __stcg(of.to + at, make_uint4(of_pair(kept.x, g.x), of_pair(kept.y, g.y), of_pair(kept.z, g.z), of_pair(kept.w, g.w)));
    }
};

// Stores the tile's rows at the entries of the lanes. `IN_ORDER` states that these are consecutive
// unless the data is a matrix.
template <class Way, bool IN_ORDER>
BUDDY_FN void put_rows(const Reading& of, const Tile& tile, u64 entry, u32 active, const uint4* gradients = nullptr) {
    __syncwarp();
    if (IN_ORDER && active == ALL && of.from.order.row == 0) {
        u64 mine = (entry - tile.lane) * CHUNKS + tile.lane;
        along_plain(tile, ALL, [&](uint4* shared, u32 index) { Way::put(of, mine + (index - tile.lane), *shared, gradients); });
        return;
    }
    BUDDY_UNROLL
    for (u32 i = 0; i < CHUNKS; i++) {
        u32 row = i * (WARP / CHUNKS) + tile.lane / CHUNKS, chunk = tile.lane % CHUNKS;
        u64 at = __shfl_sync(ALL, entry, row) * CHUNKS + chunk;
        if (active >> row & 1) Way::put(of, at, *tile.at(row, chunk), gradients);
    }
}

// Reads `count` places from `first` on, 32 per warp. `to` begins with entry `base`.
template <class Way>
BUDDY_FN void read_places(const Reading& of, u64 first, u64 count, u64 base, const uint4* gradients = nullptr) {
    Tile tile = this_tile();
    u64 place = ((u64)page_of_block() * WARPS + threadIdx.x / WARP) * WARP + tile.lane;
    bool wanted = place < count;
    u64 entry = of.from.order.entry_at(first + place);
    wanted = wanted && entry < of.from.order.entries;
    u32 active = __ballot_sync(ALL, wanted);
    if (active == 0) return;
    load_places<true>(of, tile, first + place, wanted);
    put_rows<Way, true>(of, tile, entry - base, active, gradients);
}

extern "C" __global__ void __launch_bounds__(WARPS* WARP, BUDDY_BLOCKS)
    frozen_read(const __grid_constant__ Reading of, u64 first, u64 count, u64 base) {
    read_places<Forward>(of, first, count, base);
}

// Computes the gradients of an activation's input; rereads what `frozen_read` reads.
extern "C" __global__ void __launch_bounds__(WARPS* WARP, BUDDY_BLOCKS)
    frozen_back(const __grid_constant__ Reading of, u64 first, u64 count, u64 base, const uint4* gradients) {
    if (Activation::ACTIVE) read_places<Backward>(of, first, count, base, gradients);
}

// Gathers entry list[i] to the i-th of `to`; entries out of range read as zeros.
extern "C" __global__ void __launch_bounds__(WARPS* WARP, BUDDY_BLOCKS)
    frozen_gather(const __grid_constant__ Reading of, const u32* list, u64 count) {
    Tile tile = this_tile();
    u64 at = ((u64)blockIdx.x * WARPS + threadIdx.x / WARP) * WARP + tile.lane;
    u32 active = __ballot_sync(ALL, at < count);
    if (active == 0) return;
    u64 entry = at < count ? list[at] : 0;
    bool wanted = at < count && entry < of.from.order.entries;
    load_places<false>(of, tile, wanted ? of.from.order.place_of(entry) : 0, wanted);
    put_rows<Forward, false>(of, tile, at, active);
}
