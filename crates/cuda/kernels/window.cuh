// Chooses the window of sixteen exponents that holds the most bf16 entries whole
// (docs/reference/format.md, "bf16"). Each entry votes for all windows that hold it, by two changes
// in a difference array over windows.
#pragma once
#include "quad.cuh"

namespace buddy {

struct WindowVotes {
    static constexpr u32 CHANGES = 257;
    int* change;  // CHANGES zeros in shared memory

    BUDDY_FN void cast(const QuadRange& range) const {
        u32 first = range.high < Bf16::WINDOW ? 0 : range.high - (Bf16::WINDOW - 1);
        if (first <= range.low) atomicAdd(change + first, 1), atomicAdd(change + range.low + 1, -1);
    }
    // Returns the lowest window with the most votes; `otherwise` if there are no votes.
    BUDDY_FN u32 best(u32 otherwise) const {
        int count = 0, most = 0;
        for (u32 window = 0; window <= 256 - Bf16::WINDOW; window++) {
            count += change[window];
            if (count > most) most = count, otherwise = window;
        }
        return otherwise;
    }
};

}  // namespace buddy
