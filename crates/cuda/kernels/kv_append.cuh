// Appends a token's keys and values to compressed memory, four lanes per entry, and applies RoPE.
#pragma once
#include "bulk.cuh"
#include "buddy_device.cuh"
#include "kv.cuh"
#include "quad.cuh"

namespace buddy {

// Returns the cache as a `BuddyView` with the window of some of its entries.
BUDDY_FN BuddyView view_of(const KvCache& cache, u32 window) { return {cache.memory, {window, 0, nullptr}}; }

BUDDY_FN void set(u32 (&out)[8], uint4 a, uint4 b) {
    out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
}

// Reduces a word over the four lanes of an entry.
template <class Join>
BUDDY_FN u32 join_quad(u32 word, Join join) {
    u32 quad = 15u << (threadIdx.x % WARP & ~3u);
    word = join(word, __shfl_xor_sync(quad, word, 1));
    return join(word, __shfl_xor_sync(quad, word, 2));
}
BUDDY_FN u32 or_quad(u32 word) {
    return join_quad(word, [](u32 a, u32 b) { return a | b; });
}
BUDDY_FN QuadRange range_of_quad(const u32 (&words)[8]) {
    QuadRange mine = QuadRange::of(words);
    return {or_quad(mine.any), join_quad(mine.low, [](u32 a, u32 b) { return min(a, b); }),
            join_quad(mine.high, [](u32 a, u32 b) { return max(a, b); })};
}

// Appends an entry whose layout depends on the whole of it, with one thread.
__device__ __noinline__ void append_rare(const KvCache* cache, const u32 (&words)[WORDS], u64 entry, u32 window) {
    u32 own[WORDS];
    for (u32 i = 0; i < WORDS; i++) own[i] = words[i];
    thread::store_entry<Bf16>(view_of(*cache, window), entry, own);
}

// Writes a lane's quarter of an entry in the layout of its nibble. `overflow` is the address of the
// last sector.
BUDDY_FN void append_quarter(u8* at, u8* overflow, u32 quarter, const u32 (&words)[8], u32 nibble, u32 window, u32 high, u32 escapes,
                             u32 before) {
    if (nibble == RAW) {
        uint4* to = (uint4*)(quarter == 3 ? overflow : at + quarter * SECTOR);
        to[0] = make_uint4(words[0], words[1], words[2], words[3]), to[1] = make_uint4(words[4], words[5], words[6], words[7]);
        return;
    }
    Quad4 bytes = quad_bytes(words);
    ((uint4*)at)[quarter] = make_uint4(bytes.words[0], bytes.words[1], bytes.words[2], bytes.words[3]);
    if (nibble == RAW + 1) {
        u32 codes[2];
        quad_codes(words, window, codes);
        ((uint2*)(at + 4 * Bf16::CODES))[quarter] = make_uint2(codes[0], codes[1]);
        return;
    }
    u32 planes[3];
    quad_planes(words, high, planes);
    u64 tail = quad_tail(words, escapes, before);
    u32 low_word = or_quad((u32)tail), high_word = or_quad((u32)(tail >> 32));
    BUDDY_UNROLL
    for (u32 bit = 0; bit < 3; bit++) ((unsigned short*)(at + 4 * Bf16::CODES + 8 * bit))[quarter] = (unsigned short)planes[bit];
    if (quarter == 0) *(uint2*)(at + Bf16::BASE_BYTE) = make_uint2(low_word | high, high_word);
}

// Shifts the sixteen values of a quarter by sixteen bytes, aligned.
BUDDY_FN void shift_quarter(u32 (&words)[8], const u8* shifts) {
    uint4 by = *(const uint4*)shifts;
    if ((by.x | by.y | by.z | by.w) == 0) return;
    const u32 all[4] = {by.x, by.y, by.z, by.w};
    BUDDY_UNROLL
    for (u32 i = 0; i < 8; i++) words[i] = shift_word(words[i], all[i / 2] >> i % 2 * 16);
}

// Destination of an entry of a token.
struct KvSlot {
    u32 layer, head, which, part;
    long long slot;
};

// Appends an entry, a quarter per lane.
BUDDY_FN void append(const KvCache& cache, const KvSlot& to, u32 quarter, u32 (&words)[8]) {
    if (to.slot < 0 || to.slot >= (long long)cache.pages * cache.page_tokens) return;
    u32 page = (u32)to.slot / cache.page_tokens, position = (u32)to.slot % cache.page_tokens;
    u64 entry = cache.entry(to.layer, page, to.head, position, to.which, to.part);
    u32 window = *cache.window(to.layer, to.head, to.which), first = threadIdx.x % WARP & ~3u;
    // All threads that find it unused write the same.
    if (window == UNUSED) *cache.window(to.layer, to.head, to.which) = window = USED;
    shift_quarter(words, cache.shift(to.layer, to.head, to.which, to.part * VALUES + quarter * (VALUES / 4)));
    u8* at = cache.memory.device + entry * (3 * SECTOR);
    QuadRange range = range_of_quad(words);
    u32 escapes = quad_escapes(words, range.high), mine = ones_in(escapes);
    u32 counts = or_quad(mine << 8 * quarter);
    u32 sums = counts * 0x01010101u, nibble = range.nibble(window, sums >> 24), before = quarter == 0 ? 0 : sums >> 8 * (quarter - 1) & 0xff;
    // Only a window that is chosen later could hold it.
    if (nibble == RAW + 1 && window > LAST_WINDOW) nibble = RAW;
    if (nibble == NIBBLES) {
        u32 all[WORDS];
        BUDDY_UNROLL
        for (u32 i = 0; i < WORDS; i++) all[i] = __shfl_sync(15u << first, words[i % 8], first + i / 8);
        if (quarter == 0) append_rare(&cache, all, entry, window);
        return;
    }
    append_quarter(at, cache.memory.buddy + entry * SECTOR, quarter, words, nibble, window, range.high, escapes, before);
    if (quarter == 0) store_nibble(cache.memory, entry, nibble);
}
// RoPE as in the Llama family: rotates each value with its partner half a head away. `first` is
// true in the first half of the head.
BUDDY_FN void apply_rope(u32 (&words)[8], const u32 (&others)[8], const float4* rope, bool first) {
    BUDDY_UNROLL
    for (u32 i = 0; i < 8; i++) {
        float4 by = rope[i];  // cosine and sine of two values
        float sign = first ? -1.0f : 1.0f;
        float low = __fmaf_rn(from_bf16(words[i]), by.x, sign * from_bf16(others[i]) * by.y);
        float high = __fmaf_rn(from_bf16(words[i] >> 16), by.z, sign * from_bf16(others[i] >> 16) * by.w);
        words[i] = to_bf16(low, high);
    }
}

}  // namespace buddy
