// Decodes a quarter of a bf16 entry in layout A (docs/reference/format.md), for kernels with four
// lanes per entry. Value by value, since a lane's sixteen begin anywhere in the stream. Layouts B
// and C are in bf16.cuh.
#pragma once
#include "bf16.cuh"
#include "map.cuh"

namespace buddy {

// Calls `put(i, word)` for the quarter's eight pairs of values; zeros if the stream is invalid.
template <class Row, class Put>
BUDDY_FN void read_loose_quarter(const Row& row, u32 nibble, u32 quarter, Put put) {
    typedef Bf16::Loose Loose;
    u32 header = row.load(0), base = header & 0xff, code_bits = header >> 8 & 0x3f, trimmed = header >> 16 & 0xff;
    u32 is_signed = header >> 14 & 1, dense = header >> 15 & 1;
    bool valid = nibble != ZERO && nibble <= S3 && code_bits <= Loose::E && trimmed <= Loose::M;
    if (!valid) code_bits = trimmed = 0;
    u32 middle = row.load(1), low = dense ? ~0u : funnel_right(header, middle, 24);
    u32 high = dense ? ~0u : funnel_right(middle, row.load(2), 24);
    u32 mantissa_bits = Loose::M - trimmed, field_bits = is_signed + code_bits + mantissa_bits;
    u32 first = Loose::HEADER_BITS + (dense ? 0 : Loose::COUNT);
    if (first + (ones_in(low) + ones_in(high)) * field_bits > class_bytes(class_of(nibble)) * 8) valid = false;
    u32 map = (quarter < 2 ? low : high) >> 16 * (quarter % 2) & 0xffff;
    u32 before = (quarter >= 2 ? ones_in(low) : 0) + (quarter % 2 ? ones_in((quarter < 2 ? low : high) & 0xffff) : 0);
    u32 at = first + before * field_bits;
    BUDDY_ROLLED
    for (u32 i = 0; i < 8; i++) {
        u32 pair = 0;
    BUDDY_ROLLED
        for (u32 half = 0; half < 2; half++) {
            if (!valid || (map >> (2 * i + half) & 1) == 0) continue;
            u32 word = at / 32, last = STREAM_WORDS - 1;
            u32 field = funnel_right(row.load(word < last ? word : last), row.load(word < last ? word + 1 : last), at % 32);
            u32 mantissa = (field & ((1u << mantissa_bits) - 1)) << trimmed;
            u32 exponent = (base - (field >> mantissa_bits & ((1u << code_bits) - 1))) & Loose::EXPONENT;
            u32 sign = is_signed ? field >> mantissa_bits >> code_bits & 1 : 0;
            pair |= (mantissa | exponent << Loose::M | sign << (Loose::E + Loose::M)) << 16 * half;
            at += field_bits;
        }
        put(i, pair);
    }
}

}  // namespace buddy
