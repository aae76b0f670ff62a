// A linear layer by the emulated kernels: frozen weights at 4/3x and x from stdin, y as fp32 to
// stdout. Runs the narrow or the portable kernel if its shape is defined, else the wide one.
#include "hopper.h"

#if defined(BUDDY_PORTABLE_N8_TILES)
#include "../kernels/portable.cu"
#elif defined(BUDDY_NARROW_MMA_WARPS)
#include "../kernels/narrow.cu"
#else
#include "../kernels/linear.cu"
#endif
#if BUDDY_LINEAR_GROUPED
#include "../kernels/route.cu"
#endif

static void take(void* to, size_t bytes) {
    if (bytes && fread(to, 1, bytes, stdin) != bytes) _Exit(3);
}
static std::vector<uint4> part(u64 bytes) {
    std::vector<uint4> all(bytes / 16 + 1);
    take(all.data(), bytes);
    return all;
}
[[maybe_unused]] static u32 pieces(u32 all, u32 each) { return (all + each - 1) / each; }

// Launches the kernel with scratch memory and at most `blocks` CTAs.
#if defined(BUDDY_PORTABLE_N8_TILES)
static void start(Linear linear, u32 blocks) {
    emu::launch_clusters(linear_portable, 1, dim3(blocks), PORTABLE_WARPS * WARP, linear);
}
#elif defined(BUDDY_NARROW_MMA_WARPS)
static void start(Linear linear, u32 blocks) {
    // As many panels of x as possible.
    u32 panel = narrow::BLOCK_COLUMNS, panels = pieces(linear.per_row(), panel), tiles = pieces(linear.outputs, TILE_ROWS);
    std::vector<float4> parts(panels * tiles * narrow::N8_TILES * WARP);
    std::vector<u32> counts(1 + tiles + panels);
    linear.partials = parts.data(), linear.counters = counts.data();
    blocks *= narrow::CLUSTER;
    emu::launch_clusters(linear_narrow, narrow::CLUSTER, dim3(blocks), (narrow::MMA_WARPS + EPILOGUE_WARPS + 1) * WARP, linear, panel);
    if (std::count(counts.begin(), counts.end(), 0u) != (long)counts.size()) emu::fail("a count that was left");
}
#else
static void start(Linear linear, u32 blocks) {
    // As in the library: no CTA without a k-block.
    u32 tiles = pieces(linear.outputs, Chosen::CLUSTER * Chosen::ROWS) * pieces(linear.tokens, Chosen::TOKENS);
    blocks = Chosen::CLUSTER * (Chosen::GROUPED ? blocks : min(blocks, tiles * pieces(linear.per_row(), Chosen::ENTRIES)));
    std::vector<float4> parts(2 * blocks * Chosen::ROWS * Chosen::TOKENS / 4);
    std::vector<u32> counts(blocks * Chosen::WARPS);
    linear.partials = parts.data(), linear.counters = counts.data();
    TensorMap map = {{(u64)linear.x, linear.inputs, linear.tokens, Chosen::TOKENS / Chosen::CLUSTER}};
    emu::launch_clusters(linear_wide, Chosen::CLUSTER, dim3(blocks), Chosen::THREADS, linear, map);
    if (std::count(counts.begin(), counts.end(), 0u) != (long)counts.size()) emu::fail("a count that was left");
}
#endif

