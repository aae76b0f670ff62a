// Stencils in compressed memory, for CUDA programs compiled by nvcc (C++17, sm_90 or later), on fp32 fields
// of a 3-D grid. A program states its update once, as a model:
//
//   struct Heat {
//       static constexpr int FIELDS = 1, RADIUS = 1, PLANES = 64;
//       static constexpr bool BEFORE = false;
//       template <class At, class V> BUDDY_FN void update(const At& at, V (&next)[FIELDS]) const;
//       BUDDY_FN float initial(int field, int x, int y, int z) const;
//   };
//   buddy::stencil::Packed<Heat> heat({}, {1024, 1024, 1024});
//   for (int i = 0; i < 1000; i++) heat.step();
//
// The contract:
// - The grid has multiples of 64 cells along x, of 32 along y, at most 65535 along z. Cells outside are zero.
// - `update` computes the next value of every field. V is float, or Cells with the same operators.
//   at(f), at.x(f, k), at.y(f, k) and at.z(f, k) are a field here and k cells further along an axis; |k| is
//   at most RADIUS, which is at most 4, and f and k are constants once loops are unrolled.
//   at.of_position(g) is g(x, y, z).
// - An update whose inputs are all zero gives zero. Pages that nothing has reached take no memory, so a field
//   is best the distance from rest, and `flush` makes negligible values zero. A cell becomes nonzero only
//   within RADIUS of a nonzero one.
// - With BEFORE, at.before(f) is the value that the next one replaces, the one before last; both states begin
//   with `initial`.
// - A block traverses PLANES planes: 64 for one field, 32 for two. More fields than FIELDS * (2 * RADIUS + 1)
//   = 9 allows spill registers; shared memory of two blocks must fit a multiprocessor.
// - Compiled with -fmad=false, Packed, Plain and a loop over cells on a CPU have equal bits. multiply_add
//   rounds once everywhere.
// - Memory: a page is one plane of 64 x 32 cells of a field, 8 KiB, taken when a neighbour is alive. As
//   device memory fills, bricks of 8 x 4 cells become windows, 112 of 128 bytes; then the last eighth of
//   pages moves to pinned host memory. A page that finds no memory makes step() or look() throw Error, at
//   the latest ten steps later; the fields are then lost.
// - All work is enqueued on one stream. A model is copied to kernels by value.
#pragma once
#ifndef BUDDY_ENTRY_BYTES
#include "buddy_constants.cuh"
#endif
#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "stencil_plain.cuh"
#include "stencil_step.cuh"
#include "stencil_units.cuh"

