// One step of the wave in compressed memory. The next field replaces the previous one, which only
// the same block reads.
#pragma once
#include "wave_field.cuh"

namespace buddy {

// Returns the position of quad k of a row (-1 to 16, the halo included) in a plane: even ones
// first, then odd ones, so that the quads of eight bricks are consecutive.
BUDDY_FN int quad_at(int row, int k) { return row * SX + 4 * (k & 1 ? SX / 8 + (k + 1) / 2 : k / 2); }

// The halo as bricks of neighbours, eight per side (0 y-, 1 y+, 2 x-, 3 x+): one thread per quad,
// one warp per four bricks; only the half that faces the tile is used.
struct PackedRim {
    int side;
    u32 k, q;
    BUDDY_FN explicit PackedRim(u32 t) : side((int)(t / 64)), k(t / 32 % 2 * 4 + t % 4), q(t / 4 % 8) {}
    BUDDY_FN static u32 brick(int side, u32 k) { return side == 0 ? 56 + k : side == 1 ? k : side == 2 ? 8 * k + 7 : 8 * k; }
    BUDDY_FN bool faces() const { return side < 2 || quad_half(q) == (u32)(side == 2); }
    BUDDY_FN int at() const {
        int row = (int)quad_row(q);
        if (side < 2) return quad_at(row + (side ? RADIUS + TY : 0), (int)(k * 2 + quad_half(q)));
        return quad_at(RADIUS + (int)k * 4 + row, side == 2 ? -1 : 16);
    }
};

// Shared memory of a block. Kinds and places of all its planes are loaded at the start.
template <int ZC>
struct alignas(16) PackedShared {
    float planes[2][SX * SY];
    Stage u, w;  // in flight
    uint4 rim[THREADS];
    u64 units_u[ZC + 8][UNITS], units_w[ZC][UNITS];
    u32 refs_rim[4][ZC][UNITS];
    u8 kinds_u[ZC + 8][BRICKS], kinds_w[ZC][BRICKS], kinds_rim[4][ZC][8];
    float table[TABLE];
    u8 need[ZC];
};

// Loads kinds and places of `count` planes of a page column from z on; planes outside the grid are
// zero.
BUDDY_FN void load_column(const Field& f, const Pool& pool, int nz, i64 tile, int z, int count, u64 (*units)[UNITS], u8 (*kinds)[BRICKS]) {
    for (int i = (int)threadIdx.x; i < count * 4; i += THREADS) {
        int at = z + i / 4;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (at >= 0 && at < nz) v = *(const uint4*)(f.kinds + ((u64)tile * nz + at) * BRICKS + i % 4 * 16);
        *(uint4*)(kinds[i / 4] + i % 4 * 16) = v;
    }
    for (int i = (int)threadIdx.x; i < count * UNITS; i += THREADS) {
        int at = z + i / UNITS;
        u32 ref = at >= 0 && at < nz ? f.refs[((u64)tile * nz + at) * UNITS + i % UNITS] : NONE;
        units[i / UNITS][i % UNITS] = ref == NONE ? 0 : (u64)unit_at(pool, ref);
    }
}
// The same for the eight bricks of a neighbour that touch this tile.
BUDDY_FN void load_rim_column(const Field& f, int nz, i64 tile, int side, int z, int count, u32 (*refs)[UNITS], u8 (*kinds)[8]) {
    for (int i = (int)threadIdx.x; i < count * 8; i += THREADS) {
        u64 page = (u64)(tile * nz + z + i / 8);
        kinds[i / 8][i % 8] = tile < 0 ? 0 : f.kinds[page * BRICKS + PackedRim::brick(side, (u32)i % 8)];
        refs[i / 8][i % 8] = tile < 0 ? NONE : f.refs[page * UNITS + i % 8];
    }
}

template <int ZC, bool WINDOW>
struct PackedBlock {
    PackedShared<ZC>& sh;
    const Field &u, &w;
    const Pool& pool;
    const Step& s;
    int tile, z0, count;

