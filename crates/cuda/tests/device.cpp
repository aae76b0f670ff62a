// `buddy_device.cuh` on a CPU: stores entries and returns the memory, for device.rs.
#include <cstdio>
#include <cstring>
#include <vector>

#include "../kernels/buddy_device.cuh"

using namespace buddy;

struct Request {
    u32 codec, window, device_bytes, entries, learned;
};

template <class Codec>
void serve(const Request& request) {
    u64 entries = request.entries, padded = (entries + PAGE_ENTRIES - 1) / PAGE_ENTRIES * PAGE_ENTRIES;
    std::vector<u32> plain(entries * WORDS);
    std::vector<u32> learned(request.learned);
    if (fread(learned.data(), 4, learned.size(), stdin) != learned.size()) return;
    if (fread(plain.data(), ENTRY, entries, stdin) != entries) return;
    // Bytes that are never written keep this value.
    std::vector<thread::Quad> device(padded * request.device_bytes / CHUNK + 1), buddy(padded * buddy_bytes(request.device_bytes) / CHUNK + 1);
    std::vector<u64> nibbles(padded / 16), fault(1, ~0ull);
    memset(device.data(), 0xa5, device.size() * CHUNK);
    memset(buddy.data(), 0xa5, buddy.size() * CHUNK);
    BuddyView view = {{(u8*)device.data(), (u8*)buddy.data(), (u8*)nibbles.data(), nullptr, fault.data(), entries, request.device_bytes, 0},
                      {request.window, 0, learned.data()}};
    std::vector<u32> loaded(entries * WORDS), status(entries);
    for (u64 i = 0; i < entries; i++) {
        u32 words[WORDS];
        memcpy(words, &plain[i * WORDS], ENTRY);
        thread::store_entry<Codec>(view, i, words);
    }
    for (u64 i = 0; i < entries; i++) {
        u32 words[WORDS];
        status[i] = thread::load_entry<Codec>(view, i, words);
        memcpy(&loaded[i * WORDS], words, ENTRY);
    }
    u64 before = fault[0];
    u32 past[WORDS], refused = thread::load_entry<Codec>(view, entries, past);
    u64 words[4] = {before, fault[0], refused, past[0]};
    fwrite(words, 8, 4, stdout);
    fwrite(status.data(), 4, entries, stdout);
    fwrite(loaded.data(), ENTRY, entries, stdout);
    fwrite(nibbles.data(), 1, padded / 2, stdout);
    fwrite(device.data(), 1, padded * request.device_bytes, stdout);
    fwrite(buddy.data(), 1, padded * buddy_bytes(request.device_bytes), stdout);
}

int main() {
    typedef void (*Serve)(const Request&);
    const Serve codecs[] = {serve<Bpc>, serve<Planes64>, serve<Zeros<16>>, serve<Zeros<32>>,
                            serve<Bf16>, serve<Fp16>, serve<Fp32>,
                            serve<Table32>, serve<Table64>, serve<Scaled64>,
                            serve<Prefix32>, serve<Prefix64>, serve<Rank32>, serve<Rank64>, serve<Near64>, serve<BpcBest>};
    Request request;
    if (fread(&request, sizeof request, 1, stdin) != 1 || request.codec >= sizeof codecs / sizeof *codecs) return 1;
    codecs[request.codec](request);
    return 0;
}
