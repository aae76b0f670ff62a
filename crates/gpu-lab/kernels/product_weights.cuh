// The product's weights: compressed, plain, and plain in the order of compressed ones. Each gives four lanes an entry, a quarter
// to each, from where the plan put it in shared memory.
#pragma once
#include "buddy_device.cuh"
#include "bulk.cuh"

namespace buddy {

BUDDY_FN void set(u32 (&out)[8], uint4 a, uint4 b) {
    out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
}

// A quarter of any entry, by a thread's slow way. Not inlined: it is rare, and registers are dear.
__device__ __noinline__ void load_rare(const BuddyView* view, u64 entry, u32 quarter, u32* out) {
    u32 words[WORDS];
    thread::load_entry<Bf16>(*view, entry, words);
    for (u32 i = 0; i < 8; i++) out[i] = words[8 * quarter + i];
}

// Compressed weights at 4/3x.
struct Packed {
    static constexpr u32 BYTES = 3 * SECTOR;
    const BuddyView& view;

    BUDDY_FN const u8* entry_at(u64 entry) const { return view.memory.device + entry * BYTES; }

    // The nibbles of a share, as they are, since to look at them is to wait for them; and which are not layout B's.
    BUDDY_FN u32 nibbles(u32 share) const { return __ldg((const unsigned short*)view.memory.nibbles + share); }
    static BUDDY_FN u32 odd(u32 nibbles) { return nibbles ^ (RAW + 1) * 0x1111u; }
    // The four bits of `odd` of one that overflows; and a bit at the beginning of each such four.
    static constexpr u32 OVERFLOWS = RAW ^ (RAW + 1);
    static BUDDY_FN u32 overflows(u32 odd) {
        u32 other = odd ^ OVERFLOWS * 0x1111u;
        return ~(other | other >> 1 | other >> 2 | other >> 3) & 0x1111u;
    }
    // The last quarter of one that does, across the link.
    BUDDY_FN const u8* overflow_at(u64 entry) const { return view.memory.buddy + entry * (ENTRY - BYTES); }

    // A quarter of the entry at `at` in shared memory, in layout B.
    BUDDY_FN void load(u32 at, u64, u32 quarter, u32 (&out)[8]) const {
        uint4 m = lds128(at + 16 * quarter);
        uint2 c = lds64(at + 64 + 8 * quarter);
        const u32 bytes[4] = {m.x, m.y, m.z, m.w}, codes[2] = {c.x, c.y};
        Bf16::read_window_quarter(bytes, codes, view.params.window, out);
    }

    // A quarter of any other, by its four bits of `odd`. Layout C is decoded here, in registers: memory that is a lane's own
    // is slow while all others stream. The last quarter of one that overflows is on its way to `near`, if that is a place.
    BUDDY_FN void load_odd(u32 at, u64 entry, u32 quarter, u32 odd, u32 near, u32 (&out)[8]) const {
        if ((odd ^ (RAW + 1)) == RAW + 2) {
            uint4 m = lds128(at + 16 * quarter), a = lds128(at + 64), b = lds128(at + 80);
            const u32 bytes[4] = {m.x, m.y, m.z, m.w}, rest[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
            Bf16::read_own_quarter(bytes, rest, quarter, out);
        } else if (odd == OVERFLOWS) {
            bool last = quarter == 3;
            if (last && near == 0) {
                const uint4* from = (const uint4*)overflow_at(entry);
                set(out, __ldg(from), __ldg(from + 1));
            } else {
                if (last) cp_async_wait_all();
                u32 from = last ? near : at + quarter * (ENTRY / 4);
                set(out, lds128(from), lds128(from + 16));
            }
        } else {
            // By way of other words: those of `out` stay in registers.
            u32 words[8];
            load_rare(&view, entry, quarter, words);
            BUDDY_UNROLL
            for (u32 k = 0; k < 8; k++) out[k] = words[k];
        }
    }
};

// The same on plain memory.
struct Plain {
    static constexpr u32 BYTES = ENTRY;
    const u8* weights;

    BUDDY_FN const u8* entry_at(u64 entry) const { return weights + entry * BYTES; }
    BUDDY_FN u32 nibbles(u32) const { return 0; }
    static BUDDY_FN u32 odd(u32) { return 0; }
    static BUDDY_FN u32 overflows(u32) { return 0; }
    BUDDY_FN const u8* overflow_at(u64) const { return nullptr; }

    BUDDY_FN void load(u32 at, u64, u32 quarter, u32 (&out)[8]) const {
        set(out, lds128(at + 32 * quarter), lds128(at + 32 * quarter + 16));
    }

    BUDDY_FN void load_odd(u32, u64, u32, u32, u32, u32 (&)[8]) const {}
};

// Plain weights in the order of compressed ones: what is odd there comes after the others here too, so that sums are the
// same to the bit. For the proof alone.
struct Ordered : Packed {
    const u8* weights;

    static BUDDY_FN u32 overflows(u32) { return 0; }

    BUDDY_FN void load(u32, u64 entry, u32 quarter, u32 (&out)[8]) const {
        const u32* at = (const u32*)(weights + entry * ENTRY) + 8 * quarter;
        for (u32 k = 0; k < 8; k++) out[k] = at[k];
    }

    BUDDY_FN void load_odd(u32 at, u64 entry, u32 quarter, u32, u32, u32 (&out)[8]) const { load(at, entry, quarter, out); }
};

}  // namespace buddy
