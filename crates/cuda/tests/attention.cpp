// Attention over compressed keys and values by the emulated kernels. Windows and shifts are trained on
// random tokens, which are appended and partly attended to. Results are compared with a reference in
// double precision; the memory after a fresh token is compared with that after an append.
#include "hopper.h"

struct alignas(8) float2 { float x, y; };
inline float2 make_float2(float x, float y) { return {x, y}; }
using std::max;
inline int __ffsll(long long value) { return __builtin_ffsll(value); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __int_as_float(unsigned bits) { return __uint_as_float(bits); }
inline unsigned __reduce_add_sync(unsigned, unsigned value) {
    for (int step = 1; step < 32; step *= 2) value += __shfl_xor_sync(~0u, value, step);
    return value;
}
#define __noinline__

namespace buddy {
constexpr u32 WARP = 32, ALL = ~0u;
inline float exp2_fast(float x) { return x < -126 ? 0 : exp2f(x); }
inline u32 transpose8x8(u32 two) {
    u32 lane = emu::now->id % 32, out = 0;
    for (u32 i = 0; i < 2; i++) out |= (emu::exchange(two, (lane % 4 * 2 + i) * 4 + lane / 8) >> lane / 4 % 2 * 16 & 0xffff) << 16 * i;
    return out;
}
inline void fence_proxy_async() {}

// Lands later; the destination CTA must still run.
inline void st_async(u32 at, u32 block, float2 value, Barrier counts) {
    u32 to = address_in(at, block), full = address_in(counts.at, block);
    emu::do_later([=] {
        if (emu::blocks[block].live == 0) emu::fail("something sent to a block that has ended");
        memcpy(emu::at_shared(to), &value, sizeof value);
        emu::State& state = emu::barriers.at(full);
        state.tx -= (long)sizeof value, emu::settle(state);
    });
}
}  // namespace buddy

#include "../kernels/attention.cu"

// Declarations that kv.cu needs to compile; nothing is read here.
namespace buddy {
struct Tile {
    uint4* chunks;
    u32 lane;
    uint4* at(u32, u32) const { return chunks; }
};
namespace warp {
template <class Codec, class View>
inline void load_entries(const View&, const Tile&, u64, u32) {}
}  // namespace warp
}  // namespace buddy
#include "../kernels/kv.cu"

constexpr u32 HEAD = BUDDY_ATTENTION_VALUES, PAGE = 16u << BUDDY_TEST_PAGE;
// Rounding of weights and results to bf16, each at most half of this.
constexpr float LIMIT = 1.0f / 128;

static u64 state = 1;
static u32 below(u32 most) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (u32)(state >> 33) % most;
}
// About normal values; one entry in `odd` is irregular: all zeros, mostly zeros, one far value, or
// all far.
static std::vector<unsigned short> random_rows(u64 entries, u32 odd) {
    std::vector<unsigned short> all(entries * VALUES);
    for (u64 e = 0; e < entries; e++) {
        u32 kind = odd && below(odd) == 0 ? 1 + below(4) : 0;
        for (u32 i = 0; i < VALUES; i++) {
            float value = 0;
            for (u32 k = 0; k < 6; k++) value += (float)below(1 << 20) / (1 << 20) - 0.5f;
            if (kind == 1 || (kind == 2 && i % 5)) value = 0;
            if ((kind == 3 && i == 7) || kind == 4) value = ldexpf(value, -(int)below(30));
            all[e * VALUES + i] = emu::to_bf16(value);
        }
    }
    return all;
}
static double number(unsigned short bf16) { return __uint_as_float((u32)bf16 << 16); }

// A cache with its own memory.
struct Cache {
    std::vector<uint4> device, buddy, nibbles;
    std::vector<u8> windows;
    std::vector<uint4> shifts;
    u32 fault = ~0u;
    KvCache view;

    Cache(u32 pages, u32 heads) {
        u64 entries = (u64)pages * heads * PAGE * 2 * (HEAD / VALUES);
        device.resize(entries * 6), buddy.resize(entries * 2), nibbles.resize(entries / 32 + 1), windows.assign(2 * heads, UNUSED), shifts.resize(heads * HEAD / 8);
        view = {};
        view.memory.device = (u8*)device.data(), view.memory.buddy = (u8*)buddy.data(), view.memory.nibbles = (u8*)nibbles.data();
        view.memory.entries = entries, view.memory.device_bytes = 96;
        view.windows = windows.data(), view.shifts = (u8*)shifts.data(), view.layers = 1, view.pages = pages, view.heads = heads, view.head_entries = HEAD / VALUES, view.page_tokens = PAGE;
    }
};

struct Case {
    std::vector<u32> lengths;
    u32 heads, group, tokens, odd, blocks, split;
    bool uneven = false;  // some columns are 64 times as large as the others, but for tiny values
};

