// The acoustic wave equation u_tt = c^2 lap u + source: order 8 in space, 2 in time, fp32, with
// damping layers at all six sides. A table from Rust has the squares of 256 velocities, then the
// damping factors at depths 0, 1, ... of a layer. Operations are explicit and compiled without
// contraction, so that results equal the CPU's (src/large/model.rs) bit for bit.
#pragma once
#include "stencil_cells.cuh"

namespace buddy {

using namespace stencil;
constexpr int RADIUS = 4, LAYER = BUDDY_WAVE_LAYER, VELOCITIES = 256, TABLE = VELOCITIES + LAYER + 1;
constexpr float C0 = -3.0f * 205.0f / 72.0f, C1 = 8.0f / 5.0f, C2 = -1.0f / 5.0f, C3 = 8.0f / 315.0f, C4 = -1.0f / 560.0f;
constexpr float SMALLEST = 1e-30f;  // smaller numbers are stored as zero

// One step of the wave.
struct Step {
    Grid n;
    float push;  // source amplitude in this step
    u64* fault;  // the lowest page to be written that had no memory
};
struct Source {
    int x, y, z;
    BUDDY_FN static Source of(Grid n) { return {n.nx / 2, n.ny / 2, n.nz * 7 / 16}; }
};

// Returns a cell's depth in a damping layer along one axis; 0 outside.
BUDDY_FN int depth_at(int i, int n) {
    int low = LAYER - i, high = i - (n - 1 - LAYER), depth = low > high ? low : high;
    return depth > 0 ? depth : 0;
}
BUDDY_FN float flush(float v) { return fabsf(v) < SMALLEST ? 0.0f : v; }

// Returns the next value of a cell; `keep` is the damping factor of a step, 1 outside the layers.
BUDDY_FN float update(float here, float before, float v2, float lap, float keep) {
    return flush(keep * fmaf(v2, lap, fmaf(-keep, before, here + here)));
}
BUDDY_FN float update(float here, float before, float v2, float lap) { return flush(fmaf(v2, lap, fmaf(2.0f, here, -before))); }

// Returns the velocity index of a cell: folded layers, faster with depth, and a body of salt.
BUDDY_FN u32 velocity_index(int x, int y, int z, Grid n) {
    i64 fx = (i64)x * 4096 / n.nx, fy = (i64)y * 4096 / n.ny, fz = (i64)z * 4096 / n.nz;
    i64 ex = fx - 2600, ey = fy - 1700, ez = fz - 2300;
    if (ex * ex * 4 + ey * ey * 3 + ez * ez * 9 < 4000000) return VELOCITIES - 1;
    i64 tx = fx & 2047, ty = (fy + 700) & 4095;
    i64 fold = (tx < 1024 ? tx : 2047 - tx) / 6 + (ty < 2048 ? ty : 4095 - ty) / 9;  // up to 170 + 227
    i64 layers = n.nz / 24 < 1 ? 1 : n.nz / 24 > VELOCITIES - 1 ? VELOCITIES - 1 : n.nz / 24;
    return (u32)((fz + fold) * layers / (4096 + 398));
}

}  // namespace buddy
