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

// A cache; Rust fills the same struct. Its target is 4/3x: 96 bytes of an entry in `memory.device`,
// 32 in `memory.buddy`.
struct KvCache {
    Memory memory;
    u8* windows;  // lowest exponent of the window: [layer][head][keys, values]
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
};

}  // namespace buddy