namespace buddy {
namespace stencil {

BUDDY_FN u64 thread_number() { return blockIdx.x * (u64)blockDim.x + threadIdx.x; }

template <class Model, bool WINDOW>
__global__ void __launch_bounds__(THREADS, 2) packed_step(Model model, State from, State to, Pool pool, Grid n, u64* fault) {
    step<Model, WINDOW>(model, from, to, pool, n, fault);
}
template <class Model>
__global__ void __launch_bounds__(THREADS, 2) plain_step(Model model, const float* from, float* to, Grid n) {
    step_plain(model, from, to, n);
}
// The same by a thread per cell, which reads all neighbours from memory.
template <class Model>
__global__ void __launch_bounds__(THREADS) simple_step(Model model, const float* from, float* to, Grid n) {
    const u64 cell = thread_number();
    if (cell >= n.cells()) return;
    const int x = (int)(cell % n.nx), y = (int)(cell / n.nx % n.ny), z = (int)(cell / n.nx / n.ny);
    float next[Model::FIELDS];
    model.update(AroundCell<Model>{from, to, n, x, y, z}, next);
    BUDDY_UNROLL for (int f = 0; f < Model::FIELDS; f++) to[f * n.cells() + cell] = next[f];
}
// Gives units to pages of the next state that this step may write.
template <class Model>
__global__ void light_pages(State from, State to, PoolState* books, const u32* stack, Grid n, u32 target) {
    const u64 page = thread_number();
    if (page >= n.pages() || !reached<Model::RADIUS>(from, n, (int)(page / n.nz), (int)(page % n.nz))) return;
    for (int f = 0; f < Model::FIELDS; f++)
        if (to.refs[(page * Model::FIELDS + f) * UNITS] == NONE) light_page(to, books, stack, target, page * Model::FIELDS + f);
}
// Retargets pages from 1x to 8/7x, and back.
static __global__ void trim_pages(State state, Pool pool, PoolState* books, u32* stack, u64 pages, u32 most) {
    const u64 page = thread_number() / 32;
    if (page < pages) trim_page(state, pool, books, stack, page, most, threadIdx.x % 32);
}
static __global__ void raise_pages(State state, Pool pool, PoolState* books, const u32* stack, u64 pages, u32 units, int keep) {
    const u64 page = thread_number() / 32;
    if (page < pages) raise_page(state, pool, books, stack, page, units, keep, threadIdx.x % 32);
}
static __global__ void count_pages(State state, u64 pages, u64* counts) { count_page(state, thread_number(), pages, counts); }

// Stores the initial values of a page; a page of zeros takes no memory.
template <class Model>
__global__ void __launch_bounds__(THREADS) begin_packed(Model model, State to, Pool pool, PoolState* books, Grid n) {
    __shared__ Stage stage;
    __shared__ UnitList list;
    const u32 t = threadIdx.x;
    const int tile = (int)blockIdx.x, z = (int)blockIdx.y, x = tile % n.tiles_x() * TX + cell_x(t), y = tile / n.tiles_x() * TY + cell_y(t);
    for (int f = 0; f < Model::FIELDS; f++) {
        const u64 page = ((u64)tile * n.nz + z) * Model::FIELDS + f;
        Cells cells;
        cells.each([&](int j, int i) { return model.initial(f, x + i, y + j, z); });
        bool any = false;
        for (int j = 0; j < 2; j++)
            for (int i = 0; i < 4; i++) any |= __float_as_uint(cells.v[j][i]) != 0;
        if (!__syncthreads_or(any)) continue;
        if (t == 0) {
            light_page(to, books, nullptr, UNITS, page);
            to.active[page / Model::FIELDS] = 1;
            for (int p = 0; p < UNITS; p++) list.at[p] = (u64)unit_at(pool, to.refs[page * UNITS + p]);
        }
        __syncthreads();
        if (to.refs[page * UNITS] != NONE) store_page<false>(to, page, cells.pair(), stage, list);
        __syncthreads();
    }
}
template <class Model>
__global__ void begin_plain(Model model, float* to, Grid n) {
    const u64 cell = thread_number();
    if (cell >= n.cells()) return;
    for (int f = 0; f < Model::FIELDS; f++)
        to[f * n.cells() + cell] = model.initial(f, (int)(cell % n.nx), (int)(cell / n.nx % n.ny), (int)(cell / n.nx / n.ny));
}
// Unpacks planes of a field, from `first` on, to rows.
template <class Model>
__global__ void __launch_bounds__(THREADS) unpack_planes(State from, Pool pool, Grid n, int field, int first, float* to) {
    __shared__ Stage stage;
    __shared__ UnitList list;
    const u32 t = threadIdx.x;
    const int tile = (int)blockIdx.x, z = first + (int)blockIdx.y;
    const Pair cells = load_page(from, pool, ((u64)tile * n.nz + z) * Model::FIELDS + field, stage, list);
    const u64 x = tile % n.tiles_x() * TX + cell_x(t), y = tile / n.tiles_x() * TY + cell_y(t);
    for (int j = 0; j < 2; j++) *(float4*)(to + ((u64)blockIdx.y * n.ny + y + j) * n.nx + x) = cells.row[j];
}
// Counts values whose bits differ from those of plain memory, whose grid repeats in this one.
template <class Model>
__global__ void __launch_bounds__(THREADS) compare_pages(State from, Pool pool, Grid n, const float* plain, Grid box, u64* wrong) {
    __shared__ Stage stage;
    __shared__ UnitList list;
    const u32 t = threadIdx.x;
    const int tile = (int)blockIdx.x, z = (int)blockIdx.y;
    const int x = (tile % n.tiles_x() * TX + cell_x(t)) % box.nx, y = (tile / n.tiles_x() * TY + cell_y(t)) % box.ny;
    u32 count = 0;
    for (int f = 0; f < Model::FIELDS; f++) {
        const Pair cells = load_page(from, pool, ((u64)tile * n.nz + z) * Model::FIELDS + f, stage, list);
        for (int j = 0; j < 2; j++)
            for (int i = 0; i < 4; i++) {
                const float expected = plain[(((u64)f * box.nz + z % box.nz) * box.ny + y + j) * box.nx + x + i];
                count += __float_as_uint(get(cells.row[j], i)) != __float_as_uint(expected);
            }
        __syncthreads();
    }
    if (count) atomicAdd(wrong, (u64)count);
}

// A failed call of the CUDA runtime, or fields that did not find memory.
class Error : public std::runtime_error {
    using std::runtime_error::runtime_error;
};
inline void check(cudaError_t error) {
    if (error != cudaSuccess) throw Error(std::string("CUDA: ") + cudaGetErrorString(error));
}

// Device memory, or pinned host memory that the device reads by the same address.
class Memory {
public:
    Memory() = default;
    explicit Memory(size_t bytes, bool host = false) : bytes_(bytes), host_(host) {
        if (bytes) check(host ? cudaHostAlloc(&at_, bytes, cudaHostAllocPortable | cudaHostAllocMapped) : cudaMalloc(&at_, bytes));
    }
    Memory(Memory&& other) noexcept { *this = std::move(other); }
    Memory& operator=(Memory&& other) noexcept {
        std::swap(at_, other.at_), std::swap(bytes_, other.bytes_), std::swap(host_, other.host_);
        return *this;
    }
    ~Memory() {
        if (at_) host_ ? cudaFreeHost(at_) : cudaFree(at_);
    }
    size_t bytes() const { return bytes_; }
    template <class T = u8> T* at() const { return (T*)at_; }
    void fill(int byte, cudaStream_t stream) { check(cudaMemsetAsync(at_, byte, bytes_, stream)); }
    // Waits for the stream.
    template <class T> T read(cudaStream_t stream) const {
        T value;
        check(cudaMemcpyAsync(&value, at_, sizeof value, cudaMemcpyDeviceToHost, stream));
        check(cudaStreamSynchronize(stream));
        return value;
    }

private:
    void* at_ = nullptr;
    size_t bytes_ = 0;
    bool host_ = false;
};

template <class Kernel, class... Arguments>
void launch(Kernel kernel, dim3 grid, size_t shared, cudaStream_t stream, Arguments... arguments) {
#ifdef BUDDY_EMULATED
    (void)shared, (void)stream;
    emu::launch(kernel, grid, THREADS, arguments...);
#else
    kernel<<<grid, THREADS, shared, stream>>>(arguments...);
#endif
    check(cudaGetLastError());
}
// Allows a step its shared memory.
template <class Kernel>
void allow(Kernel kernel, size_t shared) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
}
inline dim3 blocks(u64 threads) { return dim3((u32)((threads + THREADS - 1) / THREADS)); }
inline dim3 columns(const Grid& n, int planes) { return dim3((u32)n.tiles(), (u32)((n.nz + planes - 1) / planes)); }
inline void check(const Grid& n) {
    const bool right = n.nx > 0 && n.ny > 0 && n.nz > 0 && n.nx % TX == 0 && n.ny % TY == 0 && n.nz <= 65535;
    if (!right) throw Error("cells along x are a multiple of 64, along y of 32, along z at most 65535");
}

// The fields as arrays: field after field, rows along x.
template <class Model>
class Plain {
public:
    Plain(Model model, Grid n, cudaStream_t stream = nullptr) : model_(model), n_(n), stream_(stream) {
        check(n);
        now_ = Memory(bytes() / 2), next_ = Memory(bytes() / 2);
        allow(plain_step<Model>, sizeof(PlainShared<Model>));
        launch(begin_plain<Model>, blocks(n.cells()), 0, stream, model, now(), n);
        check(cudaMemcpyAsync(next_.at(), now_.at(), bytes() / 2, cudaMemcpyDeviceToDevice, stream));
    }
    // Enqueues a step.
    void step() {
        launch(plain_step<Model>, columns(n_, PlainBlock<Model>::PLANES), sizeof(PlainShared<Model>), stream_, model_,
               (const float*)now(), next_.at<float>(), n_);
        std::swap(now_, next_);
    }
    // The same by a kernel with a thread per cell.
    void simple() {
        launch(simple_step<Model>, blocks(n_.cells()), 0, stream_, model_, (const float*)now(), next_.template at<float>(), n_);
        std::swap(now_, next_);
    }
    float* now() const { return now_.at<float>(); }
    const Grid& grid() const { return n_; }
    // Bytes of both states.
    size_t bytes() const { return 2 * Model::FIELDS * sizeof(float) * n_.cells(); }

private:
    Model model_;
    Grid n_;
    cudaStream_t stream_;
    Memory now_, next_;
};

// Shares of all bricks, and of the pages that have memory.
struct Shares {
    double zero, window, raw;  // bricks; their sum is 1
    double host;               // bricks that touch host memory in every step
    double lit;                // pages
};

// The fields in compressed memory.
template <class Model>
class Packed {
    static_assert(Model::RADIUS >= 1 && Model::RADIUS <= 4, "a halo is one to four cells wide");
    static constexpr u64 F = Model::FIELDS;

public:
    // Makes the initial state in `device_bytes` of device memory for fields (0: all that is free but 1
    // GiB) and `host_bytes` of pinned host memory.
    Packed(Model model, Grid n, size_t device_bytes = 0, size_t host_bytes = 0, cudaStream_t stream = nullptr)
        : model_(model), n_(n), stream_(stream) {
        check(n);
        for (Room* room : {&now_, &next_}) *room = Room(pages(), n.pages(), stream);
        const u64 most = 2 * pages() * UNITS;
        stack_ = Memory(most * sizeof(u32)), books_ = Memory(sizeof(PoolState)), fault_ = Memory(sizeof(u64));
        size_t free = 0, all = 0;
        check(cudaMemGetInfo(&free, &all));
        if (device_bytes == 0) device_bytes = free > RESERVE ? free - RESERVE : 0;
        PoolState books = {};
        books.device_end = (u32)std::min<u64>(device_bytes / UNIT, most), books.host_end = (u32)std::min<u64>(host_bytes / UNIT, most);
        device_ = Memory((size_t)books.device_end * UNIT), host_ = Memory((size_t)books.host_end * UNIT, true);
        check(cudaMemcpyAsync(books_.at(), &books, sizeof books, cudaMemcpyHostToDevice, stream));
        check(cudaStreamSynchronize(stream));
        fault_.fill(0xff, stream);
        allow(packed_step<Model, false>, sizeof(StepShared<Model>)), allow(packed_step<Model, true>, sizeof(StepShared<Model>));
        begin(now_);
        if (Model::BEFORE) begin(next_);
        look();
        // The first step gives the next state as many pages, which is no growth.
        if (!Model::BEFORE) state_.lit *= 2;
    }
    // Enqueues a step. Every tenth one waits for the stream, and retargets pages before memory runs out.
    void step() {
        launch(light_pages<Model>, blocks(n_.pages()), 0, stream_, now_.state(), next_.state(), pool_state(), stack(), n_, target_);
        const auto kernel = windows_ ? packed_step<Model, true> : packed_step<Model, false>;
        launch(kernel, columns(n_, Model::PLANES), sizeof(StepShared<Model>), stream_, model_, now_.state(), next_.state(), pool(), n_,
               fault_.at<u64>());
        std::swap(now_, next_);
        steps_++, window_steps_ += windows_;
        if (steps_ % LOOK == 0) look();
    }
    // Waits for the stream. Throws Error if a page did not find memory: the fields are then lost.
    void look() {
        const u32 lit = state_.lit;
        state_ = books_.read<PoolState>(stream_);
        if (state_.failed || fault_.read<u64>(stream_) != ~0ull)
            throw Error("the fields need more than " + std::to_string(device_.bytes()) + " bytes on the device and " +
                        std::to_string(host_.bytes()) + " on the host");
        // Units for three times the pages added since the last look.
        const double soon = 3.0 * UNITS * (state_.lit - lit), total = (double)(device_.bytes() / UNIT);
        const double wanted = (double)UNITS * (2 * pages() - state_.lit);
        const double left = (double)(state_.device_end - std::min(state_.device_next, state_.device_end)) + std::max(state_.freed, 0);
        auto scarce = [&](double share, double soon) { return wanted > left && left < std::max(share * total, soon); };
        // Windows are slower, and save memory only once pages have moved units to the host, a look later.
        if (host_.bytes() && scarce(0.05, soon)) windows_ = true;
        if (windows_ && window_steps_ >= 4 && host_.bytes() && scarce(0.02, soon)) trim();
        if (level_ && state_.freed > total * 0.03) raise((int)(total / 50));
        // New pages begin at 1x as long as there is room: bricks at the edge of what is alive are raw.
        target_ = level_ && left < 0.05 * total ? UNITS - 1 : UNITS;
    }
    // Stores bricks as windows from the next step on, as happens when memory becomes scarce.
    void use_windows() { windows_ = true; }

