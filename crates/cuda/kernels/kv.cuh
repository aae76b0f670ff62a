// Layout of a KV cache in compressed memory (docs/explain/attention.md). Plain C++, so that it is
// tested without a GPU.
//
// A cache has pages of tokens for every layer; a page table lists the pages of a sequence. A page
// holds, for each head, mma tiles of 16 tokens. Keys of a tile come first, then its values. Of
// each, the entries of the first 64 values of the head come first, one per token, then those of the
// second 64 if the head dimension is 128. So 16 tokens of a head are contiguous for any page size,
// and appending moves no token.
#pragma once
#include "entry.cuh"

namespace buddy {

// Tokens of an mma tile, and values of an entry.
constexpr u32 MMA_TOKENS = 16, VALUES = BUDDY_ENTRY_BYTES / 2;

// Windows that are not chosen yet: without tokens, and with tokens, whose entries use no window. Real
// windows are at most LAST_WINDOW.
constexpr u32 LAST_WINDOW = 240, USED = 254, UNUSED = 255;
// Training: the fewest tokens for a window, the largest shift, and the largest exponent of columns that
// are shifted, and of a window's begin. So exponents that wrapped around (`shift_exponent`) are never in
// a window that is trained.
constexpr u32 TRAIN_TOKENS = 64, MOST_SHIFT = 24, MOST_EXPONENT = 200;

// A cache; Rust fills the same struct. Its target is 4/3x: 96 bytes of an entry in `memory.device`,
// 32 in `memory.buddy`.
struct KvCache {
    Memory memory;
    u8* windows;  // lowest exponent of the window: [layer][head][keys, values]
    u8* shifts;   // stored exponents are less by these: [layer][head][keys, values][value of the head]
    u32 layers, pages, heads;
    u32 head_entries;        // entries of a head's key or value: 1 or 2
    u32 page_tokens;  // a multiple of MMA_TOKENS
    u32 reserved;

    // Mma tiles of a page, per head.
    BUDDY_FN u32 mma_tiles() const { return page_tokens / MMA_TOKENS; }
    // Entries of an mma tile, keys and values.
    BUDDY_FN u32 mma_tile_entries() const { return 2 * head_entries * MMA_TOKENS; }
    // Returns the first entry of the mma tile that begins at `token` of a page.
    BUDDY_FN u64 first_entry(u32 layer, u32 page, u32 head, u32 token) const {
        u64 at = ((u64)layer * pages + page) * heads + head;
        return (at * mma_tiles() + token / MMA_TOKENS) * mma_tile_entries();
    }
    // `which` is 0 for keys and 1 for values.
    BUDDY_FN u64 entry(u32 layer, u32 page, u32 head, u32 token, u32 which, u32 part) const {
        return first_entry(layer, page, head, token) + (which * head_entries + part) * MMA_TOKENS + token % MMA_TOKENS;
    }
    BUDDY_FN u8* window(u32 layer, u32 head, u32 which) const { return windows + ((u64)layer * heads + head) * 2 + which; }
    BUDDY_FN u8* shift(u32 layer, u32 head, u32 which, u32 value) const {
        return shifts + (((u64)layer * heads + head) * 2 + which) * head_entries * VALUES + value;
    }
};

// Returns an exponent less `by`, cyclic in 1 to 254: zeros, infinities and NaN stay, and
// `unshift_exponent` returns every exponent.
BUDDY_FN u32 shift_exponent(u32 exponent, u32 by) {
    return exponent - 1 >= 254 ? exponent : exponent > by ? exponent - by : exponent + 254 - by;
}
BUDDY_FN u32 unshift_exponent(u32 exponent, u32 by) { return shift_exponent(exponent, by == 0 ? 0 : 254 - by); }

// Changes the exponents of the two values of a word by the first two bytes of `shifts`.
BUDDY_FN u32 shift_word(u32 word, u32 shifts) {
    u32 low = shift_exponent(word >> 7 & 0xff, shifts & 0xff), high = shift_exponent(word >> 23 & 0xff, shifts >> 8 & 0xff);
    return (word & 0x807f807fu) | low << 7 | high << 23;
}
BUDDY_FN u32 unshift_word(u32 word, u32 shifts) {
    u32 low = unshift_exponent(word >> 7 & 0xff, shifts & 0xff), high = unshift_exponent(word >> 23 & 0xff, shifts >> 8 & 0xff);
    return (word & 0x807f807fu) | low << 7 | high << 23;
}

}  // namespace buddy
