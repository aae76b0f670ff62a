// The update of a thread's cells of the wave, in plain and in compressed memory alike: nine planes are in
// registers, the current one with a halo of four cells in shared memory.
#pragma once
#include "wave_model.cuh"

namespace buddy {

BUDDY_FN void add_pair(Cells& lap, int j, float c, const float4& a, const float4& b) {
    BUDDY_UNROLL for (int i = 0; i < 4; i++) lap.v[j][i] = fmaf(c, get(a, i) + get(b, i), lap.v[j][i]);
}

// Computes the Laplacian of a thread's cells, the first of them at `at` in a plane with its halo:
// along x, then y, then z, near ones first. `left_at` and `right_at` are the positions of the four
// cells before and after them.
BUDDY_FN void laplacian(const float* at, int left_at, int right_at, const Queue<RADIUS>& queue, Cells& lap) {
    const float c[5] = {C0, C1, C2, C3, C4};
    const Pair& here = queue.here();
    BUDDY_UNROLL for (int j = 0; j < 2; j++) {
        float4 left = *(const float4*)(at + j * SX + left_at), mid = here.row[j], right = *(const float4*)(at + j * SX + right_at);
        float row[12] = {left.x, left.y, left.z, left.w, mid.x, mid.y, mid.z, mid.w, right.x, right.y, right.z, right.w};
        BUDDY_UNROLL for (int i = 0; i < 4; i++) {
            lap.v[j][i] = c[0] * row[4 + i];
            BUDDY_UNROLL for (int k = 1; k <= RADIUS; k++) lap.v[j][i] = fmaf(c[k], row[4 + i - k] + row[4 + i + k], lap.v[j][i]);
        }
    }
    float4 low = here.row[0], high = here.row[1];  // rows 1 - k and k
    BUDDY_UNROLL for (int k = 1; k <= RADIUS; k++) {
        float4 lower = *(const float4*)(at - k * SX), higher = *(const float4*)(at + (1 + k) * SX);
        add_pair(lap, 0, c[k], lower, high);
        add_pair(lap, 1, c[k], low, higher);
        low = lower, high = higher;
    }
    BUDDY_UNROLL for (int k = 1; k <= RADIUS; k++)
        BUDDY_UNROLL for (int j = 0; j < 2; j++) add_pair(lap, j, c[k], queue.plane[RADIUS - k].row[j], queue.plane[RADIUS + k].row[j]);
}

// A thread's constants: whether its cells touch a lateral damping layer, and the source's column.
struct Spot {
    u32 flags;
    BUDDY_FN Spot(int x, int y, const Step& s) {
        Source at = Source::of(s.n);
        bool layer = x < LAYER || x + 3 >= s.n.nx - LAYER || y < LAYER || y + 1 >= s.n.ny - LAYER;
        bool source = s.push != 0.0f && (y ^ at.y) < 2 && (x ^ at.x) < 4;
        flags = (layer ? 1 : 0) | (source ? 2 : 0);
    }
};

// Computes the next values of a thread's cells, the first of them at x and y. `damping` has the
// factors by depth.
BUDDY_FN void advance(const Pair& here, const Pair& before, const Cells& v2, const Cells& lap, Spot spot, int x, int y, int z, const Step& s,
                      const float* damping, Cells& out) {
    if ((spot.flags & 1) || z < LAYER || z >= s.n.nz - LAYER) {
        float keep_x[4], keep_z = damping[depth_at(z, s.n.nz)];
        BUDDY_UNROLL for (int i = 0; i < 4; i++) keep_x[i] = damping[depth_at(x + i, s.n.nx)];
        BUDDY_UNROLL for (int j = 0; j < 2; j++) {
            float keep_yz = damping[depth_at(y + j, s.n.ny)] * keep_z;
            BUDDY_UNROLL for (int i = 0; i < 4; i++)
                out.v[j][i] = update(get(here.row[j], i), get(before.row[j], i), v2.v[j][i], lap.v[j][i], keep_x[i] * keep_yz);
        }
    } else {
        BUDDY_UNROLL for (int j = 0; j < 2; j++)
            BUDDY_UNROLL for (int i = 0; i < 4; i++) out.v[j][i] = update(get(here.row[j], i), get(before.row[j], i), v2.v[j][i], lap.v[j][i]);
    }
    Source at = Source::of(s.n);
    if (!(spot.flags & 2) || z != at.z) return;
    BUDDY_UNROLL for (int j = 0; j < 2; j++)
        BUDDY_UNROLL for (int i = 0; i < 4; i++)
            if (x + i == at.x && y + j == at.y) out.v[j][i] = flush(out.v[j][i] + s.push);
}

}  // namespace buddy