    // Unpacks planes of a field to device memory, in stream order.
    void read(int field, int first, int planes, float* to) const {
        launch(unpack_planes<Model>, dim3((u32)n_.tiles(), (u32)planes), 0, stream_, now_.state(), pool(), n_, field, first, to);
    }
    // Returns the number of values whose bits differ from plain memory's. The grid of `plain` divides this
    // one, in which its fields are expected to repeat.
    u64 differing(const Plain<Model>& plain) {
        const Grid box = plain.grid();
        if (n_.nx % box.nx || n_.ny % box.ny || n_.nz % box.nz) throw Error("the grids do not divide");
        Memory wrong(sizeof(u64));
        wrong.fill(0, stream_);
        launch(compare_pages<Model>, columns(n_, 1), 0, stream_, now_.state(), pool(), n_, (const float*)plain.now(), box, wrong.at<u64>());
        return wrong.read<u64>(stream_);
    }
    // Counts bricks of both states.
    Shares shares() {
        struct Counts {
            u64 of[4];
        };
        Memory counts(sizeof(Counts));
        counts.fill(0, stream_);
        for (const Room* room : {&now_, &next_}) launch(count_pages, blocks(pages()), 0, stream_, room->state(), pages(), counts.at<u64>());
        const Counts found = counts.read<Counts>(stream_);
        const double all = 2.0 * pages() * BRICKS;
        return {found.of[0] / all, found.of[1] / all, found.of[2] / all, found.of[3] / all, state_.lit / (2.0 * pages())};
    }
    const Grid& grid() const { return n_; }
    const PoolState& books() const { return state_; }
    bool windows() const { return windows_; }
    size_t device_bytes() const { return device_.bytes(); }
    size_t host_bytes() const { return host_.bytes(); }

private:
    static constexpr size_t RESERVE = (size_t)1 << 30;
    static constexpr int LOOK = 10;  // steps between two looks at the pool

