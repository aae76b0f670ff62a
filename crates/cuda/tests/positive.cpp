// Values after a ReLU (positive.cuh) have the stream and nibble of `Bf16`, read back, and are
// rejected where `Bf16` rejects them.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../kernels/entry.cuh"
#include "../kernels/positive.cuh"

using namespace buddy;

static u32 state = 1;
static u32 draw() { return state = state * 1664525u + 1013904223u, state >> 8; }

// Entries with few or many zeros, near and far exponents, and short mantissas; rarely with a sign,
// a NaN or tiny numbers.
static u32 value(u32 kind) {
    if (draw() % 16 < kind % 17) return 0;
    u32 base = kind % 23 == 0 ? 3 : kind % 29 == 0 ? 0 : 112, spread = 1 + kind / 16 % 20, sign = kind % 31 == 0 ? draw() % 40 == 0 : 0;
    if (kind % 37 == 0 && draw() % 30 == 0) return draw() % 2 ? 0xffff : 0x7fff;
    return sign << 15 | (base + draw() % spread) << 7 | (draw() & (kind % 7 == 6 ? 0x70 : 0x7f));
}

static void fail(const char* what, u32 turn) { fprintf(stderr, "%s, turn %u\n", what, turn), exit(1); }

int main() {
    u32 taken = 0;
    const Params params = {112, 0, nullptr};
    for (u32 turn = 0; turn < 200000; turn++) {
        u32 words[WORDS], ours[WORDS], theirs[WORDS], kind = draw();
        for (u32& word : words) word = value(kind) | value(kind) << 16;
        memcpy(ours, words, sizeof words), memcpy(theirs, words, sizeof words);
        thread::OwnRow row = {}, wanted = {};
        taken += Positive::analyse(words).is_layout_a();
        u32 nibble = encode_words<Positive>(ours, row, params), wanted_nibble = encode_words<Bf16>(theirs, wanted, params);
        if (nibble != wanted_nibble) fail("another nibble", turn);
        if (nibble == RAW || nibble == ZERO) continue;
        if (memcmp(row.chunks, wanted.chunks, sizeof row.chunks) != 0) fail("another stream", turn);
        if (decode_words<Positive>(row, nibble, ours, params) != OK || memcmp(ours, words, sizeof words) != 0) fail("other values", turn);
        // Words of arbitrary content.
        row.store(draw() % 3, draw() * 257u);
        if (decode_words<Positive>(row, nibble, ours, params) != decode_words<Bf16>(row, nibble, theirs, params)) fail("another verdict", turn);
    }
    printf("%u\n", taken);
}
