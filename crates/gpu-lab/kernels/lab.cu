// Kernels for checks and measurements: test data, the library's constants and addresses, and plain
// copies and comparisons.
#include "buddy_device.cuh"
#include "fill.cuh"

using namespace buddy;

BUDDY_FN u64 thread_index() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
BUDDY_FN u64 thread_count() { return (u64)gridDim.x * blockDim.x; }

// Writes the compiled constants: then bytes, class and layout of every nibble.
extern "C" __global__ void buddy_constants(u32* out) {
    const u32 constants[] = {ENTRY, SECTOR, PAGE_ENTRIES, SMALL, STREAM_BITS, sizeof(Memory), sizeof(Page), sizeof(Params), sizeof(BuddyView)};
    u32 at = 0;
    for (u32 constant : constants) out[at++] = constant;
    for (u32 nibble = 0; nibble < NIBBLES; nibble++) {
        out[at++] = class_of(nibble);
        out[at++] = layout_of(nibble);
        out[at++] = class_bytes(class_of(nibble));
        out[at++] = nibble_of(class_of(nibble), layout_of(nibble));
    }
}

// Writes the addresses of the listed entries: device address, device bytes, buddy address, buddy
// bytes, and the address of chunk 7.
extern "C" __global__ void buddy_places(Memory memory, const u32* list, u64 count, u64* out) {
    u64 at = thread_index();
    if (at >= count) return;
    Place place = place_of(memory, list[at]);
    out[5 * at] = (u64)place.device;
    out[5 * at + 1] = place.device_bytes;
    out[5 * at + 2] = (u64)place.buddy;
    out[5 * at + 3] = buddy_bytes(place.device_bytes);
    out[5 * at + 4] = (u64)chunk_at(place, CHUNKS - 1);
}

// Fills entries with data of one kind; `share` in 65536 of them become incompressible noise.
extern "C" __global__ void buddy_fill(u32* to, u64 entries, u32 kind, u64 seed, u32 share) {
    for (u64 at = thread_index(); at < entries * WORDS; at += thread_count()) {
        to[at] = fill_word(at, kind, seed, share);
    }
}

// A list of random entries.
extern "C" __global__ void buddy_fill_list(u32* to, u64 count, u64 entries, u64 seed) {
    for (u64 at = thread_index(); at < count; at += thread_count()) to[at] = (u32)(mix(seed + at) % entries);
}

// Counts the words that differ.
extern "C" __global__ void buddy_compare(const uint4* a, const uint4* b, u64 chunks, u64* different) {
    u32 found = 0;
    for (u64 at = thread_index(); at < chunks; at += thread_count()) {
        uint4 x = a[at], y = b[at];
        found += (x.x != y.x) + (x.y != y.y) + (x.z != y.z) + (x.w != y.w);
    }
    found = __reduce_add_sync(ALL, found);
    if (threadIdx.x % WARP == 0 && found != 0) atomicAdd(different, (u64)found);
}

// Reads the first `bytes` of every `stride` bytes: overflow slots at their distance.
extern "C" __global__ void buddy_read_slots(const u8* from, uint4* to, u64 slots, u32 bytes, u32 stride) {
    u32 chunks = bytes / CHUNK;
    for (u64 at = thread_index(); at < slots * chunks; at += thread_count()) {
        __stcs(to + at, *(const uint4*)(from + at / chunks * stride + at % chunks * CHUNK));
    }
}

// Fills memory with copies of a tile.
extern "C" __global__ void buddy_repeat(const uint4* tile, u64 chunks, uint4* to, u64 count) {
    u64 step = thread_count(), from = thread_index() % chunks, by = step % chunks;
    for (u64 at = thread_index(); at < count; at += step) {
        to[at] = tile[from];
        from += by;
        if (from >= chunks) from -= chunks;
    }
}

