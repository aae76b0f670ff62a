// The values and columns of a sparse matrix as a lane reads them: four elements at a time by one or
// two loads, each then an instruction or two away, whatever the others are. Each array has the
// layout that its data allows; the loads say how many bytes an element takes. Entries are 32
// elements. One that a layout cannot hold lies whole among `others`: a matrix is written once, so
// that these need no slots.
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

// Doubles as they are: 8 bytes.
struct PlainValues {
    const double* values;

    BUDDY_FN void prepare(double*) const {}
    template <class Index>
    BUDDY_FN Values4 load(Index at, const double*) const {
        double2 a = __ldcs((const double2*)(values + at)), b = __ldcs((const double2*)(values + at) + 1);
        return {{a.x, a.y, b.x, b.y}};
    }
};

// Doubles that are floats: 4 bytes, and 4 to an entry that say where it lies: 0 here, otherwise its
// number among `others` plus one.
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
    // Whether every value of an entry is a float, to the bit; it is written if so.
    static BUDDY_FN bool pack(const double* values, float* to) {
        u64 changed = 0;
        for (u32 i = 0; i < MATRIX_ENTRY; i++) {
            to[i] = (float)values[i];
            changed |= (u64)(__double_as_longlong((double)to[i]) ^ __double_as_longlong(values[i]));
        }
        return changed == 0;
    }
};

// At most 256 different doubles: a byte, which is a place in a table.
struct TableValues {
    u8* places;
    const double* table;

    // The table goes into 256 doubles of shared memory; all threads of the block call it.
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

// Columns as they are: 4 bytes.
struct PlainColumns {
    const u32* columns;

    template <class Index>
    BUDDY_FN Columns4 load(Index at) const {
        uint4 a = __ldcs((const uint4*)(columns + at));
        return {{a.x, a.y, a.z, a.w}};
    }
};

// Columns within 2^24 of the least of their entry: 3 bytes, in two arrays, and 4 to an entry: that
// least column, below 2^31; or with the highest bit set its number among `others`.
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
    // Whether an entry fits; it is written if so, and `base` is set.
    static BUDDY_FN bool pack(const u32* columns, unsigned short* low, u8* high, u32& base) {
        u32 most = columns[0];
        base = columns[0];
        for (u32 i = 1; i < MATRIX_ENTRY; i++) base = columns[i] < base ? columns[i] : base, most = columns[i] > most ? columns[i] : most;
        for (u32 i = 0; i < MATRIX_ENTRY; i++) low[i] = (unsigned short)(columns[i] - base), high[i] = (u8)((columns[i] - base) >> 16);
        return most - base < 1u << 24 && base < OTHER;
    }
};

}  // namespace buddy
