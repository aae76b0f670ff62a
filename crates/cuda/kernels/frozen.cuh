// Frozen buffers, written once: the sectors that overflow are stored compact behind an index
// instead of in one slot per entry (docs/reference/format.md, "Frozen buffers"; the Rust twin is
// crates/memory/src/frozen). Plain C++, so that it is tested without a GPU.
#pragma once
#include "map.cuh"

namespace buddy {

// The order in which entries are stored: that of the data, or, for a matrix with `row` entries per
// row, tiles of 16 rows. An entry is stored at a place; `entry_at` and `place_of` convert.
struct Order {
    u64 entries;  // of the data
    u32 row;  // entries of a matrix row; 0 if the data is no matrix

    static constexpr u32 ROWS = 16;

    BUDDY_FN u64 rows() const { return entries / row; }
    // Returns the number of places; those past the last row are empty.
    BUDDY_FN u64 places() const { return row == 0 ? entries : (rows() + ROWS - 1) / ROWS * ROWS * row; }
    // Returns the entry at a place, or `entries` if the place is empty.
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

    // Word k of a stored matrix entry is word `word_at(k)` of the data. Quarter q of a stored entry
    // thus holds pair q of every eight values, which is what a lane of an mma fragment needs.
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

// Returns the number of an entry's sectors that do not fit its part on the device.
BUDDY_FN u32 sectors_over(u32 nibble, u32 device_bytes) {
    if (nibble >= NIBBLES) return 0;
    u32 bytes = class_bytes(class_of(nibble));
    if (bytes <= device_bytes) return 0;
    return (device_bytes == SMALL ? bytes : bytes - device_bytes) / SECTOR;
}

// Sets the lowest bit of each of the word's nibbles that equals `nibble`.
BUDDY_FN u32 equal_nibbles(u32 word, u32 nibble) {
    u32 other = word ^ nibble * 0x11111111u;
    return ~(other | other >> 1 | other >> 2 | other >> 3) & 0x11111111u;
}

// Sums `sectors_over` over the first `count` nibbles of a word.
BUDDY_FN u32 sectors_over_word(u32 word, u32 count, u32 device_bytes) {
    u32 kept = count >= 8 ? ~0u : (1u << 4 * count) - 1, sum = 0;
    for (u32 nibble = B8; nibble < NIBBLES; nibble++) {
        u32 over = sectors_over(nibble, device_bytes);
        if (over != 0) sum += over * ones_in(equal_nibbles(word, nibble) & kept);
    }
    return sum;
}

// Returns the index of an entry's first overflow sector: the page's index plus the overflow of the
// entries before it in the page.
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
    u64* fault;  // the lowest (place << 8 | status) that failed to decode; null if not wanted
    Order order;
    u32 device_bytes;
    u32 sectors;  // of the overflow area

    // Returns the overflow sectors of the entry at a place; null if the index points past the
    // overflow area.
    BUDDY_FN const u8* sectors_of(u64 place, u32 count) const {
        u64 first = first_sector(index, (const u32*)nibbles, place, device_bytes);
        return first + count <= sectors ? overflow + first * SECTOR : nullptr;
    }
};

}  // namespace buddy
