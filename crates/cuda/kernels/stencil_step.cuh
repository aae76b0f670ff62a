// One step of a stencil in compressed memory. The next state replaces the one before last, which only
// the same block reads. Planes move through three groups of asynchronous copies (the halo, the values
// to be replaced, the plane ahead), of which two are in flight at any wait.
#pragma once
#include "stencil_pages.cuh"

namespace buddy {
namespace stencil {

// Returns the position of quad k of a row (-1 to 16, the halo included) in a plane: even ones
// first, then odd ones, so that the quads of eight bricks are consecutive.
BUDDY_FN int quad_at(int row, int k) { return row * SX + 4 * (k & 1 ? SX / 8 + (k + 1) / 2 : k / 2); }

// The halo as bricks of neighbours, eight per side (0 y-, 1 y+, 2 x-, 3 x+): one thread per quad,
// one warp per four bricks; only quads within R rows or four columns of the tile are used.
template <int R>
struct PackedRim {
    int side;
    u32 k, q;
    BUDDY_FN explicit PackedRim(u32 t) : side((int)(t / 64)), k(t / 32 % 2 * 4 + t % 4), q(t / 4 % 8) {}
    BUDDY_FN static u32 brick(int side, u32 k) { return side == 0 ? 56 + k : side == 1 ? k : side == 2 ? 8 * k + 7 : 8 * k; }
    BUDDY_FN bool faces() const {
        const int row = (int)quad_row(q);
        return side == 0 ? row >= 4 - R : side == 1 ? row < R : quad_half(q) == (u32)(side == 2);
    }
    BUDDY_FN int at() const {
        int row = (int)quad_row(q);
        if (side < 2) return quad_at(row + (side ? R + TY : R - 4), (int)(k * 2 + quad_half(q)));
        return quad_at(R + (int)k * 4 + row, side == 2 ? -1 : 16);
    }
};

// Shared memory of a block. Kinds and places of all its planes are loaded at the start. Planes in
// flight are `ahead`; `old` has the values to be replaced and is scratch memory of stores.
template <class Model>
struct alignas(16) StepShared {
    static constexpr int F = Model::FIELDS, R = Model::RADIUS, PLANES = Model::PLANES;
    static constexpr int PLANE = SX * (TY + 2 * R);
    float planes[2][F][PLANE];
    Stage ahead[F], old[Model::BEFORE ? F : 1];
    uint4 rim[F][THREADS];
    UnitList from_units[F][PLANES + 2 * R], to_units[F][PLANES];
    u32 rim_refs[F][4][PLANES][UNITS];
    u8 from_kinds[F][PLANES + 2 * R][BRICKS], to_kinds[F][PLANES][BRICKS], rim_kinds[F][4][PLANES][8];
    u8 need[PLANES];
};

template <class Model, bool WINDOW>
struct StepBlock {
    typedef StepShared<Model> Shared;
    static constexpr int F = Model::FIELDS, R = Model::RADIUS, PLANES = Model::PLANES;
    Shared& sh;
    const State &from, &to;
    const Pool& pool;
    const Grid& n;
    int tile, z0, count;