#if BUDDY_LINEAR_GROUPED
// A layer of experts with `outputs` rows each. Their number, the experts per token and the ids
// follow x. Writes each assignment's results, then each token's sum.
static void start_experts(Linear linear, u32 blocks) {
    u32 experts, top;
    take(&experts, 4), take(&top, 4);
    u32 tokens = linear.tokens, assignments = tokens * top, room = experts + assignments / 8, chunks = linear.inputs / 8;
    std::vector<int> ids(assignments);
    take(ids.data(), 4 * assignments);
    std::vector<long long> wide(ids.begin(), ids.end());
    std::vector<uint4> route((Route::HEAD + 4 * room + assignments) / 4 + 1), rows(assignments * chunks + 1), bias(experts * linear.outputs / 8 + 1);
    auto* biases = (unsigned short*)bias.data();
    for (u32 i = 0; i < experts * linear.outputs; i++) biases[i] = emu::to_bf16((float)(i % 7));
    bool is_wide = tokens % 2;
    Routing routing = {is_wide ? (void*)wide.data() : (void*)ids.data(), (const uint4*)linear.x, rows.data(), (u32*)route.data(), assignments, top,
                       experts, Chosen::TOKENS, chunks, room, is_wide, !is_wide};
    emu::launch(experts_route, dim3(experts / ROUTE_WARPS + 1), ROUTE_WARPS * WARP, routing);
    if (!routing.gathers) emu::launch(experts_gather, dim3((assignments + ROUTE_WARPS - 1) / ROUTE_WARPS), ROUTE_WARPS * WARP, routing);
    std::vector<float> y(assignments * linear.outputs, NAN), all(y.size(), NAN);
    std::vector<uint4> narrow(y.size() / 8 + 1), sums(tokens * linear.outputs / 8 + 1);
    linear.x = (const u8*)rows.data(), linear.tokens = assignments, linear.bias = (const u8*)biases, linear.route = (const u32*)route.data();
    linear.y = y.data(), linear.output = Linear::FP32;
    start(linear, blocks);
    linear.y = narrow.data(), linear.output = Linear::BF16;
    start(linear, blocks);
    const u32* positions = routing.positions();
    for (u32 i = 0; i < assignments; i++) {
        for (u32 k = 0; k < linear.outputs; k++) {
            u32 at = positions[i] * linear.outputs + k;
            all[i * linear.outputs + k] = y[at];
            if (!(y[at] != y[at]) && ((unsigned short*)narrow.data())[at] != emu::to_bf16(y[at])) emu::fail("a result in bf16 that is not the one in fp32");
        }
    }
    std::vector<float> weights(assignments);
    for (u32 i = 0; i < assignments; i++) weights[i] = (float)(1 + i % 5) / 4;
    Combining combining = {narrow.data(), (const u32*)route.data(), weights.data(), sums.data(), top, linear.outputs / 8, Route::HEAD + 4 * room, 0};
    emu::launch(experts_combine, dim3(tokens, (linear.outputs / 8 + 127) / 128), 128, combining);
    fwrite(all.data(), 4, all.size(), stdout);
    for (u32 i = 0; i < tokens * linear.outputs; i++) {
        float sum = from_bf16(((unsigned short*)sums.data())[i]);
        fwrite(&sum, 4, 1, stdout);
    }
}
#endif

int main() {
    u32 outputs, inputs, tokens, blocks, sectors, window;
    for (u32* at : {&outputs, &inputs, &tokens, &blocks, &sectors, &window}) take(at, 4);
    // Parts of the weights; the index of tight ones is followed by row bytes.
    u64 bytes[4];
    take(bytes, sizeof bytes);
    std::vector<uint4> device = part(bytes[0]), nibbles = part(bytes[1]), index = part(bytes[2]), overflow = part(bytes[3]);
    std::vector<uint4> x = part(2ull * tokens * inputs);
    std::vector<float> y(tokens * outputs, NAN);
    PackedMatrixView weights = {(const u8*)device.data(), (const u8*)nibbles.data(), (const u8*)overflow.data(), bytes[2] ? (const u32*)index.data() : nullptr, sectors, window};
    emu::each_round = emu::land;
    Linear linear = {weights, (const u8*)x.data(), nullptr, y.data(), nullptr, nullptr, outputs, inputs, tokens, Linear::FP32, nullptr};
#if BUDDY_LINEAR_GROUPED
    return start_experts(linear, blocks), 0;
#endif
    start(linear, blocks);
    if (inputs <= 256) {
        // The same as bf16, each sum rounded.
        std::vector<unsigned short> narrow(y.size());
        linear.y = narrow.data(), linear.output = Linear::BF16;
        start(linear, blocks);
        for (size_t i = 0; i < y.size(); i++) {
            if (narrow[i] != emu::to_bf16(y[i])) emu::fail("a result in bf16 that is not the one in fp32");
        }
    }
    fwrite(y.data(), 4, y.size(), stdout);
}
