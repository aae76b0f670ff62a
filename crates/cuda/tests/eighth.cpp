// Entries of bf16 by eight lanes to an entry (eighth.cuh), on the CPU's threads: those that lanes take have the stream that one thread
// writes, and come back; those that they leave are the ones in other layouts, or without a sign or an odd mantissa.
#include "emu.h"

#include "../kernels/eighth.cuh"
#include "../kernels/entry.cuh"

using namespace buddy;

constexpr u32 ENTRIES = 4, WINDOW = 112;

__global__ void pack(const uint4* from, u8* to, u32* taken, uint4* back) {
    u32 lane = threadIdx.x;
    Eighth::Look look = Eighth::look(from[lane], WINDOW);
    bool fits = Eighth::fits(look, lane, WINDOW);
    u8* place = to + lane / 8 * Eighth::DEVICE_BYTES;
    if (fits) Eighth::put(place, lane % 8, from[lane], look.codes);
    u32 entries = Eighth::entries_of(__ballot_sync(~0u, fits));
    if (lane == 0) *taken = entries;
    __syncwarp();
    if (fits) back[lane] = Eighth::decode(Eighth::load(place, lane % 8), WINDOW);
}

static u32 state = 1;
static u32 draw() { return state = state * 1664525u + 1013904223u, state >> 8; }

// A value with an exponent near the window, now and then far from it.
static u32 value(u32 kind) {
    u32 exponent = WINDOW + draw() % (kind % 3 == 0 ? 16 : kind % 3 == 1 ? 3 : 17), sign = kind % 5 == 4 ? 0 : draw() & 1;
    u32 mantissa = draw() & (kind % 7 == 6 ? 0x7e : 0x7f);
    return kind % 11 == 10 && draw() % 50 == 0 ? 0 : sign << 15 | exponent << 7 | mantissa;
}

static void fail(const char* what, u32 turn) { fprintf(stderr, "%s, turn %u\n", what, turn), exit(1); }

int main() {
    u32 all = 0;
    for (u32 turn = 0; turn < 2000; turn++) {
        alignas(16) u32 words[ENTRIES][WORDS], back[ENTRIES][WORDS];
        alignas(16) u8 stored[ENTRIES * Eighth::DEVICE_BYTES];
        for (auto& entry : words) {
            u32 kind = draw();
            for (u32& word : entry) word = value(kind) | value(kind) << 16;
        }
        u32 taken = 0;
        emu::launch(pack, dim3(1), 32, (const uint4*)words, (u8*)stored, &taken, (uint4*)back);
        for (u32 e = 0; e < ENTRIES; e++) {
            thread::OwnRow row = {};
            u32 copy[WORDS], any = 0;
            memcpy(copy, words[e], sizeof copy);
            for (u32 word : copy) any |= word | word >> 16;
            u32 nibble = encode_words<Bf16>(copy, row, Params{WINDOW, 0, nullptr});
            bool wanted = nibble == Eighth::NIBBLE && (any & 0x8000) != 0 && (any & 1) != 0;
            if ((taken >> e & 1) != wanted) fail("lanes take what they should leave, or leave what they should take", turn);
            if (!wanted) continue;
            all++;
            if (memcmp(stored + e * Eighth::DEVICE_BYTES, row.chunks, Eighth::DEVICE_BYTES) != 0) fail("another stream", turn);
            if (memcmp(back[e], words[e], sizeof copy) != 0) fail("other values", turn);
        }
    }
    printf("%u\n", all);
}
