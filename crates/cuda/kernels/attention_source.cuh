// Sources of keys and values: compressed memory, or plain memory in the same order for comparison.
// Both load a quarter or an eighth of an entry per lane from shared memory.
#pragma once
#include "attention_plan.cuh"

namespace buddy {

// A packed entry in shared memory, as the decoders read it.
struct SharedStream {
    u32 at;

    BUDDY_FN u32 load(u32 k) const {
        return lds32(at + 4 * min(k, STREAM_WORDS - 1));
    }
};

BUDDY_FN void set(u32 (&out)[4], uint4 a) { out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w; }

// Sixteen values.
struct Quarter {
    u32 words[8];
};

// Decodes a quarter of an entry in layout A. Not inlined: rare, and it would cost registers.
static __device__ __noinline__ Quarter load_loose(u32 at, u32 nibble, u32 quarter) {
    u32 words[WORDS];
    Quarter out = {};
    if (nibble > S3 || Bf16::Loose::read(SharedStream{at}, class_bytes(nibble) * 8, words) != OK) return out;
    for (u32 i = 0; i < 8; i++) out.words[i] = words[8 * quarter + i];
    return out;
}

struct Packed {
    static constexpr u32 BYTES = 3 * SECTOR;
    static constexpr bool HAS_NIBBLES = true;

    // Loads a quarter of an entry in layout B.
    static BUDDY_FN void load(u32 at, u32 quarter, u32 window, u32 (&out)[8]) {
        uint4 m = lds128(at + 16 * quarter);
        uint2 c = lds64(at + 64 + 8 * quarter);
        const u32 bytes[4] = {m.x, m.y, m.z, m.w}, codes[2] = {c.x, c.y};
        Bf16::read_window_quarter(bytes, codes, window, out);
    }
    static BUDDY_FN void load_eighth(u32 at, u32 eighth, u32 window, u32 (&out)[4]) {
        uint2 m = lds64(at + 8 * eighth);
        u32 codes = SharedStream{at + 64 + 4 * eighth}.load(0), bytes[2] = {m.x, m.y};
        BUDDY_UNROLL
        for (u32 i = 0; i < 4; i++) out[i] = Bf16::widen(bytes[i / 2], i % 2, Bf16::window_exponents(codes, i, window));
    }

    // Loads a quarter of an entry in any layout. `overflow` returns the address of the last sector.
    template <class Overflow>
    static BUDDY_FN void load_irregular(u32 at, Overflow overflow, u32 nibble, u32 quarter, u32 (&out)[8]) {
        if (nibble == RAW + 2) {
            uint4 m = lds128(at + 16 * quarter), a = lds128(at + 64), b = lds128(at + 80);
            const u32 bytes[4] = {m.x, m.y, m.z, m.w}, rest[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
            Bf16::read_own_quarter(bytes, rest, quarter, out);
        } else if (nibble == RAW) {
            uint4 a, b;
            if (quarter == 3) a = overflow()[0], b = overflow()[1];
            else a = lds128(at + SECTOR * quarter), b = lds128(at + SECTOR * quarter + 16);
            set(out, a, b);
        } else {
            Quarter loose = {};
            if (nibble != ZERO) loose = load_loose(at, nibble, quarter);
            BUDDY_UNROLL
            for (u32 i = 0; i < 8; i++) out[i] = loose.words[i];
        }
    }
    // Returns the address of a quarter of an expanded entry.
    static BUDDY_FN u32 expanded_at(u32 at, u32 tail, u32 quarter) { return quarter == 3 ? tail : at + SECTOR * quarter; }
};

struct Plain {
    static constexpr u32 BYTES = ENTRY;
    static constexpr bool HAS_NIBBLES = false;

    static BUDDY_FN void load(u32 at, u32 quarter, u32, u32 (&out)[8]) {
        set(out, lds128(at + SECTOR * quarter), lds128(at + SECTOR * quarter + 16));
    }
    static BUDDY_FN void load_eighth(u32 at, u32 eighth, u32, u32 (&out)[4]) {
        set(out, lds128(at + 16 * eighth));
    }
    // Only tokens past the end are irregular: zeros.
    template <class Overflow>
    static BUDDY_FN void load_irregular(u32, Overflow, u32, u32, u32 (&out)[8]) { set(out, uint4{}, uint4{}); }
    static BUDDY_FN u32 expanded_at(u32 at, u32, u32 quarter) { return at + SECTOR * quarter; }
};

}  // namespace buddy
