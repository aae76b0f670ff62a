// buddy_stencil.cuh and the models of examples/stencil, run on the CPU: in every way of storing the
// fields, every value has the bits of a plain loop over cells. Exits with 1 and a message otherwise.
#include "buddy_stencil.cuh"
#include "gray_scott.cuh"
#include "wave.cuh"

using namespace buddy;
using namespace buddy::stencil;

static void expect(bool holds, const char* what) {
    if (!holds) fprintf(stderr, "%s\n", what), exit(1);
}

// The reference: a loop over the cells.
template <class Model>
struct Reference {
    Model model;
    Grid n;
    std::vector<float> now, next;
    Reference(Model model, Grid n) : model(model), n(n), now(Model::FIELDS * n.cells()) {
        each([&](int x, int y, int z, u64 cell) {
            for (int f = 0; f < Model::FIELDS; f++) now[f * n.cells() + cell] = model.initial(f, x, y, z);
        });
        next = now;
    }
    template <class Function>
    void each(Function function) {
        for (u64 cell = 0; cell < n.cells(); cell++) function((int)(cell % n.nx), (int)(cell / n.nx % n.ny), (int)(cell / n.nx / n.ny), cell);
    }
    void step() {
        each([&](int x, int y, int z, u64 cell) {
            float values[Model::FIELDS];
            model.update(AroundCell<Model>{now.data(), next.data(), n, x, y, z}, values);
            for (int f = 0; f < Model::FIELDS; f++) next[f * n.cells() + cell] = values[f];
        });
        std::swap(now, next);
    }
    bool is(const float* values) const { return memcmp(values, now.data(), now.size() * 4) == 0; }
};

struct Case {
    const char* name;
    Grid n;
    int steps, device_percent, host_percent;
    bool windows;
};

// Runs a case in all ways; returns the shares at its end.
template <class Model>
Shares run(const Case& c, Model model, u32* moved = nullptr) {
    const size_t all = 2 * Model::FIELDS * c.n.pages() * UNITS * UNIT;
    Reference<Model> reference(model, c.n);
    Plain<Model> plain(model, c.n), simple(model, c.n);
    Packed<Model> packed(model, c.n, all * c.device_percent / 100, all * c.host_percent / 100);
    if (c.windows) packed.use_windows();
    std::vector<float> plane(c.n.nx * c.n.ny);
    for (int i = 0; i < c.steps; i++) {
        reference.step(), plain.step(), simple.simple(), packed.step();
        if (i % 5 != 4 && i + 1 != c.steps) continue;
        expect(reference.is(plain.now()), "plain memory differs from the loop");
        expect(reference.is(simple.now()), "the simple kernel differs from the loop");
        expect(packed.differing(plain) == 0, "compressed memory differs from plain memory");
    }
    packed.look();
    for (int f = 0; f < Model::FIELDS; f++) {
        const int z = c.n.nz / 2;
        packed.read(f, z, 1, plane.data());
        expect(memcmp(plane.data(), reference.now.data() + (f * c.n.nz + z) * plane.size(), plane.size() * 4) == 0, "an unpacked plane differs");
    }
    plain.now()[c.n.cells() - 1] += 1.0f;
    expect(packed.differing(plain) == 1, "a difference is not counted");
    const Shares shares = packed.shares();
    printf("%s: zero %.3f window %.3f raw %.3f on host %.3f lit %.3f moved %u\n", c.name, shares.zero, shares.window, shares.raw, shares.host, shares.lit, packed.books().moved);
    if (moved) *moved = packed.books().moved;
    return shares;
}

// Cubes of seeds instead of layers, `shift` cells from the middle of the boxes.
struct Cubes : GrayScott {
    int shift = 0;
    float initial(int field, int x, int y, int z) const {
        const int from[3] = {x % apart - apart / 2 + shift, y % apart - apart / 2 + shift, z % apart - apart / 2};
        for (int k : from)
            if (k < -thick / 2 || k >= thick / 2) return 0.0f;
        return seed(field, x % apart, y % apart, z % apart);
    }
};

// A grid of equal boxes whose seeds do not touch is each box's run, repeated.
static void boxes() {
    Cubes model;
    model.apart = 64, model.thick = 4;
    const Grid box = {64, 64, 64}, n = {128, 128, 64};
    Plain<Cubes> plain(model, box);
    Packed<Cubes> packed(model, n);
    for (int i = 0; i < 10; i++) plain.step(), packed.step();
    expect(packed.differing(plain) == 0, "boxes differ from one box");
    expect(packed.shares().lit < 0.9, "pages out of reach take memory");
    const Plain<Cubes> other(model, {64, 96, 64});
    try {
        packed.differing(other);
        expect(false, "grids that do not divide are compared");
    } catch (const Error&) {
    }
}

// A state that does not find memory is an error.
static void too_little() {
    try {
        Packed<GrayScott> packed({}, {64, 64, 256}, 1 << 22);
        for (int i = 0; i < 30; i++) packed.step();
        expect(false, "a page without memory is no error");
    } catch (const Error&) {
    }
    try {
        Packed<GrayScott> packed({}, {65, 64, 64});
        expect(false, "a grid of parts of tiles is no error");
    } catch (const Error&) {
    }
}

int main() {
    Cubes seeds;
    GrayScott layers, everywhere;
    seeds.apart = 64, seeds.thick = 8, layers.apart = 40, layers.thick = 6, everywhere.everywhere = true;
    u32 moved = 0;
    Shares s = run({"gray-scott", {128, 64, 70}, 22, 100, 0, false}, seeds);
    expect(s.window == 0 && s.raw > 0 && s.zero > 0 && s.lit < 1, "bricks are raw, and pages dark");
    s = run({"gray-scott, windows", {128, 64, 34}, 16, 100, 0, true}, everywhere);
    expect(s.window > 0 && s.host == 0, "bricks are windows");
    s = run({"gray-scott, layers", {64, 64, 80}, 12, 100, 0, false}, layers);
    expect(s.raw > 0 && s.lit < 1, "layers have memory, and pages between them none");
    s = run({"gray-scott, everywhere", {64, 64, 33}, 7, 60, 60, true}, everywhere);
    expect(s.host > 0 && s.lit == 1, "bricks lie on the host");
    Cubes deep;
    deep.apart = 160, deep.thick = 8, deep.shift = 64;
    s = run({"gray-scott, scarce", {64, 32, 160}, 60, 28, 30, false}, deep, &moved);
    expect(s.window > 0 && s.host > 0 && moved > 0, "pages are retargeted");
    Wave wave = {128, 64, 70};
    wave.apart = 64;
    s = run({"wave", {128, 64, 70}, 14, 100, 0, false}, wave);
    expect(s.raw > 0 && s.window == 0, "bricks of the wave are raw");
    wave.nx = 64, wave.ny = 96, wave.nz = 40, wave.everywhere = true;
    s = run({"wave, everywhere", {64, 96, 40}, 12, 50, 60, true}, wave);
    expect(s.window > 0 && s.host > 0, "bricks of the wave are windows");
    boxes(), too_little();
}
