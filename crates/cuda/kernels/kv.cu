// Keys and values into compressed memory and out of it: appended token by token, trained on the first of them, read as they were.
#include "bulk.cuh"
#include "buddy_device.cuh"
#include "kv.cuh"
#include "quad.cuh"

using namespace buddy;

// Plain keys and values of tokens, for one or more layers one after the other: of a token all its heads. Strides are in values.
struct KvRows {
    const unsigned short *keys, *values;
    u64 layer_stride, token_stride;
    u32 layer, layers, tokens;
    u32 reserved;

    BUDDY_FN const uint4* entry(const KvCache& cache, u32 layer_at, u32 token, u32 which, u32 head, u32 part) const {
        u64 at = layer_at * layer_stride + token * token_stride + (head * cache.parts + part) * VALUES;
        return (const uint4*)((which ? values : keys) + at);
    }
};

// The cache as the library's own functions take it, with the window of some of its entries.
BUDDY_FN BuddyView view_of(const KvCache& cache, u32 window) { return {cache.memory, {window, 0, nullptr}}; }

BUDDY_FN void set(u32 (&out)[8], uint4 a, uint4 b) {
    out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
}

// Joins a word of the four lanes of an entry.
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

// An entry whose layout takes all of it to know, by one thread.
__device__ __noinline__ void append_rare(const KvCache* cache, const u32 (&words)[WORDS], u64 entry, u32 window) {
    u32 own[WORDS];
    for (u32 i = 0; i < WORDS; i++) own[i] = words[i];
    thread::store_entry<Bf16>(view_of(*cache, window), entry, own);
}

