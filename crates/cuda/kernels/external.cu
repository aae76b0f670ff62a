// Kernels for memory that the caller owns: training of a window of exponents without a host
// synchronisation, and a writable bf16 matrix at 4/3x.
//
// Such a matrix is stored like a frozen one, in tiles of 16 rows with words in mma order, so that
// linear layers read it in place. Overflow has one slot per entry, so that rewriting a row moves
// nothing.
#include "buddy_device.cuh"
#include "frozen.cuh"
#include "window.cuh"

using namespace buddy;

constexpr u32 TRAIN_THREADS = 256;

// Trains a window on a sample of `runs` runs of `run` entries, spread evenly. One CTA.
extern "C" __global__ void __launch_bounds__(TRAIN_THREADS)
    window_train(const uint4* from, u64 entries, u64 runs, u64 run, u32* window) {
    __shared__ int change[WindowVotes::CHANGES];
    for (u32 i = threadIdx.x; i < WindowVotes::CHANGES; i += TRAIN_THREADS) change[i] = 0;
    __syncthreads();
    WindowVotes votes = {change};
    for (u64 i = threadIdx.x; i < runs * run; i += TRAIN_THREADS) {
        u64 first = i / run * (entries - run) / (runs > 1 ? runs - 1 : 1);
        const uint4* entry = from + (first + i % run) * CHUNKS;
        QuadRange range = {0, Bf16::EXPONENTS, 0};
        BUDDY_UNROLL
        for (u32 quarter = 0; quarter < 4; quarter++) {
            uint4 v = entry[2 * quarter], w = entry[2 * quarter + 1];
            const u32 words[8] = {v.x, v.y, v.z, v.w, w.x, w.y, w.z, w.w};
            range.join(QuadRange::of(words));
        }
        votes.cast(range);
    }
    __syncthreads();
    if (threadIdx.x == 0) *window = votes.best(BUDDY_WINDOW);
}

// `count` rows of a matrix from `first` on.
struct Rows {
    Order order;
    u32 first, count;
};

constexpr u32 WARPS = BUDDY_WARPS;

// The 32 places of this warp, two columns of a tile, and a mask of those requested.
struct Places {
    Tile tile;
    u64 start, entry;  // the first place; this lane's entry, counted from the first row
    u32 active;

    BUDDY_FN Places(const Rows& rows, uint4* chunks) : tile{chunks + threadIdx.x / WARP * (WARP * CHUNKS), threadIdx.x % WARP} {
        u64 of_tile = (u64)Order::ROWS * rows.order.row, index = (u64)blockIdx.x * WARPS + threadIdx.x / WARP;
        start = (rows.first / Order::ROWS * of_tile / WARP + index) * WARP;
        u64 place = start + tile.lane, row = place / of_tile * Order::ROWS + place % Order::ROWS;
        bool mine = row >= rows.first && row - rows.first < rows.count;
        active = __ballot_sync(ALL, mine);
        entry = mine ? (row - rows.first) * rows.order.row + place / Order::ROWS % rows.order.row : 0;
    }
    // Calls `move` for every chunk of the requested rows of the tile, eight lanes per entry.
    template <class Move>
    BUDDY_FN void each(u64 plain, Move move) const {
        u64 mine = plain + entry * ENTRY;
        BUDDY_UNROLL
        for (u32 i = 0; i < CHUNKS; i++) {
            u32 row = i * (WARP / CHUNKS) + tile.lane / CHUNKS, chunk = tile.lane % CHUNKS;
            u64 there = __shfl_sync(ALL, mine, row);
            if (active >> row & 1) move(tile.at(row, chunk), (uint4*)there + chunk);
        }
    }
};

extern "C" __global__ void __launch_bounds__(WARPS* WARP) rows_write(BuddyView view, Rows rows, u64 from) {
    __shared__ __align__(128) uint4 chunks[WARPS * WARP * CHUNKS];
    Places places(rows, chunks);
    if (places.active == 0) return;
    places.each(from, [](uint4* shared, const uint4* global) { cp_async<16>(shared, global); });
    cp_async_wait_warp();
    u32 words[WORDS];
    Row(places.tile).load_all(words);
    rows.order.to_stored(words);
    warp::store_entries<Bf16>(view, places.tile, places.start, words, places.active);
}

extern "C" __global__ void __launch_bounds__(WARPS* WARP) rows_read(BuddyView view, Rows rows, u64 to) {
    __shared__ __align__(128) uint4 chunks[WARPS * WARP * CHUNKS];
    Places places(rows, chunks);
    if (places.active == 0) return;
    u32 nibble = warp::load_nibbles(view, places.start, places.active), words[WORDS];
    warp::fetch_entries(view, places.tile, places.start, nibble);
    cp_async_wait_warp();
    warp::decode_entry<Bf16>(view, places.tile, places.start + places.tile.lane, nibble, words);
    rows.order.to_plain(words);
    Row(places.tile).store_all(words);
    __syncwarp();
    places.each(to, [](const uint4* shared, uint4* global) { *global = *shared; });
}
