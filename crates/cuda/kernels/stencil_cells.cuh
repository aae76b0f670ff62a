// The cells of a stencil: the grid, the tiles that a block traverses, and a thread's values. A block
// traverses a column of 64 x 32 cells along z. A thread has two rows of four cells; the planes before
// and after the current one are in its registers, the current plane with its halo is in shared memory.
#pragma once
#include "shared.cuh"

#ifdef __CUDACC__
#define BUDDY_BOTH_FN __host__ __device__ __forceinline__
#else
#define BUDDY_BOTH_FN inline
#endif

namespace buddy {
namespace stencil {

typedef long long i64;
constexpr int TX = 64, TY = 32, THREADS = 256;  // cells of a column, threads of a block
constexpr int MARGIN = 4, SX = TX + 2 * MARGIN;  // columns of the halo; values of a row in shared memory

// Cells along x, y and z: whole tiles along x and y. Cells outside are zero.
struct Grid {
    int nx, ny, nz;
    BUDDY_BOTH_FN int tiles_x() const { return nx / TX; }
    BUDDY_BOTH_FN int tiles_y() const { return ny / TY; }
    BUDDY_BOTH_FN u64 tiles() const { return (u64)tiles_x() * tiles_y(); }
    BUDDY_BOTH_FN u64 cells() const { return (u64)nx * ny * nz; }
    BUDDY_BOTH_FN u64 pages() const { return tiles() * nz; }
};

// Two rows of four cells.
struct Pair {
    float4 row[2];
};
BUDDY_FN float get(const float4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
BUDDY_FN float4 zero4() { return make_float4(0, 0, 0, 0); }
BUDDY_FN Pair zero_pair() { return {{zero4(), zero4()}}; }

// A thread's cells in the planes from R before the current one to R after it.
template <int R>
struct Queue {
    Pair plane[2 * R + 1];

    BUDDY_FN const Pair& here() const { return plane[R]; }
    BUDDY_FN void advance(const Pair& ahead) {
        BUDDY_UNROLL for (int k = 0; k < 2 * R; k++) plane[k] = plane[k + 1];
        plane[2 * R] = ahead;
    }
};

// The values of a thread's eight cells, with the operators of a float, so that an update is written
// once for both.
struct Cells {
    float v[2][4];

    BUDDY_FN Cells() {}
    BUDDY_FN Cells(float value) { each([&](int, int) { return value; }); }
    BUDDY_FN Cells(const Pair& pair) { each([&](int j, int i) { return get(pair.row[j], i); }); }
    template <class Function>
    BUDDY_FN void each(Function value) {
        BUDDY_UNROLL for (int j = 0; j < 2; j++)
            BUDDY_UNROLL for (int i = 0; i < 4; i++) v[j][i] = value(j, i);
    }
    BUDDY_FN Pair pair() const {
        return {{make_float4(v[0][0], v[0][1], v[0][2], v[0][3]), make_float4(v[1][0], v[1][1], v[1][2], v[1][3])}};
    }
    friend BUDDY_FN Cells operator+(const Cells& a, const Cells& b) { return map(a, b, [](float x, float y) { return x + y; }); }
    friend BUDDY_FN Cells operator-(const Cells& a, const Cells& b) { return map(a, b, [](float x, float y) { return x - y; }); }
    friend BUDDY_FN Cells operator*(const Cells& a, const Cells& b) { return map(a, b, [](float x, float y) { return x * y; }); }

    template <class Function>
    BUDDY_FN static Cells map(const Cells& a, const Cells& b, Function value) {
        Cells all;
        all.each([&](int j, int i) { return value(a.v[j][i], b.v[j][i]); });
        return all;
    }
};

// Returns a * b + c, rounded once.
BUDDY_FN float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
BUDDY_FN Cells multiply_add(const Cells& a, const Cells& b, const Cells& c) {
    Cells all;
    all.each([&](int j, int i) { return fmaf(a.v[j][i], b.v[j][i], c.v[j][i]); });
    return all;
}
// Returns zero for values smaller than `smallest`. Without it a decaying tail keeps pages alive.
BUDDY_FN float flush(float value, float smallest) { return fabsf(value) < smallest ? 0.0f : value; }
BUDDY_FN Cells flush(const Cells& value, float smallest) {
    return Cells::map(value, value, [&](float v, float) { return flush(v, smallest); });
}

// A thread's cells with their neighbours, as an update sees them. `Layout` says where the halo lies.
template <class Model>
struct Around {
    typedef stencil::Queue<Model::RADIUS> Queue;
    const float* at;  // field 0's first cell in the current plane
    int left, right, apart;  // from there to the four cells before, to those after, and to the next field
    const Queue (&queue)[Model::FIELDS];
    const Pair* old;
    int x0, y0, z0;

    // The value of a field here.
    BUDDY_FN Cells operator()(int field) const { return queue[field].here(); }
    // The value k cells further along one axis, from -RADIUS to RADIUS.
    BUDDY_FN Cells x(int field, int k) const {
        Cells all;
        BUDDY_UNROLL for (int j = 0; j < 2; j++) {
            const float* row = at + field * apart + j * SX;
            const float4 before = *(const float4*)(row + left), here = queue[field].here().row[j], after = *(const float4*)(row + right);
            const float values[12] = {before.x, before.y, before.z, before.w, here.x, here.y, here.z, here.w, after.x, after.y, after.z, after.w};
            BUDDY_UNROLL for (int i = 0; i < 4; i++) all.v[j][i] = values[4 + i + k];
        }
        return all;
    }
    BUDDY_FN Cells y(int field, int k) const {
        Pair rows;
        BUDDY_UNROLL for (int j = 0; j < 2; j++) {
            const int row = j + k;
            rows.row[j] = row == 0 || row == 1 ? queue[field].here().row[row & 1] : *(const float4*)(at + field * apart + row * SX);
        }
        return rows;
    }
    BUDDY_FN Cells z(int field, int k) const { return queue[field].plane[Model::RADIUS + k]; }
    // The value that the next one replaces, if the model is of second order in time.
    BUDDY_FN Cells before(int field) const { return old[field]; }
    // A function of the cell's position.
    template <class Function>
    BUDDY_FN Cells of_position(Function value) const {
        Cells all;
        all.each([&](int j, int i) { return value(x0 + i, y0 + j, z0); });
        return all;
    }
};

// One cell with its neighbours in plain memory, for kernels with a thread per cell and for CPUs.
template <class Model>
struct AroundCell {
    const float *now, *old;  // field after field, rows along x
    Grid n;
    int x0, y0, z0;

    BUDDY_FN float value(const float* from, int field, int x, int y, int z) const {
        const bool inside = x >= 0 && x < n.nx && y >= 0 && y < n.ny && z >= 0 && z < n.nz;
        return inside ? from[(((u64)field * n.nz + z) * n.ny + y) * n.nx + x] : 0.0f;
    }
    BUDDY_FN float operator()(int field) const { return value(now, field, x0, y0, z0); }
    BUDDY_FN float x(int field, int k) const { return value(now, field, x0 + k, y0, z0); }
    BUDDY_FN float y(int field, int k) const { return value(now, field, x0, y0 + k, z0); }
    BUDDY_FN float z(int field, int k) const { return value(now, field, x0, y0, z0 + k); }
    BUDDY_FN float before(int field) const { return value(old, field, x0, y0, z0); }
    template <class Function>
    BUDDY_FN float of_position(Function f) const { return f(x0, y0, z0); }
};

// Makes the compiler recompute values derived from the thread index, which costs less than the
// registers that would hold them.
BUDDY_FN u32 again(u32& t) {
#ifdef __CUDA_ARCH__
    asm volatile("" : "+r"(t));
#endif
    return t;
}

}  // namespace stencil
}  // namespace buddy
