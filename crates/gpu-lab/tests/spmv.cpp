// The sparse product, run on the CPU: every layout gives plain memory's sums bit for bit, with rows
// of any length, values that are no floats and columns too far apart. For kernels.rs.
#include "../../cuda/tests/emu.h"

#include "../kernels/spmv.cu"

#include <algorithm>

using namespace buddy;

static u64 state = 3;
static u64 random_bits() { return state = mix(state); }

static void expect(bool holds, const char* what) {
    if (!holds) printf("%s\n", what), exit(1);
}

// A matrix packed by the kernels.
struct Made {
    std::vector<u32> starts = {0}, columns, bases, kinds, other_columns;
    std::vector<double> values, other_values, table;
    std::vector<unsigned short> low;
    std::vector<u8> high, places;
    std::vector<float> narrow;
    u64 counts[3] = {};
    u32 entries;

    Made(u32 rows, u32 width, bool few) {
        for (u32 r = 0; r < rows; r++) starts.push_back(starts.back() + (u32)(random_bits() % 70));
        entries = (starts.back() + 31) / 32;
        u32 n = entries * 32;
        for (u32 i = 0; i < n; i++) {
            values.push_back(few ? 0.5 + (double)(random_bits() % 200) / 7 : random_bits() % 400 ? normal(random_bits()) : 1.0 / 3);
            columns.push_back((u32)(random_bits() % (random_bits() % 300 ? width / 4 : width)));
        }
        low.resize(n), high.resize(n), places.resize(n), narrow.resize(n), bases.resize(entries), kinds.resize(entries);
        other_columns.resize(n), other_values.resize(n);
        table = values;
        std::sort(table.begin(), table.end());
        table.erase(std::unique(table.begin(), table.end()), table.end());
    }
    OffsetColumns offset() { return {low.data(), high.data(), bases.data(), other_columns.data()}; }
    NarrowValues floats() { return {narrow.data(), kinds.data(), other_values.data()}; }
    TableValues few() { return {places.data(), table.data()}; }
    void pack(bool few_values) {
        dim3 blocks((entries + 63) / 64);
        emu::launch(pack_columns, blocks, 64, (const u32*)columns.data(), offset(), entries, entries, counts);
        emu::launch(pack_narrow, blocks, 64, (const double*)values.data(), floats(), entries, entries, counts + 1);
        if (!few_values) return;
        u32 used = (u32)table.size();
        table.resize(256);
        emu::launch(pack_table, dim3((entries * 32 + 63) / 64), 64, (const double*)values.data(), few(), used, entries * 32, counts + 2);
        expect(counts[2] == 0, "a value is missing in the table");
    }
};

static void check(bool few) {
    const u32 rows = 90, width = 1u << 26;
    Made made(rows, width, few);
    made.pack(few);
    bool some = made.counts[0] > 0 && made.counts[0] < made.entries && (few || (made.counts[1] > 0 && made.counts[1] < made.entries));
    expect(some, "entries that fit and others were to be there");
    std::vector<double> x(width), want(rows, -1), got(rows, -1);
    for (u32 i = 0; i < width; i++) x[i] = (double)(i % 1009) / 7;
    Matrix matrix = {made.starts.data(), rows, width};
    dim3 blocks((rows * LANES + BLOCK - 1) / BLOCK);
    const double* vector = x.data();
    emu::launch(spmv_plain, blocks, BLOCK, PlainValues{made.values.data()}, PlainColumns{made.columns.data()}, matrix, vector, want.data());
    u64 wrong = 0;
    emu::launch(spmv_check, dim3(1), 96, (const double*)made.values.data(), (const u32*)made.columns.data(), matrix, vector,
                (const double*)want.data(), &wrong);
    expect(wrong == 0, "the plain product is wrong");
    emu::launch(spmv_narrow, blocks, BLOCK, made.floats(), made.offset(), matrix, vector, got.data());
    expect(want == got, "narrow values differ");
    std::fill(got.begin(), got.end(), -1);
    if (few) emu::launch(spmv_table, blocks, BLOCK, made.few(), made.offset(), matrix, vector, got.data());
    expect(!few || want == got, "values of a table differ");
}

int main() {
    check(false);
    check(true);
}