    // References, kinds and marks of a state's pages.
    struct Room {
        Memory refs, kinds, active;
        Room() = default;
        Room(u64 pages, u64 marks, cudaStream_t stream) : refs(pages * UNITS * sizeof(u32)), kinds(pages * BRICKS), active(marks) {
            refs.fill(0xff, stream), kinds.fill(0, stream), active.fill(0, stream);
        }
        State state() const { return {refs.at<u32>(), kinds.at<u8>(), active.at<u8>()}; }
    };
    u64 pages() const { return F * n_.pages(); }
    Pool pool() const { return {device_.at(), host_.at()}; }
    PoolState* pool_state() const { return books_.at<PoolState>(); }
    u32* stack() const { return stack_.at<u32>(); }
    void begin(const Room& room) {
        launch(begin_packed<Model>, columns(n_, 1), 0, stream_, model_, room.state(), pool(), pool_state(), n_);
    }
    // Retargets pages to 8/7x if few of their bricks use the last unit; with each call more, finally all.
    void trim() {
        constexpr u32 LEVELS[5] = {0, 2, 8, 24, 64};
        const u32 most = LEVELS[std::min(level_, 4)];
        level_ = std::min(level_ + 1, 5);
        for (const Room* room : {&now_, &next_})
            launch(trim_pages, blocks(32 * pages()), 0, stream_, room->state(), pool(), pool_state(), stack(), pages(), most);
    }
    // Moves units back to the device, except the last ones, as long as more than `keep` are free.
    void raise(int keep) {
        for (const Room* room : {&now_, &next_})
            launch(raise_pages, blocks(32 * pages()), 0, stream_, room->state(), pool(), pool_state(), stack(), pages(), UNITS - 1u, keep);
    }

    Model model_;
    Grid n_;
    cudaStream_t stream_;
    Room now_, next_;
    Memory stack_, books_, fault_, device_, host_;
    PoolState state_ = {};
    bool windows_ = false;
    int level_ = 0;
    u32 target_ = UNITS;  // units on the device of pages that are given memory
    u64 steps_ = 0, window_steps_ = 0;
};

}  // namespace stencil
}  // namespace buddy
