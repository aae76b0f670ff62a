// Conjugate gradients, the kernels run on the CPU: the packed matrix gives the plain one's solution
// bit for bit, it converges, and the true residual is the solver's. For kernels.rs.
#include "../../cuda/tests/emu.h"

#include "../kernels/cg.cu"

using namespace buddy;

static void expect(bool holds, const char* what) {
    if (!holds) printf("%s\n", what), exit(1);
}

struct Solved {
    std::vector<double> x;
    u32 iterations;
    double rr, residual;
};

template <class Kernel, class Values, class Columns>
static Solved solve(Kernel product, Values values, Columns columns, Cube cube) {
    const u32 blocks = 7;
    u64 rows = cube.rows();
    std::vector<double> x(rows), r(rows), p(rows), q(rows), partial(blocks);
    State state = {};
    auto sum = [&](double* to) { emu::launch(cg_sum, dim3(1), BLOCK, (const double*)partial.data(), blocks, to); };
    emu::launch(cg_begin, dim3(blocks), BLOCK, cube, x.data(), r.data(), p.data(), partial.data());
    sum(&state.rr);
    double goal = 1e-20 * state.rr;
    u32 iterations = 0;
    for (; state.rr > goal && iterations < 200; iterations++) {
        emu::launch(product, dim3(blocks), BLOCK, values, columns, cube, (const double*)p.data(), q.data(), partial.data());
        sum(&state.pap);
        emu::launch(cg_update, dim3(blocks), BLOCK, rows, (const State*)&state, x.data(), r.data(), (const double*)p.data(),
                    (const double*)q.data(), partial.data());
        sum(&state.rr_next);
        emu::launch(cg_direction, dim3(blocks), BLOCK, rows, (const State*)&state, (const double*)r.data(), p.data());
        emu::launch(cg_next, dim3(1), 1, &state);
    }
    double residual;
    emu::launch(cg_residual, dim3(blocks), BLOCK, cube, (const double*)x.data(), partial.data());
    sum(&residual);
    expect(residual <= 4 * goal, "the true residual is larger than the solver says");
    return {x, iterations, state.rr, residual};
}

int main() {
    for (u32 n : {5u, 12u}) {
        Cube cube = {n};
        u64 e = (cube.elements() + TILE - 1) / TILE * TILE, others = 0;  // whole tiles
        std::vector<unsigned short> low(e);
        std::vector<u8> high(e), places(e);
        std::vector<u32> bases(e / MATRIX_ENTRY), columns(e);
        std::vector<double> values(e), table(256);
        table[1] = NEIGHBOUR, table[2] = DIAGONAL;
        TableValues few = {places.data(), table.data()};
        OffsetColumns offset = {low.data(), high.data(), bases.data(), nullptr};
        emu::launch(cg_make_packed, dim3((u32)(e / MATRIX_ENTRY / 64 + 1)), 64, cube, few, offset, &others);
        emu::launch(cg_make_plain, dim3((u32)(e / 64 + 1)), 64, cube, values.data(), columns.data());
        expect(others == 0, "columns do not fit");
        Solved plain = solve(cg_product_plain, PlainValues{values.data()}, PlainColumns{columns.data()}, cube);
        Solved packed = solve(cg_product_packed, few, offset, cube);
        bool same = plain.x == packed.x && plain.iterations == packed.iterations && plain.rr == packed.rr;
        expect(same && plain.iterations < 100, "packed and plain differ");
        // The ball is the only heat source, and no cell is colder than the walls.
        for (double value : packed.x) expect(value > -1e-9 && value < 1.25, "a temperature that cannot be");
    }
}
