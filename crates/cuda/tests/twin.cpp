// The kernels' codecs on a CPU: answers requests, for twin.rs.
#include <cstdio>
#include <cstring>
#include <vector>

#include "../kernels/bf16.cuh"
#include "../kernels/bpc.cuh"
#include "../kernels/map.cuh"
#include "../kernels/bpc_best.cuh"
#include "../kernels/near64.cuh"
#include "../kernels/planes.cuh"
#include "../kernels/prefix.cuh"
#include "../kernels/rank.cuh"
#include "../kernels/scaled.cuh"
#include "../kernels/table.cuh"

using namespace buddy;

struct Request {
    u32 codec, decode, window, limit_bits, layout;
    u32 words[32];
};

struct Answer {
    u32 status, size_bits, bits, layout;
    u32 words[32];
};

// A row in plain memory. It has exactly 32 words: the address sanitiser sees any other access.
struct PlainRow {
    u32* words;
    u32 load(u32 k) const { return words[k]; }
    void store(u32 k, u32 word) { words[k] = word; }
    u32 load_if(bool condition, u32 k, u32 otherwise) const { return condition ? load(k) : otherwise; }
    void store_if(bool condition, u32 k, u32 word) {
        if (condition) store(k, word);
    }
    Quad load_quad(u32 c) const {
        Quad quad;
        memcpy(quad.words, words + 4 * c, sizeof quad);
        return quad;
    }
    void store_quad(u32 c, const Quad& quad) { memcpy(words + 4 * c, quad.words, sizeof quad); }
    void clear(u32 first = 0) { memset(words + 4 * first, 0, (STREAM_WORDS - 4 * first) * 4); }
};

template <class Codec>
void serve(const Request& request, const u32* learned, Answer& answer) {
    Params params = {request.window, 0, learned};
    u32 words[32];
    memcpy(words, request.words, sizeof words);
    u32* memory = new u32[32];
    memset(memory, 0xa5, 128);
    PlainRow row = {memory};
    if (request.decode) {
        memcpy(memory, words, 128);
        memset(words, 0, sizeof words);
        answer.status = Codec::decode(row, request.limit_bits, request.layout, words, params);
        memcpy(answer.words, words, 128);
    } else {
        answer.size_bits = Codec::size_bits(words, params);
        answer.bits = Codec::encode(words, row, answer.layout, params);
        memcpy(answer.words, memory, 128);
    }
    delete[] memory;
}

int main() {
    typedef void (*Serve)(const Request&, const u32*, Answer&);
    const Serve codecs[] = {serve<Bpc>, serve<Planes64>, serve<Zeros<16>>, serve<Zeros<32>>,
                            serve<Bf16>, serve<Fp16>, serve<Fp32>,
                            serve<Table32>, serve<Table64>, serve<Scaled64>,
                            serve<Prefix32>, serve<Prefix64>, serve<Rank32>, serve<Rank64>, serve<Near64>, serve<BpcBest>};
    // The codec's parameters come first, in separate memory, so that the sanitiser sees an access
    // past its end.
    u64 words;
    if (fread(&words, sizeof words, 1, stdin) != 1) return 1;
    std::vector<u32> learned(words);
    if (fread(learned.data(), 4, words, stdin) != words) return 1;
    Request request;
    while (fread(&request, sizeof request, 1, stdin) == 1) {
        Answer answer = {};
        if (request.codec >= sizeof codecs / sizeof *codecs) return 1;
        codecs[request.codec](request, learned.data(), answer);
        fwrite(&answer, sizeof answer, 1, stdout);
    }
    return 0;
}
