// One step of the wave in plain memory: the reference for the compressed kernel, and the kernel of
// slabs and pinned memory.
#pragma once
#include "stencil_plain.cuh"
#include "wave_tile.cuh"

namespace buddy {

// Planes [0, planes) of a slab; `below` and `above` planes of u precede and follow it. Rows along
// x, unpadded.
struct Slab {
    const float* u;
    float* w;
    const float* v2;
    int first, planes, below, above;  // first: the slab's first plane in the grid
};

// Planes arrive through shared memory; each slot is used by one thread only, which requests the
// next plane as soon as it has read the current one. Three groups of copies rotate (rim, before,
// ahead): two may be in flight at any wait.
struct alignas(16) SlabShared {
    float planes[2][SX * (TY + 2 * RADIUS)];
    float4 u[2][THREADS], w[2][THREADS], v[2][THREADS], rim[PlainRim<RADIUS>::ALL];
    float damping[LAYER + 1];
};

template <int ZC>
struct SlabBlock {
    SlabShared& sh;
    const Slab& slab;
    const Step& s;
    int x0, y0, z0, z1;
    i64 plane, mine;

    BUDDY_FN SlabBlock(SlabShared& sh, const Slab& slab, const Step& s, u32 t) : sh(sh), slab(slab), s(s) {
        x0 = (int)(blockIdx.x % s.n.tiles_x()) * TX, y0 = (int)(blockIdx.x / s.n.tiles_x()) * TY;
        z0 = (int)blockIdx.y * ZC, z1 = z0 + ZC < slab.planes ? z0 + ZC : slab.planes;
        plane = (i64)s.n.nx * s.n.ny, mine = (i64)(y0 + (int)(t / 16 * 2)) * s.n.nx + x0 + (int)(t % 16 * 4);
    }
    BUDDY_FN bool inside(int z) const { return z >= -slab.below && z < slab.planes + slab.above; }
    BUDDY_FN Pair load(int z) const {
        if (!inside(z)) return zero_pair();
        const float* at = slab.u + z * plane + mine;
        return {{*(const float4*)at, *(const float4*)(at + s.n.nx)}};
    }
    BUDDY_FN void fetch(float4 (*to)[THREADS], const float* from, u32 t, int z) const {
        BUDDY_UNROLL for (int j = 0; j < 2; j++) cp_async<16>(&to[j][t], from + z * plane + mine + j * s.n.nx);
    }
    BUDDY_FN void fetch_rim(u32 t, int z) const {
        PlainRim<RADIUS> r = PlainRim<RADIUS>::of(t);
        if (z < z1 && r.inside(t, x0, y0, s.n)) cp_async<16>(&sh.rim[t], slab.u + z * plane + (i64)(y0 + r.y) * s.n.nx + x0 + r.x);
        cp_async_commit();
    }
    BUDDY_FN void fetch_before(u32 t, int z) const {
        if (z < z1) fetch(sh.w, slab.w, t, z), fetch(sh.v, slab.v2, t, z);
        cp_async_commit();
    }
    BUDDY_FN void fetch_ahead(u32 t, int z) const {
        if (z < z1 + RADIUS && inside(z)) fetch(sh.u, slab.u, t, z);
        cp_async_commit();
    }
    BUDDY_FN void put_rim(float* here, u32 t) const {
        if (t >= PlainRim<RADIUS>::ALL) return;
        PlainRim<RADIUS> r = PlainRim<RADIUS>::of(t);
        *(float4*)(here + r.at()) = r.inside(t, x0, y0, s.n) ? sh.rim[t] : zero4();
    }
    BUDDY_FN Cells velocities(u32 t) const {
        Cells v2;
        BUDDY_UNROLL for (int j = 0; j < 2; j++)
            BUDDY_UNROLL for (int i = 0; i < 4; i++) v2.v[j][i] = get(sh.v[j][t], i);
        return v2;
    }
    BUDDY_FN void store(int z, const Cells& out) const {
        BUDDY_UNROLL for (int j = 0; j < 2; j++)
            *(float4*)(slab.w + z * plane + mine + j * s.n.nx) = make_float4(out.v[j][0], out.v[j][1], out.v[j][2], out.v[j][3]);
    }
};

template <int ZC>
BUDDY_FN void step_slab(const Slab& slab, const float* table, const Step& s) {
    BUDDY_DYNAMIC_SHARED(SlabShared, shared);
    u32 t = threadIdx.x;
    const SlabBlock<ZC> b(*shared, slab, s, t);
    const u32 inner = (t / 16 * 2 + RADIUS) * SX + t % 16 * 4 + RADIUS;
    const Spot spot(b.x0 + (int)(t % 16 * 4), b.y0 + (int)(t / 16 * 2), s);
    b.fetch_rim(t, b.z0), b.fetch_before(t, b.z0), b.fetch_ahead(t, b.z0 + 5);
    if (t <= LAYER) b.sh.damping[t] = table[VELOCITIES + t];
    Queue<RADIUS> queue;
    BUDDY_UNROLL for (int k = 0; k <= 2 * RADIUS; k++) queue.plane[k] = b.load(b.z0 - RADIUS + k);
    int turn = 0;
    BUDDY_ROLLED
    for (int z = b.z0; z < b.z1; z++, turn ^= 1) {
        float* here = b.sh.planes[turn];
        again(t);
        cp_async_wait<2>();
        *(float4*)(here + inner) = queue.here().row[0], *(float4*)(here + inner + SX) = queue.here().row[1];
        b.put_rim(here, t);
        __syncthreads();
        b.fetch_rim(again(t), z + 1);
        Cells lap, out;
        laplacian(here + inner, -4, 4, queue, lap);
        again(t);
        cp_async_wait<2>();
        const Pair before = {{b.sh.w[0][t], b.sh.w[1][t]}};
        advance(queue.here(), before, b.velocities(t), lap, spot, b.x0 + (int)(t % 16 * 4), b.y0 + (int)(t / 16 * 2), slab.first + z, s, b.sh.damping, out);
        b.fetch_before(again(t), z + 1);
        b.store(z, out);
        cp_async_wait<2>();
        queue.advance(b.inside(z + 5) ? Pair{{b.sh.u[0][t], b.sh.u[1][t]}} : zero_pair());
        b.fetch_ahead(again(t), z + 6);
    }
    cp_async_wait<0>();
}

}  // namespace buddy
