// Batch normalisation and ReLU in one pass, from a known mean and deviation: recomputes the output
// of a forward pass for the backward pass. bf16 values, channels last; bit-identical to PyTorch's
// two kernels, which round in between.
#include "activation.cuh"

using namespace buddy;

constexpr u32 THREADS = 256, VALUES = 8, TIMES = 4;

struct Normalising {
    const uint4* x;
    uint4* y;
    const float *mean, *deviation;
    const u32 *weight, *shift;  // pairs of bf16
    u64 chunks;
    u32 channels, reserved;
};

// Parameters of two channels.
struct Pair {
    float mean[2], deviation[2], weight[2], shift[2];

    BUDDY_FN float value(float x, u32 k) const { return __fmaf_rn(__fmul_rn(weight[k], __fsub_rn(x, mean[k])), deviation[k], shift[k]); }
    BUDDY_FN u32 of(u32 pair) const { return Relu::kept(round_pair(value(low_value(pair), 0), value(high_value(pair), 1))); }
};

// A thread's chunks are a multiple of all channels apart, so it keeps the same eight channels.
extern "C" __global__ void __launch_bounds__(THREADS) normalise_relu(const __grid_constant__ Normalising of) {
    u64 at = (u64)blockIdx.x * THREADS + threadIdx.x, step = (u64)gridDim.x * THREADS;
    u32 first = (u32)(at % (of.channels / VALUES)) * VALUES;
    Pair pairs[VALUES / 2];
    BUDDY_UNROLL
    for (u32 i = 0; i < VALUES; i++) {
        u32 channel = first + i, half = i % 2;
        u32 weights = of.weight[channel / 2], shifts = of.shift[channel / 2];
        Pair& pair = pairs[i / 2];
        pair.mean[half] = of.mean[channel], pair.deviation[half] = of.deviation[channel];
        pair.weight[half] = half ? high_value(weights) : low_value(weights);
        pair.shift[half] = half ? high_value(shifts) : low_value(shifts);
    }
    for (; at < of.chunks; at += step * TIMES) {
        uint4 x[TIMES];
        BUDDY_UNROLL
        for (u32 i = 0; i < TIMES; i++) {
            if (at + i * step < of.chunks) x[i] = __ldcs(of.x + at + i * step);
        }
        BUDDY_UNROLL
        for (u32 i = 0; i < TIMES; i++) {
            const uint4& v = x[i];
            uint4 y = make_uint4(pairs[0].of(v.x), pairs[1].of(v.y), pairs[2].of(v.z), pairs[3].of(v.w));
            if (at + i * step < of.chunks) of.y[at + i * step] = y;
        }
    }
}
