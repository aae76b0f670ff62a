// One step of a stencil in plain memory: the reference for compressed memory, in values and in speed.
#pragma once
#include "stencil_cells.cuh"

namespace buddy {
namespace stencil {

// The halo of a tile: R rows below and above it, then the four columns at both sides; a thread has
// four cells.
template <int R>
struct PlainRim {
    static constexpr u32 ROWS = 2 * R * (TX / 4), ALL = ROWS + 2 * TY;
    int x, y;  // from the tile's first cell
    BUDDY_FN static PlainRim of(u32 t) {
        if (t < ROWS) return {(int)(t % 16 * 4), (int)(t / 16) - (t < ROWS / 2 ? R : R - TY)};
        return {t < ROWS + TY ? -4 : TX, (int)((t - ROWS) % TY)};
    }
    BUDDY_FN bool inside(u32 t, int x0, int y0, const Grid& n) const {
        return t < ALL && x0 + x >= 0 && x0 + x < n.nx && y0 + y >= 0 && y0 + y < n.ny;
    }
    BUDDY_FN int at() const { return (y + R) * SX + x + MARGIN; }
};

// Planes arrive through shared memory; each slot is used by one thread only, which requests the next
// plane as soon as it has read the current one. The groups of copies are those of stencil_step.cuh.
template <class Model>
struct alignas(16) PlainShared {
    static constexpr int F = Model::FIELDS, PLANE = SX * (TY + 2 * Model::RADIUS);
    float planes[2][F][PLANE];
    float4 ahead[F][2][THREADS], old[Model::BEFORE ? F : 1][2][THREADS], rim[F][PlainRim<Model::RADIUS>::ALL];
};

template <class Model>
struct PlainBlock {
    static constexpr int F = Model::FIELDS, R = Model::RADIUS, PLANES = 2 * Model::PLANES;
    PlainShared<Model>& sh;
    const float* from;
    float* to;
    const Grid& n;
    int x0, y0, z0, z1;
    i64 plane, field, mine;

    BUDDY_FN PlainBlock(PlainShared<Model>& sh, const float* from, float* to, const Grid& n, u32 t) : sh(sh), from(from), to(to), n(n) {
        x0 = (int)(blockIdx.x % n.tiles_x()) * TX, y0 = (int)(blockIdx.x / n.tiles_x()) * TY;
        z0 = (int)blockIdx.y * PLANES, z1 = z0 + PLANES < n.nz ? z0 + PLANES : n.nz;
        plane = (i64)n.nx * n.ny, field = plane * n.nz, mine = (i64)(y0 + (int)(t / 16 * 2)) * n.nx + x0 + (int)(t % 16 * 4);
    }
    BUDDY_FN bool inside(int z) const { return z >= 0 && z < n.nz; }
    BUDDY_FN Pair load(int f, int z) const {
        if (!inside(z)) return zero_pair();
        const float* at = from + f * field + z * plane + mine;
        return {{*(const float4*)at, *(const float4*)(at + n.nx)}};
    }
    BUDDY_FN void fetch(float4 (*room)[THREADS], const float* values, u32 t, int f, int z) const {
        BUDDY_UNROLL for (int j = 0; j < 2; j++) cp_async<16>(&room[j][t], values + f * field + z * plane + mine + j * n.nx);
    }
    BUDDY_FN void fetch_rim(u32 t, int z) const {
        const PlainRim<R> r = PlainRim<R>::of(t);
        if (z < z1 && r.inside(t, x0, y0, n)) {
            BUDDY_UNROLL for (int f = 0; f < F; f++) cp_async<16>(&sh.rim[f][t], from + f * field + z * plane + (i64)(y0 + r.y) * n.nx + x0 + r.x);
        }
        cp_async_commit();
    }
    BUDDY_FN void fetch_before(u32 t, int z) const {
        if (Model::BEFORE && z < z1) {
            BUDDY_UNROLL for (int f = 0; f < F; f++) fetch(sh.old[f], to, t, f, z);
        }
        cp_async_commit();
    }
    BUDDY_FN void fetch_ahead(u32 t, int z) const {
        if (z < z1 + R && inside(z)) {
            BUDDY_UNROLL for (int f = 0; f < F; f++) fetch(sh.ahead[f], from, t, f, z);
        }
        cp_async_commit();
    }
    BUDDY_FN void put_rim(float (*here)[PlainShared<Model>::PLANE], u32 t) const {
        if (t >= PlainRim<R>::ALL) return;
        const PlainRim<R> r = PlainRim<R>::of(t);
        BUDDY_UNROLL for (int f = 0; f < F; f++) *(float4*)(here[f] + r.at()) = r.inside(t, x0, y0, n) ? sh.rim[f][t] : zero4();
    }
};

template <class Model>
BUDDY_FN void step_plain(const Model& model, const float* from, float* to, const Grid& n) {
    constexpr int F = Model::FIELDS, R = Model::RADIUS;
    typedef PlainShared<Model> Shared;
    BUDDY_DYNAMIC_SHARED(Shared, shared);
    u32 t = threadIdx.x;
    Shared& sh = *shared;
    const PlainBlock<Model> b(sh, from, to, n, t);
    const int inner = (int)(t / 16 * 2 + R) * SX + (int)(t % 16 * 4) + MARGIN;
    b.fetch_rim(t, b.z0), b.fetch_before(t, b.z0), b.fetch_ahead(t, b.z0 + R + 1);
    Queue<R> queue[F];
    BUDDY_UNROLL for (int f = 0; f < F; f++)
        BUDDY_UNROLL for (int k = 0; k <= 2 * R; k++) queue[f].plane[k] = b.load(f, b.z0 - R + k);
    int turn = 0;
    BUDDY_ROLLED
    for (int z = b.z0; z < b.z1; z++, turn ^= 1) {
        float(*here)[Shared::PLANE] = sh.planes[turn];
        again(t);
        cp_async_wait<2>();
        BUDDY_UNROLL for (int f = 0; f < F; f++) {
            float* at = here[f] + inner;
            *(float4*)at = queue[f].here().row[0], *(float4*)(at + SX) = queue[f].here().row[1];
        }
        b.put_rim(here, t);
        __syncthreads();
        b.fetch_rim(again(t), z + 1);
        again(t);
        cp_async_wait<2>();
        Pair old[F];
        BUDDY_UNROLL for (int f = 0; f < F; f++) {
            const auto& values = sh.old[Model::BEFORE ? f : 0];
            old[f] = Model::BEFORE ? Pair{{values[0][t], values[1][t]}} : zero_pair();
        }
        Cells next[F];
        model.update(Around<Model>{here[0] + inner, -4, 4, Shared::PLANE, queue, old, b.x0 + (int)(t % 16 * 4), b.y0 + (int)(t / 16 * 2), z}, next);
        b.fetch_before(again(t), z + 1);
        BUDDY_UNROLL for (int f = 0; f < F; f++) {
            const Pair cells = next[f].pair();
            BUDDY_UNROLL for (int j = 0; j < 2; j++) *(float4*)(b.to + f * b.field + z * b.plane + b.mine + j * n.nx) = cells.row[j];
        }
        cp_async_wait<2>();
        BUDDY_UNROLL for (int f = 0; f < F; f++) queue[f].advance(b.inside(z + R + 1) ? Pair{{sh.ahead[f][0][t], sh.ahead[f][1][t]}} : zero_pair());
        b.fetch_ahead(again(t), z + R + 2);
    }
    cp_async_wait<0>();
}

}  // namespace stencil
}  // namespace buddy
