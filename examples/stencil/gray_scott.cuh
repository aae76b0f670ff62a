// Gray-Scott: two substances that diffuse and react, u + 2v -> 3v. The fields are 1 - u and v, so that a
// cell at rest is zero and takes no memory. Every `apart` planes lies a layer of seeds.
#pragma once

struct GrayScott {
    static constexpr int FIELDS = 2, RADIUS = 1, PLANES = 32;
    static constexpr bool BEFORE = false;
    int apart = 256, thick = 64;  // planes
    bool everywhere = false;      // the layers have no gaps
    float feed = 0.03f, kill = 0.055f, spread_u = 0.16f, spread_v = 0.08f;

    template <class At, class V>
    BUDDY_FN void update(const At& at, V (&next)[FIELDS]) const {
        using buddy::stencil::flush;
        using buddy::stencil::multiply_add;
        const V lack = at(0), v = at(1);
        const V lap_lack = multiply_add(V(-6.0f), lack, at.x(0, -1) + at.x(0, 1) + (at.y(0, -1) + at.y(0, 1)) + (at.z(0, -1) + at.z(0, 1)));
        const V lap_v = multiply_add(V(-6.0f), v, at.x(1, -1) + at.x(1, 1) + (at.y(1, -1) + at.y(1, 1)) + (at.z(1, -1) + at.z(1, 1)));
        const V reaction = (V(1.0f) - lack) * (v * v);
        // Smaller values would be lost in u = 1 - lack, which has 24 bits.
        next[0] = flush(multiply_add(V(spread_u), lap_lack, multiply_add(V(1.0f - feed), lack, reaction)), 3e-8f);
        next[1] = flush(multiply_add(V(spread_v), lap_v, multiply_add(V(1.0f - feed - kill), v, reaction)), 3e-8f);
    }
    BUDDY_FN float seed(int field, int x, int y, int z) const {
        unsigned mixed = ((unsigned)x * 73856093u ^ (unsigned)y * 19349663u ^ (unsigned)z * 83492791u) * 2654435761u;
        mixed ^= mixed >> 15;
        return field == 0 ? 0.5f : 0.2f + (float)(mixed >> 8) * (0.1f / 16777216.0f);
    }
    BUDDY_FN float initial(int field, int x, int y, int z) const {
        const int plane = z % apart, from = (apart - thick) / 2;
        return everywhere || (plane >= from && plane < from + thick) ? seed(field, x, y, plane) : 0.0f;
    }
};
