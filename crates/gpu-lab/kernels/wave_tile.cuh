// A block's data of the wave, in plain and in compressed memory alike. It traverses a column of 64
// x 32 cells; a thread has two rows of four cells. Nine planes of them are in registers, four
// before and four after the current one; the current plane, with a halo of four cells, is
// double-buffered in shared memory, so that a plane needs one barrier.
#pragma once
#include "shared.cuh"
#include "wave_model.cuh"

namespace buddy {

constexpr int TX = 64, TY = 32, THREADS = 256, SX = TX + 2 * RADIUS, SY = TY + 2 * RADIUS;

// Two rows of four cells.
struct Pair {
    float4 row[2];
};
struct Queue {
    Pair plane[2 * RADIUS + 1];

    BUDDY_FN const Pair& here() const { return plane[RADIUS]; }
    BUDDY_FN void advance(const Pair& ahead) {
        BUDDY_UNROLL for (int k = 0; k < 2 * RADIUS; k++) plane[k] = plane[k + 1];
        plane[2 * RADIUS] = ahead;
    }
};
struct Values {
    float v[2][4];
};

BUDDY_FN float get(const float4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
BUDDY_FN float4 zero4() { return make_float4(0, 0, 0, 0); }
BUDDY_FN Pair zero_pair() { return {{zero4(), zero4()}}; }

// Makes the compiler recompute values derived from the thread index, which costs less than the
// registers that would hold them.
BUDDY_FN u32 again(u32& t) {
#ifdef __CUDA_ARCH__
    asm volatile("" : "+r"(t));
#endif
    return t;
}

BUDDY_FN void add_pair(Values& lap, int j, float c, const float4& a, const float4& b) {
    BUDDY_UNROLL for (int i = 0; i < 4; i++) lap.v[j][i] = fmaf(c, get(a, i) + get(b, i), lap.v[j][i]);
}

// Computes the Laplacian of a thread's cells, the first of them at `at` in a plane with its halo:
// along x, then y, then z, near ones first. `left_at` and `right_at` are the positions of the four
// cells before and after them.
BUDDY_FN void laplacian(const float* at, int left_at, int right_at, const Queue& queue, Values& lap) {
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
BUDDY_FN void advance(const Pair& here, const Pair& before, const Values& v2, const Values& lap, Spot spot, int x, int y, int z, const Step& s,
                      const float* damping, Values& out) {
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
