// Activations of pairs of bf16 values, bit-identical to PyTorch's kernels: computed in fp32,
// rounded once. `kept` is the value saved for backward; `forward` computes the output and
// `backward` the gradient from it.
#pragma once
#include "positive.cuh"

namespace buddy {

BUDDY_FN float low_value(u32 pair) { return __uint_as_float(pair << 16); }
BUDDY_FN float high_value(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
BUDDY_FN u32 round_pair(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// No activation: the buffer itself.
struct Same {
    static constexpr bool ACTIVE = false;
    static BUDDY_FN u32 kept(u32 pair) { return pair; }
    static BUDDY_FN u32 forward(u32 pair) { return pair; }
    static BUDDY_FN u32 backward(u32, u32 gradients) { return gradients; }
};

// Keeps the output, whose zeros take one bit. A NaN loses its sign.
struct Relu {
    static constexpr bool ACTIVE = true;
    static BUDDY_FN u32 kept(u32 pair) {
        u32 out;
        asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(pair), "r"(0u));
        return out;
    }
    static BUDDY_FN u32 forward(u32 pair) { return pair; }
    static BUDDY_FN u32 backward(u32 pair, u32 gradients) { return gradients & Positive::nonzero(pair); }
};

// relu(x) squared; keeps relu(x).
struct SquaredRelu {
    static constexpr bool ACTIVE = true;
    static BUDDY_FN u32 kept(u32 pair) { return Relu::kept(pair); }
    static BUDDY_FN u32 forward(u32 pair) {
        float low = low_value(pair), high = high_value(pair);
        return round_pair(low * low, high * high);
    }
    static BUDDY_FN u32 backward(u32 pair, u32 gradients) {
        u32 product = round_pair(low_value(gradients) * (2.0f * low_value(pair)), high_value(gradients) * (2.0f * high_value(pair)));
        return product & Positive::nonzero(pair);
    }
};

}  // namespace buddy