// Reads everything and stores nothing, to measure read bandwidth.
extern "C" __global__ void buddy_read_all(const uint4* from, u64 chunks, u64* count) {
    u32 found = 0;
    for (u64 at = thread_index() * 4; at + 3 < chunks; at += thread_count() * 4) {
        BUDDY_UNROLL
        for (u32 i = 0; i < 4; i++) {
            uint4 v = __ldcs(from + (at - thread_index() % WARP * 4) + i * WARP + thread_index() % WARP);
            found |= (v.x ^ v.y) & (v.z ^ v.w);
        }
    }
    if (found == 0x12345678) atomicAdd(count, 1ull);
}

// Gathers plain entries, eight threads per entry, four entries per thread. Entries out of range
// read the first one.
extern "C" __global__ void buddy_gather_plain(const uint4* from, u64 entries, uint4* to, const u32* list, u64 count) {
    u64 at = ((u64)blockIdx.x * blockDim.x * 4 + threadIdx.x) / CHUNKS, step = blockDim.x / CHUNKS;
    u32 chunk = threadIdx.x % CHUNKS;
    uint4 v[4];
    BUDDY_UNROLL
    for (u32 i = 0; i < 4; i++) {
        u64 row = at + i * step;
        u64 entry = row < count ? list[row] : 0;
        if (row < count) v[i] = from[(entry < entries ? entry : 0) * CHUNKS + chunk];
    }
    BUDDY_UNROLL
    for (u32 i = 0; i < 4; i++) {
        u64 row = at + i * step;
        if (row < count) __stcs(to + row * CHUNKS + chunk, v[i]);
    }
}

// Ends the context with a sticky error.
extern "C" __global__ void buddy_trap() { asm volatile("trap;"); }

// Returns word `word` of an entry that is difficult for a codec: sizes just below and above every
// class, special floats, single bits.
BUDDY_FN u32 hard_word(u64 entry, u32 word, u64 seed) {
    u64 of_entry = mix(seed ^ mix(entry)), random = mix(of_entry ^ mix(word + 1));
    u32 noise = (u32)random, some = (u32)(of_entry >> 32), count = some % 33, bits = (some >> 8) % 33;
    u32 low = bits == 32 ? 0xffffffffu : (1u << bits) - 1;
    const u32 specials[8] = {0x7f800000, 0xff800000, 0x7fc00001, 0xffffffff, 0x80000000, 1, 0x007fffff, 0x3f800000};
    switch (of_entry % 16) {
        case 0: return 0;
        case 1: return 0xffffffffu;
        case 2: return word == count % 32 ? 1u << (some >> 16) % 32 : 0;
        case 3: return word < count ? noise : 0;  // `count` words, for codecs of zeros
        case 4: return (mix(random) & 31) < count ? noise | 1 : 0;          // the same, scattered
        case 5: return some + 3 * word + (noise & low);  // a ramp with up to `count` noisy bits, for planes
        case 6: return some - 0x01000193u * word;
        case 7: return word & 1 ? some : ~some;
        case 8: return specials[random % 8];                                // of fp32
        case 9: return (specials[random % 8] >> 16) | (specials[(random >> 8) % 8] & 0xffff0000u);  // of bf16 and fp16
        case 10: return word & 1 ? 0x3ff00000u + (noise & low & 0xfffff) : noise & low;             // doubles near 1
        case 11: return word & 1 ? specials[random % 2] + (word << 2) : 0;
        case 12: return word < count ? 0x3d803d80u ^ (noise & 0x807f807fu) : 0x01000100u * (noise & 0x7f);  // exponents apart
        case 13: return 0x3c003c00u ^ (noise & 0x83ff83ffu);
        case 14: return word == 31 ? noise : some;                          // all equal but the last
        default: return noise;
    }
}

// Fills entries with difficult data.
extern "C" __global__ void buddy_fill_hard(u32* to, u64 entries, u64 seed) {
    for (u64 at = thread_index(); at < entries * WORDS; at += thread_count()) to[at] = hard_word(at / WORDS, at % WORDS, seed);
}

// Sets 16 bytes at a time to one word.
extern "C" __global__ void buddy_set(uint4* to, u64 count, u32 word) {
    for (u64 at = thread_index(); at < count; at += thread_count()) to[at] = make_uint4(word, word, word, word);
}
