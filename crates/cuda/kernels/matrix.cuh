// Values and columns of a sparse matrix: a lane loads four elements by one or two loads, and each
// element takes an instruction or two more, independent of the others. Each array has the layout
// that its data allows; `loads` states the bytes per element. Entries are 32 elements. An entry
// that a layout cannot hold is stored whole in `others`; a matrix is written once, so no slots are
// needed.
#pragma once
#include "bits.cuh"

namespace buddy {

constexpr u32 MATRIX_ENTRY = 32;

struct Values4 {
    double at[4];
};
struct Columns4 {
    u32 at[4];
};

// Plain doubles: 8 bytes.
struct PlainValues {
    const double* values;

    BUDDY_FN void prepare(double*) const {}
    template <class Index>
    BUDDY_FN Values4 load(Index at, const double*) const {
        double2 a = __ldcs((const double2*)(values + at)), b = __ldcs((const double2*)(values + at) + 1);
        return {{a.x, a.y, b.x, b.y}};
    }
};

// Doubles that are exactly floats: 4 bytes, and 4 bytes per entry: 0, or the entry's index in
// `others` plus one.
struct NarrowValues {
    float* narrow;
    u32* kinds;
    double* others;

    BUDDY_FN void prepare(double*) const {}
    template <class Index>
    BUDDY_FN Values4 load(Index at, const double*) const {
        u32 kind = kinds[at / MATRIX_ENTRY];
        float4 a = __ldcs((const float4*)(narrow + at));
        if (kind == 0) return {{(double)a.x, (double)a.y, (double)a.z, (double)a.w}};
        const double* other = others + (u64)(kind - 1) * MATRIX_ENTRY + at % MATRIX_ENTRY;
        return {{other[0], other[1], other[2], other[3]}};
    }
    // Packs an entry; returns false if a value is not exactly a float.
    static BUDDY_FN bool pack(const double* values, float* to) {
        u64 changed = 0;
        for (u32 i = 0; i < MATRIX_ENTRY; i++) {
            to[i] = (float)values[i];
            changed |= (u64)(__double_as_longlong((double)to[i]) ^ __double_as_longlong(values[i]));
        }
        return changed == 0;
    }
};

// At most 256 different doubles: one byte, an index into a table.
struct TableValues {
    u8* places;
    const double* table;

    // Loads the table into 256 doubles of shared memory. All threads of the CTA call it.
    BUDDY_FN void prepare(double* shared) const {
        for (u32 i = threadIdx.x; i < 256; i += blockDim.x) shared[i] = table[i];
        __syncthreads();
    }
    template <class Index>
    BUDDY_FN Values4 load(Index at, const double* shared) const {
        u32 four = __ldcs((const u32*)(places + at));
        return {{shared[four & 255], shared[four >> 8 & 255], shared[four >> 16 & 255], shared[four >> 24]}};
    }
};

// Plain columns: 4 bytes.
struct PlainColumns {
    const u32* columns;

    template <class Index>
    BUDDY_FN Columns4 load(Index at) const {
        uint4 a = __ldcs((const uint4*)(columns + at));
        return {{a.x, a.y, a.z, a.w}};
    }
};

// Columns within 2^24 of the entry's smallest: 3 bytes in two arrays, and 4 bytes per entry: the
// smallest column, below 2^31, or with the highest bit set the entry's index in `others`.
struct OffsetColumns {
    static constexpr u32 OTHER = 1u << 31;
    unsigned short* low;
    u8* high;
    u32* bases;
    u32* others;

    template <class Index>
    BUDDY_FN Columns4 load(Index at) const {
        u32 base = bases[at / MATRIX_ENTRY], h = __ldcs((const u32*)(high + at));
        uint2 l = __ldcs((const uint2*)(low + at));
        if (base & OTHER) {
            const u32* other = others + (u64)(base & ~OTHER) * MATRIX_ENTRY + at % MATRIX_ENTRY;
            return {{other[0], other[1], other[2], other[3]}};
        }
        const u32 mask = 0xffffff;
        return {{base + (permute_bytes(l.x, h, 0x0410) & mask), base + (permute_bytes(l.x, h, 0x0532) & mask),
                 base + (permute_bytes(l.y, h, 0x0610) & mask), base + (permute_bytes(l.y, h, 0x0732) & mask)}};
    }
    // Packs an entry and sets `base`; returns false if it does not fit.
    static BUDDY_FN bool pack(const u32* columns, unsigned short* low, u8* high, u32& base) {
        u32 most = columns[0];
        base = columns[0];
        for (u32 i = 1; i < MATRIX_ENTRY; i++) base = columns[i] < base ? columns[i] : base, most = columns[i] > most ? columns[i] : most;
        for (u32 i = 0; i < MATRIX_ENTRY; i++) low[i] = (unsigned short)(columns[i] - base), high[i] = (u8)((columns[i] - base) >> 16);
        return most - base < 1u << 24 && base < OTHER;
    }
};

}  // namespace buddy
