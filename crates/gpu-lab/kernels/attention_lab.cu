// Kernels that measure and verify attention: plain keys and values in the order of a cache, and a
// reference in double precision.
#include "fill.cuh"
#include "kv.cuh"

using namespace buddy;

// Copies keys and values of tokens to plain memory, each entry at 128 bytes times its index in the
// cache. A thread copies 16 bytes.
extern "C" __global__ void attention_put(KvCache cache, const uint4* keys, const uint4* values, const long long* slots, u32 layer,
                                         u32 tokens, uint4* to) {
    u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x, row = (u64)cache.heads * cache.head_entries * CHUNKS;
    u32 which = at / (tokens * row), chunk = at % CHUNKS, part = at / CHUNKS % cache.head_entries;
    u64 token = at / row % tokens, head = at / CHUNKS / cache.head_entries % cache.heads;
    if (which >= 2) return;
    u32 page = (u32)(slots[token] / cache.page_tokens), place = (u32)(slots[token] % cache.page_tokens);
    to[cache.entry(layer, page, (u32)head, place, which, part) * CHUNKS + chunk] = (which ? values : keys)[at % (tokens * row)];
}

// Fills memory with normal bf16 values. Of 65536 entries `share` are irregular: a third zeros, a
// third random finite values, and a third a few values among zeros.
extern "C" __global__ void attention_fill(u32* to, u64 words, u64 seed, float sigma, u32 share) {
    for (u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x; at < words; at += gridDim.x * (u64)blockDim.x) {
        u64 random = mix(seed ^ mix(at)), of_entry = mix(seed ^ mix(at / WORDS + (1ull << 61)));
        u32 word = float_bits(sigma * normal(random)) >> 16 | (float_bits(sigma * normal(mix(random))) & 0xffff0000u);
        u32 any = (u32)(random >> 32), kind = (u32)(of_entry >> 16) % 3;
        // Exponents of 64 to 127.
        if ((of_entry & 0xffff) < share) word = kind == 0 ? 0 : kind == 1 ? (any & 0x9fff9fffu) | 0x20002000u : any % 5 == 0 ? word : 0;
        to[at] = word;
    }
}

BUDDY_FN double value(const unsigned short* at) { return __uint_as_float((u32)*at << 16); }

struct Reference {
    const unsigned short *queries, *keys, *values, *out;
    const long long* starts;  // first row of each sequence
    const int* lengths;
    double* scores;  // scratch for the scores of the longest sequence, one per block
    u64 room;
    u32 tokens, heads, group, head_values;
    double scale, limit;
    u64* wrong;
};

// One block per query head and token. Counts the results whose distance from the exact one exceeds
// rounding; `limit` is a fraction of the sum of magnitudes.
extern "C" __global__ void __launch_bounds__(128) attention_check(Reference of) {
    u32 asks = of.heads * of.group, head = blockIdx.x % asks / of.group, token = blockIdx.x / asks % of.tokens;
    u32 sequence = blockIdx.x / asks / of.tokens, dim = of.head_values;
    int seen = of.lengths[sequence] - (int)(of.tokens - 1 - token);
    double* scores = of.scores + blockIdx.x * of.room;
    const unsigned short* query = of.queries + (u64)blockIdx.x * dim;
    auto row = [&](const unsigned short* of_all, int at) { return of_all + ((u64)(of.starts[sequence] + at) * of.heads + head) * dim; };
    for (int at = threadIdx.x; at < seen; at += blockDim.x) {
        double sum = 0;
        for (u32 i = 0; i < dim; i++) sum += value(query + i) * value(row(of.keys, at) + i);
        scores[at] = sum * of.scale;
    }
    __syncthreads();
    double most = -1e300, weights = 0;
    for (int at = 0; at < seen; at++) most = fmax(most, scores[at]);
    for (int at = 0; at < seen; at++) weights += exp(scores[at] - most);
    for (u32 i = threadIdx.x; i < dim; i += blockDim.x) {
        double sum = 0, size = 0;
        for (int at = 0; at < seen; at++) {
            double one = exp(scores[at] - most) / weights * value(row(of.values, at) + i);
            sum += one, size += fabs(one);
        }
        double found = value(of.out + (u64)blockIdx.x * dim + i);
        if (!(fabs(found - sum) <= of.limit * (size + fabs(sum)))) atomicAdd(of.wrong, 1ull);
    }
}
