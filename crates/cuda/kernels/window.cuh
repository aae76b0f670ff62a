// Which window of sixteen exponents holds the most bf16 entries whole (docs/reference/format.md,
// "bf16"). Every entry votes for the windows that hold it, by two changes of a count that runs
// along all windows.
#pragma once
#include "quad.cuh"

namespace buddy {

struct WindowVotes {
    static constexpr u32 CHANGES = 257;
    int* change;  // so many zeros of shared memory

    BUDDY_FN void cast(const QuadRange& range) const {
        u32 first = range.high < Bf16::WINDOW ? 0 : range.high - (Bf16::WINDOW - 1);
        if (first <= range.low) atomicAdd(change + first, 1), atomicAdd(change + range.low + 1, -1);
    }
    // The lowest of those with the most votes; `otherwise` if there is none.
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