static void expect(bool holds, const char* what, u64 at = 0) {
    if (!holds) fprintf(stderr, "%s (%llu)\n", what, (unsigned long long)at), exit(1);
}

static void run(const Case& of) {
    u32 sequences = (u32)of.lengths.size(), row = of.heads * HEAD, total = 0, stride = 1;
    for (u32 length : of.lengths) total += length, stride = max(stride, (length + PAGE - 1) / PAGE);
    // Coprime with seven.
    u32 pages = (sequences * stride + 6) / 7 * 7 + 1;
    std::vector<int> table(sequences * stride), lengths(of.lengths.begin(), of.lengths.end());
    std::vector<long long> slots;
    std::vector<u32> starts;
    for (u32 s = 0; s < sequences; s++) {
        starts.push_back((u32)slots.size());
        for (u32 p = 0; p < stride; p++) table[s * stride + p] = (int)((s * stride + p) * 7 % pages);
        for (u32 t = 0; t < of.lengths[s]; t++) slots.push_back((long long)table[s * stride + t / PAGE] * PAGE + t % PAGE);
    }
    auto keys = random_rows((u64)total * row / VALUES + 1, of.odd), values = random_rows((u64)total * row / VALUES + 1, of.odd);
    for (auto* all : {&keys, &values}) {
        for (u64 i = 0; i < all->size() && of.uneven; i++) {
            if (i % HEAD % 13 == 5) (*all)[i] = i % 331 == 0 ? 4 << 7 : emu::to_bf16((float)(64 * number((*all)[i])));
        }
    }
    auto queries = random_rows((u64)sequences * of.tokens * row * of.group / VALUES, 0);
    // A fresh token as the QKV projection writes it. After RoPE, memory must hold its keys and
    // values.
    std::vector<unsigned short> rows;
    std::vector<float2> rope((stride * PAGE) * HEAD / 2);
    for (float2& one : rope) {
        float angle = (float)below(1000) / 100;
        one = make_float2(cosf(angle), sinf(angle));
    }
    auto rotate_head = [&](unsigned short* head, u32 position) {
        for (u32 i = 0; i < HEAD / 2; i++) {
            float2 by = rope[position * HEAD / 2 + i];
            float a = (float)number(head[i]), b = (float)number(head[i + HEAD / 2]);
            head[i] = emu::to_bf16(fmaf(a, by.x, -b * by.y)), head[i + HEAD / 2] = emu::to_bf16(fmaf(b, by.x, a * by.y));
        }
    };
    for (u32 s = 0; s < sequences && BUDDY_ATTENTION_FRESH; s++) {
        const unsigned short* q = queries.data() + (u64)s * row * of.group;
        u64 at = (u64)(starts[s] + max(of.lengths[s], 1u) - 1) * row;
        rows.insert(rows.end(), q, q + row * of.group);
        for (auto* from : {&keys, &values}) rows.insert(rows.end(), from->begin() + (long)at, from->begin() + (long)at + row);
        if (of.lengths[s] == 0) continue;
        for (u32 h = 0; h < of.heads * of.group; h++) rotate_head(queries.data() + ((u64)s * of.heads * of.group + h) * HEAD, of.lengths[s] - 1);
        for (u32 h = 0; h < of.heads; h++) rotate_head(keys.data() + at + h * HEAD, of.lengths[s] - 1);
    }
    Cache cache(pages, of.heads), whole(pages, of.heads);
    auto append = [&](Cache& to, std::vector<long long> where) {
        KvRows all = {keys.data(), values.data(), 0, row, 0, 1, total, 0};
        if (total == 0) return;
        KvRows first = all;
        first.tokens = min(total, 80u);
        // A second time, from other tokens, changes nothing.
        for (u32 i = 0; i < 2; i++, first.keys = values.data()) {
            emu::launch(kv_train, dim3(2 * of.heads), TRAIN_THREADS, to.view, first, (const long long*)slots.data());
        }
        bool is_trained = to.windows[0] <= LAST_WINDOW;
        expect(is_trained == (total >= TRAIN_TOKENS), "training");
        u32 shifted = 0;
        for (u32 i = 0; i < HEAD; i++) shifted += *to.view.shift(0, 0, 0, i) != 0;
        expect((shifted > 0) == of.uneven, "shifts", shifted);
        u32 threads = 4 * total * 2 * of.heads * to.view.head_entries;
        emu::launch(kv_append, dim3((threads + APPEND_THREADS - 1) / APPEND_THREADS), APPEND_THREADS, to.view, all, where.data());
    };
    append(whole, slots);
    std::vector<long long> older = slots;
    for (u32 s = 0; s < sequences && BUDDY_ATTENTION_FRESH; s++) {
        if (of.lengths[s] > 0) older[starts[s] + of.lengths[s] - 1] = -1;
    }
    append(cache, older);
    u32 others = 0;
    for (u64 entry = 0; entry < whole.view.memory.entries; entry++) {
        u32 nibble = whole.view.memory.nibbles[entry / 2] >> entry % 2 * 4 & 15;
        expect(nibble != RAW + 1 || whole.windows[0] <= LAST_WINDOW, "an entry with a window that is not chosen", entry);
        others += nibble != RAW + 1 && nibble != ZERO;
    }
    // With shifts nearly all entries are in the window.
    if (of.odd == 0 && total >= TRAIN_TOKENS) expect(20 * others < total * of.heads * 2 * (HEAD / VALUES), "too many irregular entries", others);
    u32 columns = of.tokens * of.group, items = sequences * of.heads;
    std::vector<unsigned short> out((u64)sequences * of.tokens * row * of.group, 0xffff);
    std::vector<float> parts(2 * of.blocks * S::PARTIAL / 4 + 4);
    std::vector<u32> counts(items);
    Attention args = {};
    args.cache = cache.view, args.queries = (const u8*)queries.data(), args.out = (u8*)out.data(), args.table = table.data();
    args.lengths = lengths.data(), args.partials = parts.data(), args.counters = counts.data(), args.rows = rows.data(), args.rope = rope.data();
    args.table_stride = stride, args.sequences = sequences, args.tokens = of.tokens, args.group = of.group, args.split = of.split;
    args.scale = 1 / sqrtf((float)HEAD) * 1.4426950408889634f;
    emu::each_round = emu::land;
    cluster_arrivals.clear();
    u32 blocks = S::CLUSTERED ? items << of.split : of.blocks;
    emu::launch_clusters(attention, S::CLUSTERED ? 1u << of.split : 1, dim3(blocks), S::THREADS + S::PRODUCERS * WARP, args);
    emu::each_round = nullptr;
    for (u32 count : counts) expect(count == 0, "a count that was left");
    expect(memcmp(cache.device.data(), whole.device.data(), 16 * cache.device.size()) == 0, "appended entries differ");
    expect(memcmp(cache.nibbles.data(), whole.nibbles.data(), 16 * cache.nibbles.size()) == 0, "their nibbles differ");
    expect(cache.windows == whole.windows && memcmp(cache.shifts.data(), whole.shifts.data(), 16 * cache.shifts.size()) == 0, "windows differ");
    expect(memcmp(cache.buddy.data(), whole.buddy.data(), 16 * cache.buddy.size()) == 0, "what overflows of them differs");
    for (u32 item = 0; item < items; item++) {
        for (u32 column = 0; column < columns; column++) {
            u32 s = item / of.heads, head = item % of.heads, token = column / of.group, after = of.tokens - 1 - token;
            u32 seen = of.lengths[s] > after ? of.lengths[s] - after : 0;
            u64 at = ((u64)(s * of.tokens + token) * of.heads + head) * of.group + column % of.group;
            std::vector<double> weights(seen);
            double most = -1e300, sum = 0;
            for (u32 t = 0; t < seen; t++) {
                for (u32 i = 0; i < HEAD; i++) weights[t] += number(queries[at * HEAD + i]) * number(keys[(u64)(starts[s] + t) * row + head * HEAD + i]);
                weights[t] /= sqrt(HEAD), most = max(most, weights[t]);
            }
            for (double& weight : weights) sum += weight = exp(weight - most);
            for (u32 i = 0; i < HEAD; i++) {
                double value = 0, size = 0;
                for (u32 t = 0; t < seen; t++) {
                    double one = weights[t] / sum * number(values[(u64)(starts[s] + t) * row + head * HEAD + i]);
                    value += one, size += fabs(one);
                }
                double got = number(out[at * HEAD + i]);
                if (!(fabs(got - value) <= LIMIT * size + 1e-30)) {
                    fprintf(stderr, "sequence %u head %u column %u value %u: %g instead of %g (magnitudes %g)\n", s, head, column, i, got, value, size), exit(1);
                }
            }
        }
    }
}

int main() {
    bool fresh = BUDDY_ATTENTION_FRESH, wide = BUDDY_ATTENTION_COLUMNS > 8;
    u32 group = wide ? 5 : 4, tokens = fresh ? 1 : wide ? 3 : 2;
    if (fresh && wide) group = 12;
    // Lengths, heads, group, tokens; one entry in this number is irregular; CTAs of runs; log2 of a
    // cluster's CTAs.
    run({{130}, 1, group, tokens, 0, 3, 0});
    run({{131}, 1, group, tokens, 0, 3, 0, true});
    run({{21, 11}, 2, group, tokens, 5, 3, 1, true});
    run({{300, 0, 33}, 2, group, tokens, 9, 4, 2});
    run({{16, 1, 97}, 1, group, tokens, 3, 2, 1});
    run({{500}, 2, 1, tokens, 5, 5, 3});
}
