// A linear layer by the kernel's own text, emulated: weights frozen at 4/3x and x come by stdin, y goes to stdout as fp32.
#include "hopper.h"

#include "../kernels/linear.cu"

static void take(void* to, size_t bytes) {
    if (bytes && fread(to, 1, bytes, stdin) != bytes) _Exit(3);
}
static std::vector<uint4> part(u64 bytes) {
    std::vector<uint4> all(bytes / 16 + 1);
    take(all.data(), bytes);
    return all;
}

int main() {
    u32 outputs, inputs, tokens, blocks, sectors, window;
    for (u32* at : {&outputs, &inputs, &tokens, &blocks, &sectors, &window}) take(at, 4);
    // As the library does: no block without a step.
    u32 tiles = (outputs + Chosen::ROWS - 1) / Chosen::ROWS * ((tokens + Chosen::TOKENS - 1) / Chosen::TOKENS);
    blocks = min(blocks, tiles * ((inputs / VALUES + Chosen::ENTRIES - 1) / Chosen::ENTRIES));
    u64 bytes[4];
    take(bytes, sizeof bytes);
    std::vector<uint4> device = part(bytes[0]), nibbles = part(bytes[1]), index = part(bytes[2]), overflow = part(bytes[3]);
    std::vector<uint4> x = part(2ull * tokens * inputs);
    std::vector<float> y(tokens * outputs, NAN);
    std::vector<float4> parts(2 * blocks * Chosen::ROWS * Chosen::TOKENS / 4);
    std::vector<u32> counts(blocks * Chosen::WARPS);
    Weights weights = {(const u8*)device.data(), (const u8*)nibbles.data(), (const u8*)overflow.data(), (const u32*)index.data(), sectors, window};
    Linear linear = {weights, (const u8*)x.data(), nullptr, y.data(), parts.data(), counts.data(), outputs, inputs, tokens, Linear::FP32};
    TensorMap map = {{(u64)x.data(), inputs, tokens, Chosen::TOKENS}};
    emu::each_round = emu::land;
    emu::launch(linear_wide, dim3(blocks), Chosen::THREADS, linear, map);
    for (u32 count : counts) {
        if (count) emu::fail("a count that was left");
    }
    fwrite(y.data(), 4, y.size(), stdout);
}
