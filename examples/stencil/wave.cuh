// An acoustic wave, order 8 in space and 2 in time, over rock that is faster with depth, with damping
// layers at all sides. A pulse at rest lies in the middle of every cube of `apart` cells.
#pragma once

struct Wave {
    static constexpr int FIELDS = 1, RADIUS = 4, PLANES = 64;
    static constexpr bool BEFORE = true;
    int nx, ny, nz, apart = 256;
    bool everywhere = false;  // instead of pulses, every cell begins different from zero

    // Cells from the nearest side, if less than the 24 of a damping layer.
    BUDDY_FN float keep(int at, int n) const {
        const int from_side = at < n - 1 - at ? at : n - 1 - at;
        const float depth = from_side < 24 ? (float)(24 - from_side) : 0.0f;
        return 1.0f - 0.0002f * depth * depth;
    }
    template <class At, class V>
    BUDDY_FN void update(const At& at, V (&next)[FIELDS]) const {
        using buddy::stencil::flush;
        using buddy::stencil::multiply_add;
        const float weight[5] = {-3.0f * 205.0f / 72.0f, 8.0f / 5.0f, -1.0f / 5.0f, 8.0f / 315.0f, -1.0f / 560.0f};
        V lap = V(weight[0]) * at(0);
        BUDDY_UNROLL for (int k = 1; k <= 4; k++) lap = multiply_add(V(weight[k]), at.x(0, -k) + at.x(0, k), lap);
        BUDDY_UNROLL for (int k = 1; k <= 4; k++) lap = multiply_add(V(weight[k]), at.y(0, -k) + at.y(0, k), lap);
        BUDDY_UNROLL for (int k = 1; k <= 4; k++) lap = multiply_add(V(weight[k]), at.z(0, -k) + at.z(0, k), lap);
        const V damping = at.of_position([this](int x, int y, int z) { return keep(x, nx) * keep(y, ny) * keep(z, nz); });
        const V speed = at.of_position([this](int, int, int z) { return 0.08f + 0.08f * (float)(z / 8) / (float)(nz / 8 + 1); });
        next[0] = flush(damping * multiply_add(speed, lap, at(0) + at(0) - damping * at.before(0)), 1e-30f);
    }
    BUDDY_FN float initial(int, int x, int y, int z) const {
        if (everywhere) return 1e-3f * (float)((x * 7 + y * 13 + z * 29) % 1021 + 1);
        const int from[3] = {x % apart - apart / 2, y % apart - apart / 2, z % apart - apart / 2};
        const int square = from[0] * from[0] + from[1] * from[1] + from[2] * from[2];
        if (square >= 64) return 0.0f;
        const float a = 1.0f - (float)square / 64.0f;
        return a * a * a;
    }
};