// Writes an entry in the layout that its nibble names, a quarter of it by each of four lanes.
BUDDY_FN void append_quarter(const KvCache& cache, u64 entry, u32 quarter, const u32 (&words)[8], u32 nibble, u32 window, u32 high,
                             u32 escapes, u32 before) {
    u8* at = cache.memory.device + entry * (3 * SECTOR);
    if (nibble == RAW) {
        uint4* to = (uint4*)(quarter == 3 ? cache.memory.buddy + entry * SECTOR : at + quarter * SECTOR);
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

// Where a head's part of a token goes.
struct Spot {
    u32 layer, head, which, part;
    long long slot;
};

// Appends an entry, a quarter of it by each of four lanes.
BUDDY_FN void append(const KvCache& cache, const Spot& spot, u32 quarter, const u32 (&words)[8]) {
    if (spot.slot < 0 || spot.slot >= (long long)cache.pages * cache.page_tokens) return;
    u32 page = (u32)spot.slot / cache.page_tokens, place = (u32)spot.slot % cache.page_tokens;
    u64 entry = cache.entry(spot.layer, page, spot.head, place, spot.which, spot.part);
    u32 window = *cache.window(spot.layer, spot.head, spot.which);
    QuadRange range = range_of_quad(words);
    u32 escapes = quad_escapes(words, range.high), mine = ones_in(escapes);
    u32 counts = or_quad(mine << 8 * quarter);
    u32 sums = counts * 0x01010101u, nibble = range.nibble(window, sums >> 24);
    if (nibble == NIBBLES) {
        u32 all[WORDS], first = threadIdx.x % WARP & ~3u;
        BUDDY_UNROLL
        for (u32 i = 0; i < WORDS; i++) all[i] = __shfl_sync(15u << first, words[i % 8], first + i / 8);
        if (quarter == 0) append_rare(&cache, all, entry, window);
        return;
    }
    append_quarter(cache, entry, quarter, words, nibble, window, range.high, escapes, quarter == 0 ? 0 : sums >> 8 * (quarter - 1) & 0xff);
    if (quarter == 0) store_nibble(cache.memory, entry, nibble);
}

constexpr u32 APPEND_THREADS = 128;

// Appends tokens: token i goes to slot slots[i], which is page * page_tokens + its place in the page; one below zero, or past
// the end, is left out. Four lanes to an entry, and a row of blocks to a layer. The cache's windows are there.
extern "C" __global__ void __launch_bounds__(APPEND_THREADS) kv_append(const __grid_constant__ KvCache cache,
                                                                       const __grid_constant__ KvRows rows, const long long* slots) {
    launch_dependent_grids();
    wait_on_dependent_grids();
    u32 at = blockIdx.x * (APPEND_THREADS / 4) + threadIdx.x / 4, layer_at = blockIdx.y;
    u32 quarter = threadIdx.x % 4;
    u32 part = at & (cache.parts - 1), rest = at >> (cache.parts - 1), token = rest / (2 * cache.heads);
    u32 head = rest % (2 * cache.heads), which = head >= cache.heads;
    if (token >= rows.tokens) return;
    head -= which * cache.heads;
    const uint4* from = rows.entry(cache, layer_at, token, which, head, part);
    u32 words[8];
    set(words, from[2 * quarter], from[2 * quarter + 1]);
    append(cache, {rows.layer + layer_at, head, which, part, __ldg(slots + token)}, quarter, words);
}

// One token of each sequence as the product of queries, keys and values leaves it: of each all heads of queries, of keys and of
// values, one after the other.
struct Fresh {
    const unsigned short* rows;
    unsigned short* queries;  // turned: of each sequence all heads
    const float2* turns;      // for each position and half the values of a head the cosine and the sine
    const int* lengths;       // tokens of each sequence, this one included
    const int* table;         // pages
    u32 table_stride, sequences, group, layer;
};

// Rotary embedding: a value and the one half a head away turn together, as in the Llama family.
BUDDY_FN void turn(u32 (&words)[8], const u32 (&others)[8], const float2* turns, bool first) {
    BUDDY_UNROLL
    for (u32 i = 0; i < 8; i++) {
        float4 by = ((const float4*)turns)[i];  // two of them
        float sign = first ? -1.0f : 1.0f;
        float low = from_bf16(words[i]) * by.x + sign * from_bf16(others[i]) * by.y;
        float high = from_bf16(words[i] >> 16) * by.z + sign * from_bf16(others[i] >> 16) * by.w;
        words[i] = to_bf16(low, high);
    }
}

// Turns queries and keys of one token of each sequence by its position, and appends keys and values. Four lanes to 64 values.
extern "C" __global__ void __launch_bounds__(APPEND_THREADS) kv_append_turned(const __grid_constant__ KvCache cache,
                                                                              const __grid_constant__ Fresh fresh) {
    launch_dependent_grids();
    wait_on_dependent_grids();
    u32 queries = cache.heads * fresh.group, heads = queries + 2 * cache.heads, values = cache.parts * VALUES;
    u32 at = blockIdx.x * (APPEND_THREADS / 4) + threadIdx.x / 4, quarter = threadIdx.x % 4;
    u32 part = at & (cache.parts - 1), rest = at >> (cache.parts - 1), sequence = rest / heads, head = rest % heads;
    if (sequence >= fresh.sequences) return;
    u32 start = part * VALUES + quarter * (VALUES / 4), half = values / 2;
    const unsigned short* row = fresh.rows + ((u64)sequence * heads + head) * values;
    const uint4 *own = (const uint4*)(row + start), *away = (const uint4*)(row + (start + half) % values);
    u32 words[8], others[8];
    set(words, own[0], own[1]);
    int position = fresh.lengths[sequence] - 1;
    if (position < 0) return;
    if (head < queries + cache.heads) {
        set(others, away[0], away[1]);
        turn(words, others, fresh.turns + (u64)position * half + start % half, start < half);
    }
    if (head < queries) {
        uint4* to = (uint4*)(fresh.queries + ((u64)sequence * queries + head) * values + start);
        to[0] = make_uint4(words[0], words[1], words[2], words[3]), to[1] = make_uint4(words[4], words[5], words[6], words[7]);
        return;
    }
    u32 which = head >= queries + cache.heads, page = fresh.table[sequence * fresh.table_stride + position / cache.page_tokens];
    long long slot = (long long)page * cache.page_tokens + position % cache.page_tokens;
    append(cache, {fresh.layer, head - queries - which * cache.heads, which, part, slot}, quarter, words);
}

constexpr u32 TRAIN_THREADS = 256;

// Chooses the windows of layers: a block for each layer, head, and keys or values. The rule is docs/format.md's.
extern "C" __global__ void __launch_bounds__(TRAIN_THREADS) kv_train(const __grid_constant__ KvCache cache,
                                                                     const __grid_constant__ KvRows rows) {
    launch_dependent_grids();
    __shared__ int change[257];
    for (u32 i = threadIdx.x; i < 257; i += TRAIN_THREADS) change[i] = 0;
    __syncthreads();
    wait_on_dependent_grids();
    u32 which = blockIdx.x % 2, head = blockIdx.x / 2 % cache.heads, layer_at = blockIdx.x / 2 / cache.heads;
    u32 quarter = threadIdx.x % 4;
    for (u32 at = threadIdx.x / 4; at < rows.tokens * cache.parts; at += TRAIN_THREADS / 4) {
        const uint4* from = rows.entry(cache, layer_at, at / cache.parts, which, head, at % cache.parts);
        u32 words[8];
        set(words, from[2 * quarter], from[2 * quarter + 1]);
        QuadRange range = range_of_quad(words);
        u32 first = range.high < Bf16::WINDOW ? 0 : range.high - (Bf16::WINDOW - 1);
        if (quarter == 0 && first <= range.low) atomicAdd(change + first, 1), atomicAdd(change + range.low + 1, -1);
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    int count = 0, most = 0;
    u32 best = BUDDY_KV_WINDOW;
    for (u32 window = 0; window <= 256 - Bf16::WINDOW; window++) {
        count += change[window];
        if (count > most) most = count, best = window;
    }
    *cache.window(rows.layer + layer_at, head, which) = (u8)best;
}

constexpr u32 READ_WARPS = 2;

// Tokens of one sequence, from `first` on, as they were: of each all its heads. A warp takes 32 entries: sixteen keys or values
// of 128, or sixteen keys and as many values of 64.
extern "C" __global__ void __launch_bounds__(READ_WARPS* WARP, 12)
    kv_read(const __grid_constant__ KvCache cache, u32 layer, const int* table, u32 first, u32 count, unsigned short* keys,
            unsigned short* values) {
    __shared__ __align__(128) uint4 chunks[READ_WARPS * WARP * CHUNKS];
    launch_dependent_grids();
    wait_on_dependent_grids();
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, index = blockIdx.x * READ_WARPS + warp;
    Tile tile = {chunks + warp * (WARP * CHUNKS), lane};
    u32 which = cache.parts == 2 ? index % 2 : lane / SIXTEEN, part = cache.parts == 2 ? lane / SIXTEEN : 0;
    if (cache.parts == 2) index /= 2;
    u32 head = index % cache.heads, sixteen = first / SIXTEEN + index / cache.heads, end = first + count;
    if (sixteen * SIXTEEN >= end) return;
    u32 token = sixteen * SIXTEEN + lane % SIXTEEN, page = table[sixteen * SIXTEEN / cache.page_tokens];
    u32 active = __ballot_sync(ALL, token >= first && token < end);
    u64 entry = cache.first_entry(layer, page, head, sixteen * SIXTEEN % cache.page_tokens);
    if (cache.parts == 2) entry += which * WARP;
    warp::load_entries<Bf16>(view_of(cache, *cache.window(layer, head, which)), tile, entry, active);
    __syncwarp();
    u64 to = (u64)(which ? values : keys) + (((u64)(token - first) * cache.heads + head) * cache.parts + part) * ENTRY;
    for (u32 i = 0; i < CHUNKS; i++) {
        u32 row = i * (WARP / CHUNKS) + lane / CHUNKS, chunk = lane % CHUNKS;
        u64 there = __shfl_sync(ALL, to, row);
        if (active >> row & 1) __stcs((uint4*)there + chunk, *tile.at(row, chunk));
    }
}
