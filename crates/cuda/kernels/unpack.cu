// Makes rows of a frozen bf16 matrix at 4/3x plain, for the vendor's product: a warp takes a few columns of a tile of sixteen rows at a
// time, which the copy engine brings, decodes them as products do, turns them to whole entries in shared memory, and writes these.
#include "linear_fetch.cuh"
#include "linear_odd.cuh"

using namespace buddy;

namespace {

constexpr u32 UNPACKERS = 8, RUN = 4, AHEAD = 2;  // warps of a block; columns at a time, and how many times in shared memory

struct Unpacking {
    Weights weights;
    u8* to;  // where the first tile's first row goes
    u32 per_row, first_tile, tiles, rows;

    BUDDY_FN u32 per_tile() const { return (per_row + RUN - 1) / RUN; }
    BUDDY_FN u32 runs() const { return tiles * per_tile(); }
    BUDDY_FN u32 columns(u32 run) const { return min(RUN, per_row - run % per_tile() * RUN); }
    // The first column of a run, counted over the whole matrix.
    BUDDY_FN u64 column(u32 run) const { return (u64)(first_tile + run / per_tile()) * per_row + run % per_tile() * RUN; }
};

// A warp's shared memory: runs, an entry of sixteen rows, plain, and barriers; and a word that names no entry.
struct Desk {
    static constexpr u32 AT_OUT = AHEAD * RUN * Weights::COLUMN, AT_BARRIERS = AT_OUT + TILE_ROWS * ENTRY, BYTES = AT_BARRIERS + 128;
    u32 shared;

    BUDDY_FN u32 column(u32 place, u32 e) const { return shared + (place * RUN + e) * Weights::COLUMN; }
    BUDDY_FN u32 chunk(u32 row, u32 c) const { return shared + AT_OUT + row * ENTRY + (c ^ row % 8) * CHUNK; }
    BUDDY_FN Barrier full(u32 place) const { return {shared + AT_BARRIERS + 8 * place}; }
    BUDDY_FN u32 nobody() const { return shared + AT_BARRIERS + 64; }
};

BUDDY_FN void fetch(const Unpacking& of, const Desk& desk, u32 run, u32 place, u64 policy) {
    if (run >= of.runs()) return;
    u32 bytes = of.columns(run) * Weights::COLUMN;
    desk.full(place).arrive_expect_tx(bytes);
    cp_async_bulk(desk.column(place, 0), of.weights.device + of.column(run) * Weights::COLUMN, bytes, desk.full(place), policy);
}

BUDDY_FN void stmatrix4(u32 at, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// Sixteen rows of an entry, from the lanes that have a pair of every eight values of two rows, to `to` and below.
BUDDY_FN void put(const Desk& desk, const u32 (&upper)[8], const u32 (&lower)[8], u8* to, u64 pitch, u32 rows) {
    u32 lane = threadIdx.x % WARP, row = Lanes::row_of(lane % 8 * 4), chunk = lane / 8;
    stmatrix4(desk.chunk(row, chunk), upper[0], upper[1], upper[2], upper[3]);
    stmatrix4(desk.chunk(row, chunk + 4), upper[4], upper[5], upper[6], upper[7]);
    stmatrix4(desk.chunk(row + 8, chunk), lower[0], lower[1], lower[2], lower[3]);
    stmatrix4(desk.chunk(row + 8, chunk + 4), lower[4], lower[5], lower[6], lower[7]);
    __syncwarp();
    BUDDY_UNROLL
    for (u32 i = 0; i < 4; i++) {
        u32 of = 4 * i + lane / 8;
        uint4 v = lds128(desk.chunk(of, lane % 8));
        if (of < rows) *(uint4*)(to + of * pitch + lane % 8 * CHUNK) = v;
    }
    __syncwarp();
}

}  // namespace

static_assert(UNPACKERS * Desk::BYTES == BUDDY_UNPACK_SHARED, "Rust asks for the shared memory that the kernel uses");

extern "C" __global__ void __launch_bounds__(UNPACKERS* WARP, 2) linear_unpack(const __grid_constant__ Unpacking of) {
    extern __shared__ __align__(128) u8 memory[];
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, all = gridDim.x * UNPACKERS;
    Desk desk = {keep(shared_address(memory) + warp * Desk::BYTES)};
    u64 policy = evict_first_policy(), pitch = (u64)of.per_row * ENTRY;
    if (lane == 0) {
        for (u32 i = 0; i < AHEAD; i++) desk.full(i).init(1);
        sts32(desk.nobody(), ~0u);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (u32 i = 0; i < AHEAD; i++) fetch(of, desk, warp + blockIdx.x * UNPACKERS + i * all, i, policy);
    }
    __syncwarp();
    Lanes lanes(of.weights);
    Turn<AHEAD> turn;
#pragma unroll 1
    for (u32 run = warp + blockIdx.x * UNPACKERS; run < of.runs(); run += all, turn.next()) {
        u32 columns = of.columns(run), tile = run / of.per_tile();
        u64 first = of.column(run);
        uint2 mine = lane < columns ? __ldg((const uint2*)of.weights.nibbles + first + lane) : make_uint2(0, 0);
        u8* to = of.to + (u64)tile * TILE_ROWS * pitch + run % of.per_tile() * (RUN * ENTRY);
        desk.full(turn.place).wait(turn.round);
#pragma unroll 1
        for (u32 e = 0; e < columns; e++) {
            u32 upper[8], lower[8];
            uint2 odd = odd_of(make_uint2(__shfl_sync(ALL, mine.x, e), __shfl_sync(ALL, mine.y, e)));
            lanes.load(desk.column(turn.place, e), upper, lower);
            if (odd.x | odd.y) {
                lanes.load_others(desk.nobody(), 0, 0, desk.column(turn.place, e), (first + e) * TILE_ROWS, odd, upper, lower);
            }
            put(desk, upper, lower, to + e * ENTRY, pitch, min(TILE_ROWS, of.rows - tile * TILE_ROWS));
        }
        if (lane == 0) fetch(of, desk, run + AHEAD * all, turn.place, policy);
    }
}
