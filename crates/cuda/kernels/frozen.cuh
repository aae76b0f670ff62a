// Where what overflows lies: in a slot of its own for each entry, or, in a frozen buffer, compact
// behind an index (docs/reference/format.md, "Frozen buffers"; the Rust twin is
// crates/memory/src/frozen). Plain C++, so that a machine without a GPU proves it.
#pragma once
#include "map.cuh"

namespace buddy {

// In which order entries lie: as they are, or, for a matrix whose rows have so many entries, in
// tiles of sixteen rows.
struct Order {
    u64 entries;  // of the data
    u32 row;      // 0 for no matrix

    static constexpr u32 ROWS = 16;

    BUDDY_FN u64 rows() const { return entries / row; }
    // How many places there are, those past the last row being empty.
    BUDDY_FN u64 places() const { return row == 0 ? entries : (rows() + ROWS - 1) / ROWS * ROWS * row; }
    // The entry of a place; there may be none.
    BUDDY_FN u64 entry_at(u64 place) const {
        if (row == 0) return place;
        u64 column = place / ROWS, at = column / row * ROWS + place % ROWS;
        return at < rows() ? at * row + column % row : entries;
    }
    BUDDY_FN u64 place_of(u64 entry) const {
        if (row == 0) return entry;
        u64 at = entry / row;
        return (at / ROWS * row + entry % row) * ROWS + at % ROWS;
    }

    // Word k of an entry of a matrix, as it is stored, is this word of the data: each quarter of a
    // stored entry has a pair of values of every eight, as a lane of a tensor core's product takes
    // them.
    static BUDDY_FN u32 word_at(u32 k) { return k % 8 * 4 + k / 8; }
    BUDDY_FN void to_stored(u32 (&words)[WORDS]) const {
        if (row == 0) return;
        u32 plain[WORDS];
        BUDDY_UNROLL
        for (u32 k = 0; k < WORDS; k++) plain[k] = words[k];
        BUDDY_UNROLL
        for (u32 k = 0; k < WORDS; k++) words[k] = plain[word_at(k)];
    }
    BUDDY_FN void to_plain(u32 (&words)[WORDS]) const {
        if (row == 0) return;
        u32 stored[WORDS];
        BUDDY_UNROLL
        for (u32 k = 0; k < WORDS; k++) stored[k] = words[k];
        BUDDY_UNROLL
        for (u32 k = 0; k < WORDS; k++) words[word_at(k)] = stored[k];
    }
};

// Sectors of an entry that do not fit its part on the device.
BUDDY_FN u32 sectors_over(u32 nibble, u32 device_bytes) {
    if (nibble >= NIBBLES) return 0;
    u32 bytes = class_bytes(class_of(nibble));
    if (bytes <= device_bytes) return 0;
    return (device_bytes == SMALL ? bytes : bytes - device_bytes) / SECTOR;
}

// Nibbles of a word that are `nibble`: a one at the beginning of each.
BUDDY_FN u32 equal_nibbles(u32 word, u32 nibble) {
    u32 other = word ^ nibble * 0x11111111u;
    return ~(other | other >> 1 | other >> 2 | other >> 3) & 0x11111111u;
}

// The same sum over the first `count` nibbles of a word.
BUDDY_FN u32 sectors_over_word(u32 word, u32 count, u32 device_bytes) {
    u32 kept = count >= 8 ? ~0u : (1u << 4 * count) - 1, sum = 0;
    for (u32 nibble = B8; nibble < NIBBLES; nibble++) {
        u32 over = sectors_over(nibble, device_bytes);
        if (over != 0) sum += over * ones_in(equal_nibbles(word, nibble) & kept);
    }
    return sum;
}

// An entry's first sector among those that overflow: those of the pages before it, and of the
// entries before it in its page.
BUDDY_FN u64 first_sector(const u32* index, const u32* nibbles, u64 entry, u32 device_bytes) {
    u64 page = entry / PAGE_ENTRIES;
    u64 sum = index[page];
    u32 within = (u32)(entry % PAGE_ENTRIES);
    const u32* line = nibbles + page * (PAGE_ENTRIES / 8);
    for (u32 i = 0; i <= within / 8; i++) sum += sectors_over_word(line[i], within - 8 * i, device_bytes);
    return sum;
}

// A frozen buffer. Rust fills the same struct.
struct Frozen {
    const u8* device;
    const u8* nibbles;
    const u32* index;
    const u8* overflow;
    u64* fault;  // the lowest (place << 8 | status) that did not decode; null if nobody asks
    Order order;
    u32 device_bytes;
    u32 sectors;  // of the overflow

    // What overflows of the entry at a place, so many sectors; none if the index names some that
    // are not there.
    BUDDY_FN const u8* sectors_of(u64 place, u32 count) const {
        u64 first = first_sector(index, (const u32*)nibbles, place, device_bytes);
        return first + count <= sectors ? overflow + first * SECTOR : nullptr;
    }
};

}  // namespace buddy
