// One step of the wave in compressed memory: a stencil of order two in time, with a table, a byte of
// velocity per cell, and a source.
#pragma once
#include "stencil_step.cuh"
#include "wave_tile.cuh"

namespace buddy {

// The shape of the wave, as StepBlock takes it.
template <int ZC>
struct WaveShape {
    static constexpr int FIELDS = 1, RADIUS = buddy::RADIUS, PLANES = ZC;
    static constexpr bool BEFORE = true;
};
template <int ZC>
struct PackedShared : StepShared<WaveShape<ZC>> {
    float table[TABLE];
};

// Returns true if the source is in a page in this step.
BUDDY_FN bool has_source(const Step& s, int tile, int z) {
    const Source at = Source::of(s.n);
    return s.push != 0.0f && z == at.z && tile == at.y / TY * s.n.tiles_x() + at.x / TX;
}
BUDDY_FN Cells velocities(const float* table, uint2 indices) {
    Cells v2;
    BUDDY_UNROLL for (int i = 0; i < 4; i++) v2.v[0][i] = table[indices.x >> (8 * i) & 255], v2.v[1][i] = table[indices.y >> (8 * i) & 255];
    return v2;
}

template <int ZC, bool WINDOW>
BUDDY_FN void step_packed(const State& u, const State& w, const Pool& pool, const u8* v, const float* table, const Step& s) {
    typedef PackedShared<ZC> Shared;
    BUDDY_DYNAMIC_SHARED(Shared, shared);
    u32 t = threadIdx.x;
    const StepBlock<WaveShape<ZC>, WINDOW> b(*shared, u, w, pool, s.n);
    Shared& sh = *shared;
    if (!b.wake(t, [&](int z) { return has_source(s, b.tile, z); })) return;
    for (u32 i = t; i < TABLE; i += THREADS) sh.table[i] = table[i];
    b.load_books();
    const u8* v_at = v + ((u64)b.tile * s.n.nz + b.z0) * PAGE_CELLS + t * 8;
    uint2 v_next = *(const uint2*)v_at;
    Queue<RADIUS> queues[1];
    Queue<RADIUS>& queue = queues[0];
    b.begin(queues, t);
    b.fetch_rim(t, 0), b.fetch_before(t, 0), b.fetch_ahead(t, 0);
    int turn = 0;
    const int x0 = b.tile % s.n.tiles_x() * TX, y0 = b.tile / s.n.tiles_x() * TY;
    const Spot spot(x0 + cell_x(t), y0 + cell_y(t), s);
    const bool odd = t >> 3 & 1;
    const int inner = quad_at(cell_y(t) + RADIUS, cell_x(t) / 4), left = odd ? -(SX / 2 + 4) : SX / 2, right = odd ? -SX / 2 : SX / 2 + 4;
    BUDDY_ROLLED
    for (int i = 0; i < b.count; i++) {
        const bool wanted = sh.need[i] != 0;
        float* here = sh.planes[turn][0];
        const uint2 v_here = v_next;
        again(t);
        wait_group();
        if (wanted) {
            *(float4*)(here + inner) = queue.here().row[0], *(float4*)(here + inner + SX) = queue.here().row[1];
            b.put_rim(sh.planes[turn], t, i);
            __syncthreads();
            turn ^= 1;
        }
        if (i + 1 < b.count && sh.need[i + 1]) v_next = *(const uint2*)(v_at + (u64)(i + 1) * PAGE_CELLS);
        b.fetch_rim(again(t), i + 1);
        Cells lap, out;
        if (wanted) laplacian(here + inner, left, right, queue, lap);
        again(t);
        wait_group();
        if (wanted) {
            const Pair before = b.take_before(0, t, i);
            __syncwarp();
            advance(queue.here(), before, velocities(sh.table, v_here), lap, spot, x0 + cell_x(t), y0 + cell_y(t), b.z0 + i, s, sh.table + VELOCITIES, out);
            b.store(0, out.pair(), again(t), i, s.fault);
        }
        b.fetch_before(again(t), i + 1);
        wait_group();
        queue.advance(i + 1 < b.count ? b.take(sh.ahead[0], 0, t, i + 9) : zero_pair());
        __syncwarp();
        b.fetch_ahead(again(t), i + 1);
    }
    cp_async_wait<0>();
}

}  // namespace buddy
