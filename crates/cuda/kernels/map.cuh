// The address map and the metadata nibble, as in crates/core. Every constant is a define that Rust
// sets; the kernel `constants` writes them back, and a test compares.
#pragma once
#include "bits.cuh"

namespace buddy {

constexpr u32 ENTRY = BUDDY_ENTRY_BYTES;
constexpr u32 SECTOR = BUDDY_SECTOR_BYTES;
constexpr u32 PAGE_ENTRIES = BUDDY_PAGE_ENTRIES;
// Rows move in chunks of 16 bytes, the widest access of a thread.
constexpr u32 CHUNK = 16;
constexpr u32 CHUNKS = ENTRY / CHUNK;
// Bytes of an entry on the device at the smallest target.
constexpr u32 SMALL = BUDDY_SMALL_BYTES;

// Size classes in the order of the nibble. Nibbles 6 and 7 are three sectors in layouts 1 and 2.
enum Class : u32 { ZERO = 0, B8 = 1, S1 = 2, S2 = 3, S3 = 4, RAW = 5, CLASSES = 6, NIBBLES = 8 };

BUDDY_FN u32 class_of_bits(u32 bits) {
    return bits <= 8 * SMALL ? B8 : bits <= 8 * SECTOR ? S1 : bits <= 16 * SECTOR ? S2 : bits <= 24 * SECTOR ? S3 : RAW;
}

BUDDY_FN u32 nibble_of(u32 size_class, u32 layout) {
    return size_class == S3 && layout != 0 ? RAW + layout : size_class;
}

BUDDY_FN u32 class_of(u32 nibble) { return nibble < CLASSES ? nibble : (u32)S3; }

BUDDY_FN u32 layout_of(u32 nibble) { return nibble < CLASSES ? 0 : nibble - RAW; }

// Bytes and chunks of a class; a chunk holds the 8 bytes of B8.
BUDDY_FN u32 class_bytes(u32 size_class) { return size_class < S1 ? size_class * SMALL : (size_class - B8) * SECTOR; }
BUDDY_FN u32 class_chunks(u32 size_class) { return size_class < S1 ? size_class : (size_class - B8) * (SECTOR / CHUNK); }

// Returns the bytes of an entry's slot in buddy memory. At the smallest target the slot holds a
// whole entry.
BUDDY_FN u32 buddy_bytes(u32 device_bytes) { return device_bytes == SMALL ? ENTRY : ENTRY - device_bytes; }

// A row of the page table: offsets of the page's first entry, and its target.
struct Page {
    u32 device;        // in units of PAGE_ENTRIES * SMALL bytes
    u32 buddy;         // in units of PAGE_ENTRIES * SECTOR bytes
    u32 device_bytes;  // of each entry
    u32 reserved;
};

// A buffer in compressed memory. Rust fills the same struct.
struct Memory {
    u8* device;
    u8* buddy;
    u8* nibbles;
    const Page* pages;  // null if all pages have the same target
    u64* fault;         // the lowest (entry << 8 | status) seen, all ones if none
    u64 entries;
    u32 device_bytes;  // the target of all pages without a page table
    u32 reserved;
};

// Addresses of an entry's two parts.
struct Place {
    u8* device;
    u8* buddy;
    u32 device_bytes;
};

BUDDY_FN Place place_of(const Memory& memory, u64 entry) {
    u32 bytes = memory.device_bytes;
    if (memory.pages == nullptr) {
        return {memory.device + entry * bytes, memory.buddy + entry * buddy_bytes(bytes), bytes};
    }
    Page page = memory.pages[entry / PAGE_ENTRIES];
    u64 within = entry % PAGE_ENTRIES;
    bytes = page.device_bytes;
    return {memory.device + (u64)page.device * (PAGE_ENTRIES * SMALL) + within * bytes,
            memory.buddy + (u64)page.buddy * (PAGE_ENTRIES * SECTOR) + within * buddy_bytes(bytes), bytes};
}

// Returns the place of the entry `step` entries later in the same page.
BUDDY_FN Place step_by(const Place& place, u32 step) {
    u32 bytes = place.device_bytes;
    return {place.device + step * bytes, place.buddy + step * buddy_bytes(bytes), bytes};
}

// Returns the address of an entry's chunk, on the device or in buddy memory.
BUDDY_FN u8* chunk_at(const Place& place, u32 chunk) {
    u32 at = chunk * CHUNK, on_device = place.device_bytes == SMALL ? 0 : place.device_bytes;
    return at < on_device ? place.device + at : place.buddy + (at - on_device);
}

}  // namespace buddy
