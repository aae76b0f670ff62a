// Folded differences of 64-bit words in fields of one width (docs/reference/format.md, "delta64";
// the Rust twin is crates/codec/src/delta64.rs).
#pragma once
#include "fields.cuh"

namespace buddy {

struct Delta64 {
    static constexpr u32 LANES = 16;
    static constexpr u32 HEADER_BITS = 80;  // word 0, width and shift

    // All differences are zero, and so is the base.
    static BUDDY_FN bool is_zero(const u32 (&words)[32], u32 bits) { return bits == HEADER_BITS && (words[0] | words[1]) == 0; }

    // Replaces all words but the first by folded differences; returns their OR.
    static BUDDY_FN u64 differences(const u32 (&entry)[32], u64 (&words)[LANES]) {
        u64 used = 0;
        split(entry, words);
        BUDDY_UNROLL
        for (u32 i = LANES - 1; i > 0; i--) {
            words[i] = fold(words[i] - words[i - 1]);
            used |= words[i];
        }
        return used;
    }

    static BUDDY_FN u32 shift_of(u64 used) {
        u32 low = (u32)used;
        return used == 0 ? 0 : low != 0 ? trailing_zeros(low) : 32 + trailing_zeros((u32)(used >> 32));
    }

    static BUDDY_FN u32 width_of(u64 used) { return length_of(used) - shift_of(used); }

    static BUDDY_FN u32 bits_of(u32 width) { return HEADER_BITS + (LANES - 1) * width; }

    static BUDDY_FN u32 size_bits(const u32 (&entry)[32], const Params&) {
        u64 words[LANES];
        return bits_of(width_of(differences(entry, words)));
    }

    template <class Row>
    static BUDDY_FN u32 encode(u32 (&entry)[32], Row& row, u32& layout, const Params&) {
        u64 words[LANES], used = differences(entry, words);
        u32 shift = shift_of(used), bits = bits_of(width_of(used));
        layout = 0;
        if (bits > STREAM_BITS) return bits;
        row.clear();
        FieldSink<Row> sink(row);
        Width<u64> width(width_of(used));
        sink.put((u32)words[0], 32);
        sink.put((u32)(words[0] >> 32), 32);
        sink.put(width.bits | shift << 8, 16);
        BUDDY_UNROLL
        for (u32 i = 1; i < LANES; i++) width.put(sink, words[i] >> shift);
        sink.finish();
        return bits;
    }

    template <class Row>
    static BUDDY_FN u32 decode(const Row& row, u32 limit, u32 layout, u32 (&entry)[32], const Params&) {
        Quad header = row.load_quad(0);
        u32 bits = header.words[2] & 0xff, shift = header.words[2] >> 8 & 0xff;
        bool invalid = bits + shift > 64 || (bits == 0 && shift != 0);
        if (layout != 0 || limit < HEADER_BITS || invalid || bits_of(bits) > limit) {
            fill_zeros(entry);  // as in planes.cuh
            return layout != 0 ? LAYOUT : limit >= HEADER_BITS && invalid ? INVALID : TRUNCATED;
        }
        u64 words[LANES];
        FieldSource<Row> source(row, HEADER_BITS);
        Width<u64> width(bits);
        words[0] = (u64)header.words[1] << 32 | header.words[0];
        BUDDY_UNROLL
        for (u32 i = 1; i < LANES; i++) words[i] = words[i - 1] + unfold(shift_left(width.take(source), shift));
        join(words, entry);
        return OK;
    }
};

}  // namespace buddy
