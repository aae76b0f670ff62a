// An entry written by four lanes equals the one that a thread writes, bit for bit; the places of a
// cache are distinct and complete. For device.rs.
#include <cstdio>
#include <cstring>
#include <vector>

#include "../kernels/buddy_device.cuh"
#include "../kernels/kv.cuh"
#include "../kernels/quad.cuh"

using namespace buddy;

static u64 state = 1;
static u32 random_word() {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (u32)(state >> 33) ^ (u32)(state >> 11);
}

// Values near one exponent, some far from it, some special.
static unsigned short value(u32 kind) {
    u32 r = random_word(), spread = kind % 5 == 0 ? 3 : kind % 5 == 1 ? 16 : kind % 5 == 2 ? 20 : kind % 5 == 3 ? 8 : 256;
    u32 exponent = spread == 256 ? r >> 8 & 255 : 110 + (r >> 8) % spread;
    if (kind % 3 == 0 && random_word() % 20 == 0) exponent = 80 + random_word() % 30;
    if (kind % 7 == 0 && random_word() % 64 == 0) return (unsigned short)(random_word() % 2 ? 0 : 0x7fc1);
    if (kind % 11 == 0) return (unsigned short)((exponent << 7) | (r & 0x8040));
    return (unsigned short)((r & 0x807f) | exponent << 7);
}

struct alignas(16) Stored {
    u8 device[3 * SECTOR], buddy[SECTOR], nibbles[4];
};

static void store(Stored& to, u32 window, u32 (&words)[WORDS]) {
    u64 fault = ~0ull;
    BuddyView view = {{to.device, to.buddy, to.nibbles, nullptr, &fault, 1, 3 * SECTOR, 0}, {window, 0, nullptr}};
    thread::store_entry<Bf16>(view, 0, words);
}

// Stores an entry like the kernel, lane by lane. Returns false if it leaves the entry to one
// thread.
static bool store_quad(Stored& to, u32 window, const u32 (&words)[WORDS]) {
    u32 quarters[4][8], escapes[4], counts = 0;
    memcpy(quarters, words, sizeof quarters);
    QuadRange range = QuadRange::of(quarters[0]);
    for (u32 q = 1; q < 4; q++) range.join(QuadRange::of(quarters[q]));
    for (u32 q = 0; q < 4; q++) escapes[q] = quad_escapes(quarters[q], range.high), counts += ones_in(escapes[q]);
    u32 nibble = range.nibble(window, counts), before = 0;
    if (nibble == NIBBLES) return false;
    to.nibbles[0] = (u8)nibble;
    u64 tail = range.high;
    for (u32 q = 0; q < 4; q++) {
        Quad4 bytes = quad_bytes(quarters[q]);
        u32 codes[2], planes[3];
        quad_codes(quarters[q], window, codes);
        quad_planes(quarters[q], range.high, planes);
        if (nibble == RAW) {
            memcpy(q == 3 ? to.buddy : to.device + 32 * q, quarters[q], 32);
            continue;
        }
        memcpy(to.device + 16 * q, bytes.words, 16);
        if (nibble == RAW + 1) memcpy(to.device + 64 + 8 * q, codes, 8);
        if (nibble == RAW + 1) continue;
        for (u32 bit = 0; bit < 3; bit++) memcpy(to.device + 64 + 8 * bit + 2 * q, planes + bit, 2);
        tail |= quad_tail(quarters[q], escapes[q], before), before += ones_in(escapes[q]);
    }
    if (nibble == RAW + 2) memcpy(to.device + Bf16::BASE_BYTE, &tail, 8);
    return true;
}

static bool same_places(u32 layers, u32 pages, u32 heads, u32 parts, u32 page_tokens) {
    KvCache cache = {};
    cache.layers = layers, cache.pages = pages, cache.heads = heads, cache.head_entries = parts, cache.page_tokens = page_tokens;
    std::vector<u8> seen((u64)layers * pages * heads * parts * page_tokens * 2, 0);
    for (u32 layer = 0; layer < layers; layer++)
        for (u32 page = 0; page < pages; page++)
            for (u32 head = 0; head < heads; head++)
                for (u32 token = 0; token < page_tokens; token++)
                    for (u32 which = 0; which < 2; which++)
                        for (u32 part = 0; part < parts; part++)
                            seen.at(cache.entry(layer, page, head, token, which, part))++;
    for (u8 times : seen)
        if (times != 1) return false;
    return true;
}

int main() {
    u32 by_four[NIBBLES + 1] = {};
    for (u32 i = 0; i < 60000; i++) {
        u32 words[WORDS], window = i % 4 == 0 ? 0 : i % 4 == 1 ? 240 : 100 + i % 16;
        for (u32& word : words) word = value(i) | (u32)value(i) << 16;
        Stored a = {}, b = {};
        bool quad = store_quad(a, window, words);
        store(b, window, words);
        by_four[quad ? b.nibbles[0] : (u32)NIBBLES]++;
        if (quad && memcmp(&a, &b, sizeof a) != 0) return printf("entry %u differs, nibbles %u and %u\n", i, a.nibbles[0], b.nibbles[0]), 1;
    }
    for (u32 nibble : {RAW + 0u, RAW + 1u, RAW + 2u, NIBBLES + 0u})
        if (by_four[nibble] < 1000) return printf("%u entries with nibble %u only\n", by_four[nibble], nibble), 1;
    for (u32 parts = 1; parts <= 2; parts++)
        for (u32 page_tokens = 16; page_tokens <= 128; page_tokens *= 2)
            if (!same_places(2, 3, 3, parts, page_tokens)) return printf("places of %u parts, %u tokens\n", parts, page_tokens), 1;
    return 0;
}