    BUDDY_FN StepBlock(Shared& sh, const State& from, const State& to, const Pool& pool, const Grid& n) : sh(sh), from(from), to(to), pool(pool), n(n) {
        tile = (int)blockIdx.x, z0 = (int)blockIdx.y * PLANES, count = n.nz - z0 < PLANES ? n.nz - z0 : PLANES;
    }
    BUDDY_FN u64 page(int plane, int f) const { return ((u64)tile * n.nz + z0 + plane) * F + f; }
    // Returns true if any plane may change; marks each. `also` says which ones change besides those reached.
    template <class Also>
    BUDDY_FN bool wake(u32 t, Also also) const {
        bool need = false;
        if ((int)t < count) {
            const int z = z0 + (int)t;
            need = to.active[(u64)tile * n.nz + z] != 0 || reached<R>(from, n, tile, z) || also(z);
            sh.need[t] = need;
        }
        return __syncthreads_or(need);
    }
    // Loads kinds and places of `planes` planes of a field from z on; planes outside the grid are zero.
    BUDDY_FN void load_column(const State& state, int f, int z, int planes, UnitList* units, u8 (*kinds)[BRICKS]) const {
        for (int i = (int)threadIdx.x; i < planes * 4; i += THREADS) {
            const int at = z + i / 4;
            uint4 v = make_uint4(0, 0, 0, 0);
            if (at >= 0 && at < n.nz) v = *(const uint4*)(state.kinds + page(at - z0, f) * BRICKS + i % 4 * 16);
            *(uint4*)(kinds[i / 4] + i % 4 * 16) = v;
        }
        for (int i = (int)threadIdx.x; i < planes * UNITS; i += THREADS) {
            const int at = z + i / UNITS;
            const u32 ref = at >= 0 && at < n.nz ? state.refs[page(at - z0, f) * UNITS + i % UNITS] : NONE;
            units[i / UNITS].at[i % UNITS] = ref == NONE ? 0 : (u64)unit_at(pool, ref);
        }
    }
    // The same for the eight bricks of a neighbour that touch this tile.
    BUDDY_FN void load_rim_column(int f, i64 neighbour, int side) const {
        for (int i = (int)threadIdx.x; i < count * 8; i += THREADS) {
            const u64 page = (u64)(neighbour * n.nz + z0 + i / 8) * F + f;
            sh.rim_kinds[f][side][i / 8][i % 8] = neighbour < 0 ? 0 : from.kinds[page * BRICKS + PackedRim<R>::brick(side, (u32)i % 8)];
            sh.rim_refs[f][side][i / 8][i % 8] = neighbour < 0 ? NONE : from.refs[page * UNITS + i % 8];
        }
    }
    BUDDY_FN void load_books() const {
        const int tiles_x = n.tiles_x(), tx = tile % tiles_x, ty = tile / tiles_x;
        const int sides[4] = {ty > 0 ? tile - tiles_x : -1, ty + 1 < n.tiles_y() ? tile + tiles_x : -1, tx > 0 ? tile - 1 : -1,
                              tx + 1 < tiles_x ? tile + 1 : -1};
        BUDDY_UNROLL for (int f = 0; f < F; f++) {
            load_column(from, f, z0 - R, count + 2 * R, sh.from_units[f], sh.from_kinds[f]);
            load_column(to, f, z0, count, sh.to_units[f], sh.to_kinds[f]);
            BUDDY_UNROLL for (int k = 0; k < 4; k++) load_rim_column(f, sides[k], k);
        }
        __syncthreads();
    }
    // Plane z0 - R + e.
    BUDDY_FN void stage(Stage& room, int f, u32 t, int e) const {
        stage_pair<WINDOW>(room, sh.from_units[f][e].at, sh.from_kinds[f][e][brick_of(t)], t);
    }
    BUDDY_FN Pair take(Stage& room, int f, u32 t, int e) const { return take_pair<WINDOW>(room, sh.from_kinds[f][e][brick_of(t)], t); }
    BUDDY_FN Pair take_before(int f, u32 t, int i) const {
        return take_pair<WINDOW>(sh.old[Model::BEFORE ? f : 0], sh.to_kinds[f][i][brick_of(t)], t);
    }
    BUDDY_FN void fetch_rim(u32 t, int i) const {
        if (i < count) {
            const PackedRim<R> r(t);
            BUDDY_UNROLL for (int f = 0; f < F; f++) {
                const u32 kind = sh.rim_kinds[f][r.side][i][r.k];
                if (kind == window32::RAW && !r.faces()) continue;
                const u64 unit = (u64)unit_at(pool, sh.rim_refs[f][r.side][i][r.q]);
                stage_quad<WINDOW>(&sh.rim[f][t], unit, kind, PackedRim<R>::brick(r.side, r.k), r.q);
            }
        }
        cp_async_commit();
    }
    BUDDY_FN void fetch_before(u32 t, int i) const {
        if (Model::BEFORE && i < count) {
            BUDDY_UNROLL for (int f = 0; f < F; f++) stage_pair<WINDOW>(sh.old[f], sh.to_units[f][i].at, sh.to_kinds[f][i][brick_of(t)], t);
        }
        cp_async_commit();
    }
    BUDDY_FN void fetch_ahead(u32 t, int i) const {  // plane i + R + 1
        if (i + 1 < count) {
            BUDDY_UNROLL for (int f = 0; f < F; f++) stage(sh.ahead[f], f, t, i + 2 * R + 1);
        }
        cp_async_commit();
    }
    BUDDY_FN void put_rim(float (*here)[Shared::PLANE], u32 t, int i) const {
        const PackedRim<R> r(t);
        if (!r.faces()) return;
        BUDDY_UNROLL for (int f = 0; f < F; f++)
            *(float4*)(here[f] + r.at()) = take_quad<WINDOW, 4>(&sh.rim[f][t - 4 * r.q], sh.rim_kinds[f][r.side][i][r.k], r.q);
    }
    // Loads the first 2R + 1 planes of every field, as many at a time as the planes' memory and `ahead` hold.
    BUDDY_FN void begin(Queue<R> (&queue)[F], u32 t) const {
        constexpr int EXTRA = (int)(sizeof sh.planes / sizeof(Stage)), AT_ONCE = EXTRA + F < 4 ? EXTRA + F : 4, ALL = F * (2 * R + 1);
        BUDDY_UNROLL for (int first = 0; first < ALL; first += AT_ONCE) {
            BUDDY_UNROLL for (int k = 0; k < AT_ONCE; k++)
                if (first + k < ALL) stage(room(k), (first + k) / (2 * R + 1), t, (first + k) % (2 * R + 1));
            cp_async_commit(), cp_async_wait<0>(), __syncwarp();
            BUDDY_UNROLL for (int k = 0; k < AT_ONCE; k++) {
                const int f = (first + k) / (2 * R + 1), e = (first + k) % (2 * R + 1);
                if (first + k < ALL) queue[f].plane[e] = take(room(k), f, t, e);
            }
            __syncwarp();
        }
        __syncthreads();
    }
    BUDDY_FN Stage& room(int k) const { return k < F ? sh.ahead[k] : ((Stage*)sh.planes)[k - F]; }

