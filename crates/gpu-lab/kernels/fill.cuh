// Test data for codecs, a function of the position alone.
#pragma once
#include "bits.cuh"

namespace buddy {

enum Fill : u32 {
    FILL_NOISE = 0,  // incompressible
    FILL_ZEROS = 1,  // zeros, except for a word in some pages
    FILL_VARIED = 2,  // a different kind in every page, for size histograms
    FILL_RAMP = 3,  // increasing integers with 5 to 12 noisy low bits by page: two sectors of BPC
    FILL_FIELD64 = 4,  // a smooth field of doubles, neighbours close in value: two sectors of 64-bit planes
    FILL_WEIGHTS = 5,  // normal bf16 values, sigma 0.02
    FILL_RELU = 6,     // floats, half of them zero
    FILL_HALVES = 7,   // fp16 values after a ReLU
    FILL_VALUES = 8,   // doubles, each one of 200
    FILL_CORNERS = 9,  // the eight corners of a mesh's cells
    FILL_QUOTIENTS = 10,  // doubles: random integers below 2^31 divided by the largest
};

constexpr u32 FILLS = 11;

// A hash of a 64-bit number: the finaliser of splitmix64.
BUDDY_FN u64 mix(u64 x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

// A normal number, by Box and Muller.
BUDDY_FN float normal(u64 random) {
    float u = ((u32)random >> 8) * (1.0f / 16777216) + 1e-9f, v = (u32)(random >> 40) * (1.0f / 16777216);
    return sqrtf(-2 * logf(u)) * cosf(6.2831853f * v);
}

BUDDY_FN u32 float_bits(float value) {
    union {
        float value;
        u32 bits;
    } both = {value};
    return both.bits;
}

// Half precision of a positive number below 65504, truncated.
BUDDY_FN u32 half_bits(float value) {
    u32 bits = float_bits(value), exponent = bits >> 23 & 0xff;
    return value <= 0 || exponent < 113 ? 0 : (exponent - 112) << 10 | (bits >> 13 & 0x3ff);
}

BUDDY_FN u64 field_bits(u64 index) {
    union {
        double value;
        u64 bits;
    } both = {1.5 + 0.25 * sin(6e-9 * (double)index) + 0.0625 * sin(1.7e-8 * (double)index)};
    return both.bits;
}

BUDDY_FN u64 quotient_bits(u64 random) {
    union {
        double value;
        u64 bits;
    } both = {(double)(random >> 33) / 2147483647.0};
    return both.bits;
}

// Corner `at % 8` of cell `at / 8` in a mesh of 100 cells to a side.
BUDDY_FN u32 corner(u64 at) {
    u64 cell = at / 8, x = cell % 100, y = cell / 100 % 100, z = cell / 10000;
    const u32 offsets[8] = {0, 1, 102, 101, 10201, 10202, 10303, 10302};
    return (u32)(z * 10201 + y * 101 + x) + offsets[at % 8];
}

// Returns word `at` of the data.
BUDDY_FN u32 fill_word(u64 at, u32 kind, u64 seed, u32 share) {
    u64 entry = at / WORDS, page = entry / 64;
    u64 random = mix(seed ^ mix(at)), of_page = mix(seed ^ mix(page + (1ull << 60)));
    u32 noise = (u32)random;
    if ((u32)(mix(seed ^ mix(entry + (1ull << 61))) & 0xffff) < share) return noise;
    if (kind == FILL_VARIED) {
        const u32 kinds[8] = {FILL_ZEROS, FILL_RAMP, FILL_FIELD64, FILL_WEIGHTS, FILL_RELU, FILL_HALVES, FILL_RAMP, FILL_NOISE};
        kind = kinds[of_page % 8];
        noise >>= of_page >> 3 & 31;
    }
    switch (kind) {
        case FILL_ZEROS: return page % 64 == 0 && at % 97 == 0 ? noise & 0xff : 0;
        case FILL_RAMP: return (u32)at * 7 + (u32)(of_page >> 16) + ((u32)random >> (20 + of_page % 8));
        case FILL_FIELD64: return (u32)(field_bits(at / 2) >> 32 * (at % 2));
        case FILL_WEIGHTS: {
            u32 first = float_bits(0.02f * normal(random)) >> 16, second = float_bits(0.02f * normal(mix(random))) >> 16;
            return first | second << 16;
        }
        case FILL_RELU: {
            float value = normal(random);
            return value > 0 ? float_bits(value) : 0;
        }
        case FILL_VALUES: return (u32)((0x3fe0000000000000ull + (mix(mix(seed ^ mix(at / 2)) % 200) >> 12)) >> 32 * (at % 2));
        case FILL_CORNERS: return corner(at);
        case FILL_QUOTIENTS: return (u32)(quotient_bits(mix(seed ^ mix(at / 2))) >> 32 * (at % 2));
        case FILL_HALVES: return half_bits(normal(random)) | half_bits(normal(mix(random))) << 16;
        default: return noise;
    }
}

}  // namespace buddy
