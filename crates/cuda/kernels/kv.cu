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

// Calls `use` with this lane's quarter of each entry of a head, and the quarter's first value. Tokens
// whose slot is negative are left out.
template <class Use>
BUDDY_FN void each_quarter(const KvCache& cache, const KvRows& rows, const long long* slots, u32 layer_at, u32 head, u32 which, Use use) {
    u32 quarter = threadIdx.x % 4;
    for (u32 at = threadIdx.x / 4; at < rows.tokens * cache.head_entries; at += TRAIN_THREADS / 4) {
        u32 token = at / cache.head_entries, part = at % cache.head_entries, words[8];
        if (slots != nullptr && slots[token] < 0) continue;
        const uint4* from = rows.entry(cache, layer_at, token, which, head, part);
        set(words, from[2 * quarter], from[2 * quarter + 1]);
        use(words, part * VALUES + quarter * (VALUES / 4));
    }
}

// Chooses the windows and shifts of layers, one CTA for each layer, head, and keys or values
// (docs/explain/attention.md). With `slots`, only what is not chosen yet, from the tokens whose slot is
// not negative: shifts before any token is stored, a window once there are enough tokens.
extern "C" __global__ void __launch_bounds__(TRAIN_THREADS) kv_train(const __grid_constant__ KvCache cache,
                                                                     const __grid_constant__ KvRows rows, const long long* slots) {
    launch_dependent_grids();
    __shared__ int change[WindowVotes::CHANGES];
    // The largest exponent of each value of the head.
    __shared__ u32 most[2 * VALUES], used, typical, greatest, tokens;
    __align__(16) __shared__ u8 shifts[2 * VALUES];
    for (u32 i = threadIdx.x; i < WindowVotes::CHANGES; i += TRAIN_THREADS) change[i] = 0;
    if (threadIdx.x < 2 * VALUES) most[threadIdx.x] = 0, shifts[threadIdx.x] = 0;
    if (threadIdx.x == 0) used = typical = greatest = tokens = 0;
    __syncthreads();
    wait_on_dependent_grids();
    u32 which = blockIdx.x % 2, head = blockIdx.x / 2 % cache.heads, layer_at = blockIdx.x / 2 / cache.heads;
    u32 quarter = threadIdx.x % 4, values = cache.head_entries * VALUES;
    u8* window = cache.window(rows.layer + layer_at, head, which);
    u32 old = *window;
    if (slots != nullptr && old <= LAST_WINDOW) return;
    each_quarter(cache, rows, slots, layer_at, head, which, [&](u32(&words)[8], u32 value) {
        if (value == 0) atomicAdd(&tokens, 1u);
        for (u32 i = 0; i < 16; i++) {
            u32 exponent = words[i / 2] >> (i % 2 * 16 + 7) & 0xff;
            if (exponent != 255) atomicMax(&most[value + i], exponent);
        }
    });
    __syncthreads();
    if (slots != nullptr && tokens < (old == USED ? TRAIN_TOKENS : 1)) return;
    // RoPE moves the size of a key's column to its partner, half a head away, as positions grow.
    u32 mine = threadIdx.x < values ? most[threadIdx.x] : 0;
    if (which == 0 && mine != 0) mine = max(mine, most[threadIdx.x < values / 2 ? threadIdx.x + values / 2 : threadIdx.x - values / 2]);
    __syncthreads();
    if (threadIdx.x < values) most[threadIdx.x] = mine;
    if (mine != 0) atomicAdd(&used, 1u), atomicMax(&greatest, mine);
    __syncthreads();
    // A quarter of the columns that are not zero are smaller than the typical one.
    u32 before = 0;
    for (u32 i = 0; i < values; i++) before += most[i] != 0 && (most[i] < mine || (most[i] == mine && i < threadIdx.x));
    if (mine != 0 && before == used / 4) typical = mine;
    __syncthreads();
    u32 base = typical + 1;
    if (threadIdx.x < values) {
        u32 shift = mine > base && greatest <= MOST_EXPONENT ? min(mine - base, MOST_SHIFT) : 0;
        u8* at = cache.shift(rows.layer + layer_at, head, which, threadIdx.x);
        shifts[threadIdx.x] = slots != nullptr && old == USED ? *at : *at = (u8)shift;
    }
    __syncthreads();
    if (slots != nullptr && tokens < TRAIN_TOKENS) {
        if (threadIdx.x == 0) *window = USED;
        return;
    }
    WindowVotes votes = {change};
    each_quarter(cache, rows, slots, layer_at, head, which, [&](u32(&words)[8], u32 value) {
        shift_quarter(words, shifts + value);
        QuadRange range = range_of_quad(words);
        if (quarter == 0) votes.cast(range);
    });
    __syncthreads();
    if (threadIdx.x == 0) *window = (u8)min(votes.best(BUDDY_WINDOW), MOST_EXPONENT);
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
        u32 row_which = __shfl_sync(ALL, which, row), row_part = __shfl_sync(ALL, part, row);
        uint2 by = __ldg((const uint2*)cache.shift(layer, head, row_which, row_part * VALUES + chunk * 8));
        uint4 v = *tile.at(row, chunk);
        if ((by.x | by.y) != 0) {
            v.x = unshift_word(v.x, by.x), v.y = unshift_word(v.y, by.x >> 16);
            v.z = unshift_word(v.z, by.y), v.w = unshift_word(v.w, by.y >> 16);
        }
        if (active >> row & 1) __stcs((uint4*)there + chunk, v);
    }
}
