// Reads frozen bf16 buffers at 4/3x like a kernel, by quarters of entries. Answers with each
// entry's place, its first overflow sector (all ones for none), and its 128 bytes.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "../kernels/frozen.cuh"
#include "../kernels/quarter.cuh"

using namespace buddy;

static void take(void* to, size_t bytes) {
    if (fread(to, 1, bytes, stdin) != bytes) _Exit(3);
}

struct Words {
    const u32* words;
    u32 load(u32 k) const { return words[k]; }
};

static void read_quarter(const Frozen& from, u64 place, u32 nibble, u32 window, const u8* rest, u32 quarter, u32 (&out)[8]) {
    u32 words[24];
    memcpy(words, from.device + place * from.device_bytes, sizeof words);
    const u32* own = words + 4 * quarter;
    const u32 bytes[4] = {own[0], own[1], own[2], own[3]}, codes[2] = {words[16 + 2 * quarter], words[17 + 2 * quarter]};
    if (nibble == RAW + 1) {
        Bf16::read_window_quarter(bytes, codes, window, out);
    } else if (nibble == RAW + 2) {
        u32 last[8];
        memcpy(last, words + 16, sizeof last);
        Bf16::read_own_quarter(bytes, last, quarter, out);
    } else if (nibble == RAW) {
        if (quarter < 3) memcpy(out, words + 8 * quarter, 32);
        else if (rest != nullptr) memcpy(out, rest, 32);
        else memset(out, 0, 32);
    } else {
        read_loose_quarter(Words{words}, nibble, quarter, [&](u32 i, u32 pair) { out[i] = pair; });
    }
}

int main() {
    u32 head[4];
    u64 sizes[5];
    take(head, sizeof head);
    take(sizes, sizeof sizes);
    std::vector<u32> parts[4];
    for (u32 i = 0; i < 4; i++) parts[i].resize(sizes[i + 1] / 4), take(parts[i].data(), sizes[i + 1]);
    Frozen from = {(const u8*)parts[0].data(), (const u8*)parts[1].data(), parts[2].data(), (const u8*)parts[3].data(), nullptr,
                   {sizes[0], head[1]}, head[0], head[2]};
    for (u64 entry = 0; entry < from.order.entries; entry++) {
        u64 place = from.order.place_of(entry);
        if (from.order.entry_at(place) != entry || place >= from.order.places()) return 4;
        u32 nibble = from.nibbles[place / 2] >> (place % 2 * 4) & 15, over = sectors_over(nibble, from.device_bytes);
        const u8* rest = over == 0 ? nullptr : from.sectors_of(place, over);
        u64 answer[2] = {place, rest == nullptr ? ~0ull : (u64)(rest - from.overflow) / SECTOR};
        fwrite(answer, 1, sizeof answer, stdout);
        u32 words[WORDS];
        for (u32 quarter = 0; quarter < 4; quarter++) {
            u32 out[8];
            read_quarter(from, place, nibble, head[3], rest, quarter, out);
            memcpy(words + 8 * quarter, out, sizeof out);
        }
        from.order.to_plain(words);
        fwrite(words, 1, sizeof words, stdout);
    }
    return 0;
}
