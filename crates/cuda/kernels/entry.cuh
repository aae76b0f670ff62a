// Reads and writes of one entry: functions for a single thread, and those shared with warps. Plain
// C++, so that they are tested without a GPU.
#pragma once
#include "map.cuh"
#include "stream.cuh"

namespace buddy {

// A buffer as a kernel argument, passed by value. `BuddyBuffer::view` returns it.
struct BuddyView {
    Memory memory;
    Params params;
};

// Records the lowest entry that failed to decode, for the buffer's next report.
BUDDY_FN void report(const Memory& memory, u64 entry, u32 status) {
    u64 fault = entry << 8 | status;
#ifdef __CUDA_ARCH__
    atomicMin(memory.fault, fault);
#else
    if (fault < *memory.fault) *memory.fault = fault;
#endif
}

BUDDY_FN u32 load_nibble(const Memory& memory, u64 entry, bool wanted = true) {
    return wanted ? memory.nibbles[entry / 2] >> (entry % 2 * 4) & 15 : (u32)ZERO;
}

// Eight nibbles share a word; exchanges only this one's bits.
BUDDY_FN void store_nibble(const Memory& memory, u64 entry, u32 nibble) {
    u32* word = (u32*)memory.nibbles + entry / 8;
    u32 shift = entry % 8 * 4;
#ifdef __CUDA_ARCH__
    atomicAnd(word, ~(15u << shift));
    atomicOr(word, nibble << shift);
#else
    *word = (*word & ~(15u << shift)) | nibble << shift;
#endif
}

// Returns the chunks that a row moves; zero for a reserved nibble.
BUDDY_FN u32 chunks_of(u32 nibble) { return nibble < NIBBLES ? class_chunks(class_of(nibble)) : 0; }

// Returns the chunks to write. A row of 8 bytes is padded to a sector if the target has one: writes
// of whole sectors are cheaper.
BUDDY_FN u32 chunks_to_put(u32 nibble, u32 device_bytes) {
    return nibble == B8 && device_bytes != SMALL ? SECTOR / CHUNK : chunks_of(nibble);
}

// Returns true for an entry of 8 bytes at the smallest target: half a chunk, moved on its own.
BUDDY_FN bool is_small(u32 nibble, const Place& place) { return nibble == B8 && place.device_bytes == SMALL; }

// Encodes words into a row, unless the entry is stored raw; returns its nibble.
template <class Codec, class Row>
BUDDY_FN u32 encode_words(u32 (&words)[WORDS], Row& row, const Params& params) {
    bool zero = AsksFirst<Codec>::VALUE && all_zero(words);
    u32 layout, bits = Codec::encode(words, row, layout, params);
    if (!AsksFirst<Codec>::VALUE) zero = Codec::is_zero(words, bits);
    return zero ? (u32)ZERO : nibble_of(class_of_bits(bits), layout);
}

// Decodes a row into words; zeros if it is empty or invalid. Not for raw entries.
template <class Codec, class Row>
BUDDY_FN u32 decode_words(const Row& row, u32 nibble, u32 (&words)[WORDS], const Params& params) {
    u32 size_class = class_of(nibble), status = nibble < NIBBLES ? OK : NIBBLE;
    bool stream = status == OK && size_class != ZERO;
    if (!stream) {
        fill_zeros(words);
        return status;
    }
    status = Codec::decode(row, class_bytes(size_class) * 8, layout_of(nibble), words, params);
    if (status != OK) {
        fill_zeros(words);
        forget(words);  // makes a branch instead of a select per word
    }
    return status;
}

namespace thread {

using buddy::Quad;

// A row in the thread's local memory.
struct OwnRow {
    Quad chunks[CHUNKS];

    BUDDY_FN u32 load(u32 k) const { return chunks[k / 4].words[k % 4]; }
    BUDDY_FN void store(u32 k, u32 word) { chunks[k / 4].words[k % 4] = word; }
    BUDDY_FN u32 load_if(bool condition, u32 k, u32 otherwise) const { return condition ? load(k) : otherwise; }
    BUDDY_FN void store_if(bool condition, u32 k, u32 word) {
        if (condition) store(k, word);
    }
    BUDDY_FN Quad load_quad(u32 c) const { return chunks[c]; }
    BUDDY_FN void store_quad(u32 c, const Quad& quad) { chunks[c] = quad; }
    BUDDY_FN void clear(u32 first = 0) {
        BUDDY_UNROLL
        for (u32 c = first; c < STREAM_WORDS / 4; c++) chunks[c] = {};
    }
};

// Reads an entry into `words`. Any set of threads may call it, each for its own entry. An entry
// that fails to decode or lies past the end reads as zeros, appears in the buffer's next report,
// and its status is returned.
template <class Codec>
BUDDY_FN u32 load_entry(const BuddyView& view, u64 entry, u32 (&words)[WORDS]) {
    const Memory& memory = view.memory;
    bool exists = entry < memory.entries;
    u32 nibble = load_nibble(memory, entry, exists);
    OwnRow row = {};
    if (nibble != ZERO) {
        Place place = place_of(memory, entry);
        if (is_small(nibble, place)) {
            row.store(0, ((const u32*)place.device)[0]), row.store(1, ((const u32*)place.device)[1]);
        } else {
            BUDDY_UNROLL
            for (u32 c = 0; c < CHUNKS; c++) {
                if (c < chunks_of(nibble)) row.chunks[c] = *(const Quad*)chunk_at(place, c);
            }
        }
    }
    u32 status = exists ? OK : RANGE;
    if (nibble == RAW) {
        BUDDY_UNROLL
        for (u32 k = 0; k < WORDS; k++) words[k] = row.load(k);
    } else {
        u32 decoded = decode_words<Codec>(row, nibble, words, view.params);
        if (exists) status = decoded;
    }
    if (status != OK) report(memory, entry, status);
    return status;
}

// Compresses and writes an entry and its nibble. Two threads must not write the same entry at the
// same time. An entry past the end is reported and not written.
template <class Codec>
BUDDY_FN u32 store_entry(const BuddyView& view, u64 entry, u32 (&words)[WORDS]) {
    const Memory& memory = view.memory;
    if (entry >= memory.entries) {
        report(memory, entry, RANGE);
        return RANGE;
    }
    OwnRow row = {};
    u32 nibble = encode_words<Codec>(words, row, view.params);
    if (nibble == RAW) {
        BUDDY_UNROLL
        for (u32 k = 0; k < WORDS; k++) row.store(k, words[k]);
    }
    Place place = place_of(memory, entry);
    if (is_small(nibble, place)) {
        ((u32*)place.device)[0] = row.load(0), ((u32*)place.device)[1] = row.load(1);
    } else {
        u32 chunks = chunks_to_put(nibble, place.device_bytes);
        BUDDY_UNROLL
        for (u32 c = 0; c < CHUNKS; c++) {
            if (c < chunks) *(Quad*)chunk_at(place, c) = row.chunks[c];
        }
    }
    store_nibble(memory, entry, nibble);
    return OK;
}

}  // namespace thread
}  // namespace buddy