    // Stores a brick; one without memory is reported and not written.
    BUDDY_FN void store(int f, const Pair& cells, u32 t, int i, u64* fault) const {
        const window32::Quad a[2] = {words(cells.row[0]), words(cells.row[1])};
        const u32 kind = kind_in_warp<WINDOW>(a, t % 32), was = sh.to_kinds[f][i][brick_of(t)];
        const bool homeless = kind != window32::ZERO && sh.to_units[f][i].at[0] == 0;
        store_pair<WINDOW>(sh.old[Model::BEFORE ? f : 0], sh.to_units[f][i].at, homeless ? window32::ZERO : kind, t, a);
        if (lane_of(t) != 0 || (!homeless && kind == was)) return;
        if (homeless) {
            atomicMin(fault, page(i, f));
        } else {
            to.kinds[page(i, f) * BRICKS + brick_of(t)] = (u8)kind;
            if (was == window32::ZERO) to.active[page(i, 0) / F] = 1;
        }
    }
};

BUDDY_FN void wait_group() {
    cp_async_wait<2>();
    __syncwarp();
}

template <class Model, bool WINDOW>
BUDDY_FN void step(const Model& model, const State& from, const State& to, const Pool& pool, const Grid& n, u64* fault) {
    constexpr int F = Model::FIELDS, R = Model::RADIUS;
    typedef StepShared<Model> Shared;
    BUDDY_DYNAMIC_SHARED(Shared, shared);
    u32 t = threadIdx.x;
    const StepBlock<Model, WINDOW> b(*shared, from, to, pool, n);
    Shared& sh = *shared;
    if (!b.wake(t, [](int) { return false; })) return;
    b.load_books();
    Queue<R> queue[F];
    b.begin(queue, t);
    b.fetch_rim(t, 0), b.fetch_before(t, 0), b.fetch_ahead(t, 0);
    int turn = 0;
    const int tiles_x = n.tiles_x(), x0 = b.tile % tiles_x * TX, y0 = b.tile / tiles_x * TY;
    const bool odd = t >> 3 & 1;
    const int inner = quad_at(cell_y(t) + R, cell_x(t) / 4), left = odd ? -(SX / 2 + 4) : SX / 2, right = odd ? -SX / 2 : SX / 2 + 4;
    BUDDY_ROLLED
    for (int i = 0; i < b.count; i++) {
        const bool wanted = sh.need[i] != 0;
        float(*here)[Shared::PLANE] = sh.planes[turn];
        again(t);
        wait_group();
        if (wanted) {
            BUDDY_UNROLL for (int f = 0; f < F; f++) {
                float* at = here[f] + inner;
                *(float4*)at = queue[f].here().row[0], *(float4*)(at + SX) = queue[f].here().row[1];
            }
            b.put_rim(here, t, i);
            __syncthreads();
            turn ^= 1;
        }
        b.fetch_rim(again(t), i + 1);
        again(t);
        wait_group();
        if (wanted) {
            Pair old[F];
            BUDDY_UNROLL for (int f = 0; f < F; f++) old[f] = Model::BEFORE ? b.take_before(f, t, i) : zero_pair();
            __syncwarp();
            Cells next[F];
            model.update(Around<Model>{here[0] + inner, left, right, Shared::PLANE, queue, old, x0 + cell_x(t), y0 + cell_y(t), b.z0 + i}, next);
            BUDDY_UNROLL for (int f = 0; f < F; f++) {
                b.store(f, next[f].pair(), again(t), i, fault);
                if (!Model::BEFORE) __syncwarp();  // the next field's store goes through the same memory
            }
        }
        b.fetch_before(again(t), i + 1);
        wait_group();
        BUDDY_UNROLL for (int f = 0; f < F; f++) queue[f].advance(i + 1 < b.count ? b.take(sh.ahead[f], f, t, i + 2 * R + 1) : zero_pair());
        __syncwarp();
        b.fetch_ahead(again(t), i + 1);
    }
    cp_async_wait<0>();
}

}  // namespace stencil
}  // namespace buddy
