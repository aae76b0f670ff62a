// Keys and values of attention in compressed memory: where they lie (docs/explain/attention.md). Plain C++, so that a machine without
// a GPU proves it.
//
// A cache has pages of tokens, for every layer; a table names the pages of a sequence. A page holds, head by head, its tokens
// in sixteens: a tensor core takes sixteen tokens at once. The keys of a sixteen lie together, then its values; of either the
// first 64 of a head's values, an entry for each token, and then, where a head has 128, the others. So sixteen tokens of a
// head are one piece, whatever the size of a page, and no token moves when one is appended.
#pragma once
#include "entry.cuh"

namespace buddy {

// Tokens that lie together, and values of an entry.
constexpr u32 SIXTEEN = 16, VALUES = BUDDY_ENTRY_BYTES / 2;

// A cache, from Rust. Its target is 4/3x: 96 bytes of an entry in `memory.device`, 32 in `memory.buddy`.
struct KvCache {
    Memory memory;
    u8* windows;  // for each layer and head those of its keys and of its values: the first of 16 exponents
    u32 layers, pages, heads;
    u32 parts;        // entries of a token, a head, keys or values: 1 or 2
    u32 page_tokens;  // a multiple of sixteen
    u32 reserved;

    // Sixteens of a page, one head's.
    BUDDY_FN u32 sixteens() const { return page_tokens / SIXTEEN; }
    // Entries of a sixteen, keys and values.
    BUDDY_FN u32 sixteen_entries() const { return 2 * parts * SIXTEEN; }
    // The first entry of a page's tokens from `token` on, a multiple of sixteen.
    BUDDY_FN u64 first_entry(u32 layer, u32 page, u32 head, u32 token) const {
        u64 at = ((u64)layer * pages + page) * heads + head;
        return (at * sixteens() + token / SIXTEEN) * sixteen_entries();
    }
    // Keys are 0 and values 1.
    BUDDY_FN u64 entry(u32 layer, u32 page, u32 head, u32 token, u32 which, u32 part) const {
        return first_entry(layer, page, head, token) + (which * parts + part) * SIXTEEN + token % SIXTEEN;
    }
    BUDDY_FN u8* window(u32 layer, u32 head, u32 which) const { return windows + ((u64)layer * heads + head) * 2 + which; }
};

}  // namespace buddy
