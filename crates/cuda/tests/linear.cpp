// A linear layer by the emulated kernels: frozen weights at 4/3x and x from stdin, y as fp32 to
// stdout. Runs the narrow kernel if its shape is defined, else the wide one.
#include "hopper.h"

#ifdef BUDDY_NARROW_MMA_WARPS
#include "../kernels/narrow.cu"
#else
#include "../kernels/linear.cu"
#endif

static void take(void* to, size_t bytes) {
    if (bytes && fread(to, 1, bytes, stdin) != bytes) _Exit(3);
}
static std::vector<uint4> part(u64 bytes) {
    std::vector<uint4> all(bytes / 16 + 1);
    take(all.data(), bytes);
    return all;
}
static u32 pieces(u32 all, u32 each) { return (all + each - 1) / each; }

// Launches the kernel with scratch memory and at most `blocks` CTAs.
#ifdef BUDDY_NARROW_MMA_WARPS
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
    blocks = Chosen::CLUSTER * min(blocks, tiles * pieces(linear.per_row(), Chosen::ENTRIES));
    std::vector<float4> parts(2 * blocks * Chosen::ROWS * Chosen::TOKENS / 4);
    std::vector<u32> counts(blocks * Chosen::WARPS);
    linear.partials = parts.data(), linear.counters = counts.data();
    TensorMap map = {{(u64)linear.x, linear.inputs, linear.tokens, Chosen::TOKENS / Chosen::CLUSTER}};
    emu::launch_clusters(linear_wide, Chosen::CLUSTER, dim3(blocks), Chosen::THREADS, linear, map);
    if (std::count(counts.begin(), counts.end(), 0u) != (long)counts.size()) emu::fail("a count that was left");
}
#endif

int main() {
    u32 outputs, inputs, tokens, blocks, sectors, window;
    for (u32* at : {&outputs, &inputs, &tokens, &blocks, &sectors, &window}) take(at, 4);
    u64 bytes[4];
    take(bytes, sizeof bytes);
    std::vector<uint4> device = part(bytes[0]), nibbles = part(bytes[1]), index = part(bytes[2]), overflow = part(bytes[3]);
    std::vector<uint4> x = part(2ull * tokens * inputs);
    std::vector<float> y(tokens * outputs, NAN);
    PackedMatrixView weights = {(const u8*)device.data(), (const u8*)nibbles.data(), (const u8*)overflow.data(), bytes[2] ? (const u32*)index.data() : nullptr, sectors, window};
    emu::each_round = emu::land;
    Linear linear = {weights, (const u8*)x.data(), nullptr, y.data(), nullptr, nullptr, outputs, inputs, tokens, Linear::FP32};
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