    BUDDY_FN PackedBlock(PackedShared<ZC>& sh, const Field& u, const Field& w, const Pool& pool, const Step& s) : sh(sh), u(u), w(w), pool(pool), s(s) {
        tile = (int)blockIdx.x, z0 = (int)blockIdx.y * ZC, count = s.n.nz - z0 < ZC ? s.n.nz - z0 : ZC;
    }
    // Returns true if any plane may change; marks each.
    BUDDY_FN bool wake(u32 t) const {
        bool need = false;
        if ((int)t < count) {
            need = w.active[(u64)tile * s.n.nz + z0 + t] != 0 || reached(u, s, tile, z0 + (int)t);
            sh.need[t] = need;
        }
        return __syncthreads_or(need);
    }
    BUDDY_FN void load_books(const float* table, u32 t) const {
        const int nz = s.n.nz, tx = tile % s.tiles_x, ty = tile / s.tiles_x;
        const int sides[4] = {ty > 0 ? tile - s.tiles_x : -1, ty + 1 < s.tiles_y ? tile + s.tiles_x : -1, tx > 0 ? tile - 1 : -1,
                              tx + 1 < s.tiles_x ? tile + 1 : -1};
        load_column(u, pool, nz, tile, z0 - RADIUS, count + 8, sh.units_u, sh.kinds_u);
        load_column(w, pool, nz, tile, z0, count, sh.units_w, sh.kinds_w);
        BUDDY_UNROLL for (int k = 0; k < 4; k++) load_rim_column(u, nz, sides[k], k, z0, count, sh.refs_rim[k], sh.kinds_rim[k]);
        for (u32 i = t; i < TABLE; i += THREADS) sh.table[i] = table[i];
        __syncthreads();
    }
    // Plane z0 - 4 + e.
    BUDDY_FN void stage_u(Stage& to, u32 t, int e) const { stage_pair<WINDOW>(to, sh.units_u[e], sh.kinds_u[e][brick_of(t)], t); }
    BUDDY_FN Pair take_u(Stage& from, u32 t, int e) const { return take_pair<WINDOW>(from, sh.kinds_u[e][brick_of(t)], t); }
    BUDDY_FN void fetch_rim(u32 t, int i) const {
        if (i < count) {
            PackedRim r(t);
            u32 kind = sh.kinds_rim[r.side][i][r.k];
            if (kind != window32::RAW || r.faces())
                stage_quad<WINDOW>(&sh.rim[t], (u64)unit_at(pool, sh.refs_rim[r.side][i][r.q]), kind, PackedRim::brick(r.side, r.k), r.q);
        }
        cp_async_commit();
    }
    BUDDY_FN void fetch_before(u32 t, int i) const {
        if (i < count) stage_pair<WINDOW>(sh.w, sh.units_w[i], sh.kinds_w[i][brick_of(t)], t);
        cp_async_commit();
    }
    BUDDY_FN void fetch_ahead(u32 t, int i) const {  // plane i + 5
        if (i + 1 < count) stage_u(sh.u, t, i + 9);
        cp_async_commit();
    }
    BUDDY_FN void put_rim(float* here, u32 t, int i) const {
        PackedRim r(t);
        if (r.faces()) *(float4*)(here + r.at()) = take_quad<WINDOW, 4>(&sh.rim[t - 4 * r.q], sh.kinds_rim[r.side][i][r.k], r.q);
    }
    // Loads the first nine planes, four at a time, using all of shared memory.
    BUDDY_FN void begin(Queue& queue, u32 t) const {
        Stage* extra = (Stage*)sh.planes;
        Stage* room[4] = {&sh.u, &sh.w, extra, extra + 1};
        BUDDY_UNROLL for (int first = 0; first < 9; first += 4) {
            BUDDY_UNROLL for (int k = 0; k < 4; k++)
                if (first + k < 9) stage_u(*room[k], t, first + k);
            cp_async_commit(), cp_async_wait<0>(), __syncwarp();
            BUDDY_UNROLL for (int k = 0; k < 4; k++)
                if (first + k < 9) queue.plane[first + k] = take_u(*room[k], t, first + k);
            __syncwarp();
        }
        __syncthreads();
    }
    BUDDY_FN Values velocities(uint2 indices) const {
        Values v2;
        BUDDY_UNROLL for (int i = 0; i < 4; i++) v2.v[0][i] = sh.table[indices.x >> (8 * i) & 255], v2.v[1][i] = sh.table[indices.y >> (8 * i) & 255];
        return v2;
    }
    // Stores a brick; one without memory is reported and not written.
    BUDDY_FN void store(const Values& out, u32 was, u32 t, int i) const {
        const window32::Quad a[2] = {words(out.v[0][0], out.v[0][1], out.v[0][2], out.v[0][3]), words(out.v[1][0], out.v[1][1], out.v[1][2], out.v[1][3])};
        const u32 kind = kind_in_warp<WINDOW>(a, t % 32);
        const bool homeless = kind != window32::ZERO && sh.units_w[i][0] == 0;
        store_pair<WINDOW>(sh.w, sh.units_w[i], homeless ? window32::ZERO : kind, t, a);
        if (lane_of(t) != 0 || (!homeless && kind == was)) return;
        const u64 page = (u64)tile * s.n.nz + z0 + i;
        if (homeless) {
            atomicMin(s.fault, page);
        } else {
            w.kinds[page * BRICKS + brick_of(t)] = (u8)kind;
            if (was == window32::ZERO) w.active[page] = 1;
        }
    }
};

BUDDY_FN void wait_group() {
    cp_async_wait<2>();
    __syncwarp();
}

template <int ZC, bool WINDOW>
BUDDY_FN void step_packed(const Field& u, const Field& w, const Pool& pool, const u8* v, const float* table, const Step& s) {
    typedef PackedShared<ZC> Shared;
    BUDDY_DYNAMIC_SHARED(Shared, shared);
    u32 t = threadIdx.x;
    const PackedBlock<ZC, WINDOW> b(*shared, u, w, pool, s);
    Shared& sh = *shared;
    if (!b.wake(t)) return;
    b.load_books(table, t);
    const u8* v_at = v + ((u64)b.tile * s.n.nz + b.z0) * PAGE_CELLS + t * 8;
    uint2 v_next = *(const uint2*)v_at;
    Queue queue;
    b.begin(queue, t);
    b.fetch_rim(t, 0), b.fetch_before(t, 0), b.fetch_ahead(t, 0);
    int turn = 0;
    const int x0 = b.tile % s.tiles_x * TX, y0 = b.tile / s.tiles_x * TY;
    const Spot spot(x0 + cell_x(t), y0 + cell_y(t), s);
    const bool odd = t >> 3 & 1;
    const int inner = quad_at(cell_y(t) + RADIUS, cell_x(t) / 4), left = odd ? -(SX / 2 + 4) : SX / 2, right = odd ? -SX / 2 : SX / 2 + 4;
    BUDDY_ROLLED
    for (int i = 0; i < b.count; i++) {
        const bool wanted = sh.need[i] != 0;
        float* here = sh.planes[turn];
        const uint2 v_here = v_next;
        again(t);
        wait_group();
        if (wanted) {
            *(float4*)(here + inner) = queue.here().row[0], *(float4*)(here + inner + SX) = queue.here().row[1];
            b.put_rim(here, t, i);
            __syncthreads();
            turn ^= 1;
        }
        if (i + 1 < b.count && sh.need[i + 1]) v_next = *(const uint2*)(v_at + (u64)(i + 1) * PAGE_CELLS);
        b.fetch_rim(again(t), i + 1);
        Values lap, out;
        if (wanted) laplacian(here + inner, left, right, queue, lap);
        again(t);
        wait_group();
        if (wanted) {
            const u32 was = sh.kinds_w[i][brick_of(t)];
            const Pair before = take_pair<WINDOW>(sh.w, was, t);
            __syncwarp();
            advance(queue.here(), before, b.velocities(v_here), lap, spot, x0 + cell_x(t), y0 + cell_y(t), b.z0 + i, s, sh.table + VELOCITIES, out);
            b.store(out, was, again(t), i);
        }
        b.fetch_before(again(t), i + 1);
        wait_group();
        queue.advance(i + 1 < b.count ? b.take_u(sh.u, t, i + 9) : zero_pair());
        __syncwarp();
        b.fetch_ahead(again(t), i + 1);
    }
    cp_async_wait<0>();
}

}  // namespace buddy
