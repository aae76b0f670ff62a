// KV cache kernels: append tokens, choose the windows of exponents, and read tokens back.
#include "kv_append.cuh"
#include "window.cuh"

using namespace buddy;

// Plain keys and values: [layer][token][head]. Strides are in values.
struct KvRows {
    const unsigned short *keys, *values;
    u64 layer_stride, token_stride;
    u32 layer, layers, tokens;
    u32 reserved;

    BUDDY_FN const uint4* entry(const KvCache& cache, u32 layer_at, u32 token, u32 which, u32 head, u32 part) const {
        u64 at = layer_at * layer_stride + token * token_stride + (head * cache.head_entries + part) * VALUES;
        return (const uint4*)((which ? values : keys) + at);
    }
};

constexpr u32 APPEND_THREADS = 128;

// Appends token i to slot slots[i] = page * page_tokens + position in the page. Slots out of range
// are skipped. Four lanes per entry; blockIdx.y is the layer. The cache's windows must be set.
extern "C" __global__ void __launch_bounds__(APPEND_THREADS) kv_append(const __grid_constant__ KvCache cache,
                                                                       const __grid_constant__ KvRows rows, const long long* slots) {
    launch_dependent_grids();
    wait_on_dependent_grids();
    u32 at = blockIdx.x * (APPEND_THREADS / 4) + threadIdx.x / 4, layer_at = blockIdx.y;
    u32 quarter = threadIdx.x % 4;
    u32 part = at & (cache.head_entries - 1), rest = at >> (cache.head_entries - 1), token = rest / (2 * cache.heads);
    u32 head = rest % (2 * cache.heads), which = head >= cache.heads;
    if (token >= rows.tokens) return;
    head -= which * cache.heads;
    const uint4* from = rows.entry(cache, layer_at, token, which, head, part);
    u32 words[8];
    set(words, from[2 * quarter], from[2 * quarter + 1]);
    append(cache, {rows.layer + layer_at, head, which, part, __ldg(slots + token)}, quarter, words);
}

constexpr u32 TRAIN_THREADS = 256;

// Chooses the windows of layers, one CTA for each layer, head, and keys or values.
// docs/reference/format.md has the rule.
extern "C" __global__ void __launch_bounds__(TRAIN_THREADS) kv_train(const __grid_constant__ KvCache cache,
                                                                     const __grid_constant__ KvRows rows) {
    launch_dependent_grids();
    __shared__ int change[WindowVotes::CHANGES];
    for (u32 i = threadIdx.x; i < WindowVotes::CHANGES; i += TRAIN_THREADS) change[i] = 0;
    __syncthreads();
    WindowVotes votes = {change};
    wait_on_dependent_grids();
    u32 which = blockIdx.x % 2, head = blockIdx.x / 2 % cache.heads, layer_at = blockIdx.x / 2 / cache.heads;
    u32 quarter = threadIdx.x % 4;
    for (u32 at = threadIdx.x / 4; at < rows.tokens * cache.head_entries; at += TRAIN_THREADS / 4) {
        const uint4* from = rows.entry(cache, layer_at, at / cache.head_entries, which, head, at % cache.head_entries);
        u32 words[8];
        set(words, from[2 * quarter], from[2 * quarter + 1]);
        QuadRange range = range_of_quad(words);
        if (quarter == 0) votes.cast(range);
    }
    __syncthreads();
    if (threadIdx.x == 0) *cache.window(rows.layer + layer_at, head, which) = (u8)votes.best(BUDDY_WINDOW);
}

constexpr u32 READ_WARPS = 2;

// Reads `count` tokens of one sequence from `first` on: [token][head]. A warp takes 32 entries: 16
// keys or 16 values of a 128-value head, or 16 keys and 16 values of a 64-value head.
extern "C" __global__ void __launch_bounds__(READ_WARPS* WARP, 12)
    kv_read(const __grid_constant__ KvCache cache, u32 layer, const int* table, u32 first, u32 count, unsigned short* keys,
            unsigned short* values) {
    __align__(128) __shared__ uint4 chunks[READ_WARPS * WARP * CHUNKS];
    launch_dependent_grids();
    wait_on_dependent_grids();
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, index = blockIdx.x * READ_WARPS + warp;
    Tile tile = {chunks + warp * (WARP * CHUNKS), lane};
    u32 which = cache.head_entries == 2 ? index % 2 : lane / MMA_TOKENS, part = cache.head_entries == 2 ? lane / MMA_TOKENS : 0;
    if (cache.head_entries == 2) index /= 2;
    u32 head = index % cache.heads, mma_tile = first / MMA_TOKENS + index / cache.heads, end = first + count;
    if (mma_tile * MMA_TOKENS >= end) return;
    u32 token = mma_tile * MMA_TOKENS + lane % MMA_TOKENS, page = table[mma_tile * MMA_TOKENS / cache.page_tokens];
    u32 active = __ballot_sync(ALL, token >= first && token < end);
    u64 entry = cache.first_entry(layer, page, head, mma_tile * MMA_TOKENS % cache.page_tokens);
    if (cache.head_entries == 2) entry += which * WARP;
    warp::load_entries<Bf16>(view_of(cache, *cache.window(layer, head, which)), tile, entry, active);
    __syncwarp();
    u64 to = (u64)(which ? values : keys) + (((u64)(token - first) * cache.heads + head) * cache.head_entries + part) * ENTRY;
    for (u32 i = 0; i < CHUNKS; i++) {
        u32 row = i * (WARP / CHUNKS) + lane / CHUNKS, chunk = lane % CHUNKS;
        u64 there = __shfl_sync(ALL, to, row);
        if (active >> row & 1) __stcs((uint4*)there + chunk, *tile.at(row, chunk));
    }
}
