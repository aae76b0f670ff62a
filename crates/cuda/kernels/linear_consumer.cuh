// Consumer warpgroups of the linear kernel: decode packed weights from shared memory into wgmma
// fragments, multiply by x, reduce shared tiles (stream-K fix-up), and store y. Plain weights exist
// in registers only.
#pragma once
#include "linear_fragment.cuh"
#include "wgmma.cuh"

namespace buddy {

// A warp's accumulators of an output tile, with the epilogue: store partials, reduce them, store y.
template <class S>
struct Accumulators {
    static constexpr u32 EACH = S::TOKENS / 2, FOURS = EACH / 4, STRIDE = 2 * S::ROWS;
    // float4s that are loaded at a time, as registers allow.
    static constexpr u32 MAX_BATCH = S::CONSUMER_REGISTERS >= EACH + 120 ? 8 : 4, BATCH = FOURS < MAX_BATCH ? FOURS : MAX_BATCH;
    static_assert(S::TOKENS == 8 || S::TOKENS % 16 == 0, "the epilogue stores 8 tokens, or 16 at a time");
    static_assert(FOURS % BATCH == 0, "batches hold all accumulators");
    float (&values)[EACH];

    BUDDY_FN float* four(u32 i) const { return &values[4 * i]; }
    BUDDY_FN float4* partial(const Linear& linear, u32 slot) const { return linear.partials + (u64)slot * (FOURS * STRIDE) + threadIdx.x; }

    BUDDY_FN void store_partials(const Linear& linear, u32 slot) const {
        float4* to = partial(linear, slot);
        BUDDY_UNROLL
        for (u32 i = 0; i < FOURS; i++) {
            const float* from = four(i);
            __stcg(to + i * STRIDE, make_float4(from[0], from[1], from[2], from[3]));
        }
    }
    // Reduces `BATCH` float4s of the tile over all workers in ascending order: this one's from
    // registers, the others' from `partials`.
    template <class SlotOf>
    BUDDY_FN void reduce_partials(const Linear& linear, u32 i, u32 first, u32 last, SlotOf slot_of, float (&all)[4 * BATCH]) const {
        BUDDY_UNROLL
        for (u32 k = 0; k < 4 * BATCH; k++) all[k] = 0;
#pragma unroll 1
        for (u32 worker = first; worker <= last; worker++) {
            if (worker == TileScheduler<S>::worker()) {
                BUDDY_UNROLL
                for (u32 k = 0; k < 4 * BATCH; k++) all[k] += four(i)[k];
                continue;
            }
            const float4* from = partial(linear, slot_of(worker)) + i * STRIDE;
            float4 v[BATCH];
            BUDDY_UNROLL
            for (u32 k = 0; k < BATCH; k++) v[k] = __ldcg(from + k * STRIDE);
            BUDDY_UNROLL
            for (u32 k = 0; k < BATCH; k++) {
                all[4 * k] += v[k].x, all[4 * k + 1] += v[k].y, all[4 * k + 2] += v[k].z, all[4 * k + 3] += v[k].w;
            }
        }
    }
    // Intra-CTA split-K: warpgroups after the first pass their accumulators to it through shared
    // memory; it adds them in order.
    template <class Storage>
    BUDDY_FN void reduce_split_k(const Storage& smem, u32 group) {
        auto at = [&](u32 of) { return smem.split_k(of, threadIdx.x / WARP % 4) + threadIdx.x % WARP * 16; };
        // The previous tile's reduction is complete.
        named_barrier<S::WARPGROUPS * WARPGROUP>();
        BUDDY_UNROLL
        for (u32 i = 0; i < FOURS && group > 0; i++) {
            const float* v = four(i);
            sts128(at(group) + i * WARP * 16, make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3])));
        }
        named_barrier<S::WARPGROUPS * WARPGROUP>();
        BUDDY_UNROLL
        for (u32 of = 1; of < S::SPLIT_K; of++) {
            if (group > 0) break;
            BUDDY_UNROLL
            for (u32 i = 0; i < FOURS; i++) {
                uint4 v = lds128(at(of) + i * WARP * 16);
                float* to = four(i);
                to[0] += __uint_as_float(v.x), to[1] += __uint_as_float(v.y), to[2] += __uint_as_float(v.z), to[3] += __uint_as_float(v.w);
            }
        }
    }
    // Epilogue: reduces the partials and stores the tile to y. Lane l has tokens 8j + l % 4 * 2 and
    // the next, of two rows.
    template <class Storage, class SlotOf>
    BUDDY_FN void store(const Linear& linear, const Storage& smem, u32 row_tile, u32 token, u32 first_worker, u32 last_worker, SlotOf slot_of) const {
        u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, first = (row_tile + warp) * TILE_ROWS, row = first + FragmentLoader::row_of(lane);
        float bias[2] = {bias_of(linear, row), bias_of(linear, row + 8)};
        float scale[2] = {linear.weights.scale_of(row, linear.outputs, linear.per_row()), linear.weights.scale_of(row + 8, linear.outputs, linear.per_row())};
        BUDDY_UNROLL
        for (u32 i = 0; i < FOURS; i += BATCH, token += 8 * BATCH) {
            float all[4 * BATCH];
            reduce_partials(linear, i, first_worker, last_worker, slot_of, all);
            BUDDY_UNROLL
            for (u32 k = 0; k < 4 * BATCH; k++) all[k] *= scale[k / 2 % 2];
            if (!S::GATED && linear.output == Linear::FP32) {
                BUDDY_UNROLL
                for (u32 k = 0; k < 4 * BATCH; k++) {
                    store_fp32(linear, row + k / 2 % 2 * 8, token + k / 4 * 8 + lane % 4 * 2 + k % 2, all[k] + bias[k / 2 % 2]);
                }
                continue;
            }
            BUDDY_UNROLL
            for (u32 k = 0; k < 4 * BATCH; k += 8) store_bf16_tile(linear, smem.out(warp), first, token + 2 * k, &all[k], bias);
        }
    }
    static BUDDY_FN void store_fp32(const Linear& linear, u32 row, u32 token, float value) {
        if (row < linear.outputs && token < linear.tokens) ((float*)linear.y)[(u64)token * linear.outputs + row] = value;
    }
    // Stores 16 rows of 16 tokens (or 8) as bf16, transposed through shared memory: a lane then has
    // eight rows of a token.
    static BUDDY_FN void store_bf16_tile(const Linear& linear, u32 out, u32 first, u32 token, const float* v, const float (&bias)[2]) {
        u32 lane = threadIdx.x % WARP;
        constexpr u32 PAIRS = EACH < 8 ? 2 : 4;
        u32 pairs[4] = {};
        BUDDY_UNROLL
        for (u32 i = 0; i < PAIRS; i++) pairs[i] = bf16_pair(v[2 * i] + bias[i % 2], v[2 * i + 1] + bias[i % 2]);
        constexpr bool is_gated = S::GATED;
        BUDDY_UNROLL
        for (u32 i = 0; i < PAIRS; i += 2) {
            auto one = [&](u32 k) { return gated(v[2 * i + k] + bias[0], v[2 * i + 2 + k] + bias[1]); };
            if (is_gated) pairs[i] = bf16_pair(one(0), one(1));
        }
        // Matrix m has tokens 8 (m / 2) and on, rows 8 (m % 2) and on; a lane gives the address of
        // one token.
        u32 at = out + (lane / 16 * 8 + lane % 8) * (2 * TILE_ROWS) + lane / 8 % 2 * CHUNK;
        __syncwarp();
        stmatrix4_transposed(at, pairs[0], pairs[1], pairs[2], pairs[3]);
        __syncwarp();
        // A gated tile has half as many rows, the upper ones.
        u32 of = token + lane / 2, row = is_gated ? first / 2 : first + lane % 2 * 8, outputs = is_gated ? linear.outputs / 2 : linear.outputs;
        bool in_range = lane / 2 < S::TOKENS && of < linear.tokens && row < outputs && !(is_gated && lane % 2);
        uint4 got = lds128(out + lane * CHUNK);
        if (!in_range) return;
        // Undoes the row permutation of `FragmentLoader::row_of`.
        uint4 words = make_uint4(permute_bytes(got.x, got.y, 0x5410), permute_bytes(got.x, got.y, 0x7632),
                                 permute_bytes(got.z, got.w, 0x5410), permute_bytes(got.z, got.w, 0x7632));
        unsigned short* to = (unsigned short*)linear.y + (u64)of * outputs + row;
        if (row + 8 <= outputs && (u64)to % CHUNK == 0) {
            *(uint4*)to = words;
            return;
        }
        u64 low = (u64)words.y << 32 | words.x, high = (u64)words.w << 32 | words.z;
#pragma unroll 1
        for (u32 i = 0; i < min(8u, outputs - row); i++) to[i] = (unsigned short)((i < 4 ? low : high) >> i % 4 * 16);
    }
};

// Stream-K fix-up of an output tile shared by workers `first` to `last`, per warp. Large tiles:
// each worker increments the counter before its epilogue; the last one keeps its accumulators in
// registers and waits for the others' partials. The others are at their epilogue already, so the
// wait is short. Small tiles: every worker stores its partials, and the last to increment the
// counter reduces them, which saves a round trip to memory.
template <class S>
struct FixUp {
    static constexpr bool SMALL = S::TOKENS <= 32;
    static constexpr u32 PUBLISHED = 1 << 16;
    u32 first, last;
    u32* counter;

    BUDDY_FN FixUp(const Linear& linear, const TileScheduler<S>& scheduler, u32 tile) {
        first = scheduler.owner(tile * scheduler.tile_k_blocks), last = scheduler.owner(tile * scheduler.tile_k_blocks + scheduler.tile_k_blocks - 1);
        counter = linear.counters + scheduler.cta(first) * S::WARPS + threadIdx.x / WARP;
    }
    // Increments the counter; returns its previous value, in lane 0.
    BUDDY_FN u32 announce() const {
        if (SMALL || first == last) return 0;
        // The preceding kernel may use the same counters.
        wait_on_dependent_grids();
        return threadIdx.x % WARP == 0 ? atomic_add_relaxed(counter, 1) % PUBLISHED : 0;
    }
    BUDDY_FN bool is_reducer(u32 before) const { return !SMALL && __shfl_sync(ALL, before, 0) == last - first; }
    // Releases the warp's stored partials. Returns whether this warp is the last and reduces (small
    // tiles).
    BUDDY_FN bool publish() const {
        __syncwarp();
        u32 before = threadIdx.x % WARP == 0 ? atomic_add_release(counter, SMALL ? 1 : PUBLISHED) : 0;
        return SMALL && __shfl_sync(ALL, before, 0) == last - first;
    }
    // Waits for all partials, and resets the counter.
    BUDDY_FN void wait_for_partials() const {
        if (SMALL) fence_acq_rel();
        else wait_until(counter, (last - first) * PUBLISHED + (last - first + 1));
        __syncwarp();
        if (threadIdx.x % WARP == 0) *counter = 0;
    }
};

// Ends a tile whose k-blocks this worker began at number `begin`: fix-up, then the epilogue.
template <class S, class Storage>
BUDDY_FN void finish_tile(const Linear& linear, const TileScheduler<S>& scheduler, const Storage& smem, const KBlock<S>& k_block, u32 begin, u32 before, Accumulators<S> sums) {
    wait_on_dependent_grids();
    FixUp<S> fix_up(linear, scheduler, k_block.tile);
    u32 first = fix_up.first, last = fix_up.last;
    if (first != last) {
        if (!fix_up.is_reducer(before)) {
            sums.store_partials(linear, 2 * blockIdx.x + (begin != scheduler.begin()));
            if (!fix_up.publish()) return;
        }
        fix_up.wait_for_partials();
    }
    // All workers but the first begin within this tile.
    bool second = scheduler.start(first) < k_block.tile * scheduler.tile_k_blocks;
    auto slot_of = [&](u32 worker) { return 2 * scheduler.cta(worker) + (worker == first && second); };
    sums.store(k_block.seen(linear), smem, k_block.output_tile(scheduler), k_block.token(scheduler), first, last, slot_of);
}

// Issues the wgmmas of an entry: 64 columns.
template <class S>
BUDDY_FN void issue_wgmmas(float (&sums)[S::TOKENS / 2], const u32 (&upper)[8], const u32 (&lower)[8], u32 x_at, u32 add) {
    wgmma_fence();
    u64 x = smem_descriptor(x_at);
    BUDDY_UNROLL
    for (u32 k = 0; k < 4; k++) {
        wgmma<S::TOKENS>(sums, upper[2 * k], lower[2 * k], upper[2 * k + 1], lower[2 * k + 1], x + 2 * k, k > 0 ? 1 : add);
    }
    wgmma_commit_group();
}

// Double-buffered A fragments: one set is multiplied while the other is decoded.
struct Fragments {
    u32 upper[2][8], lower[2][8];
};

#if BUDDY_LINEAR_TIGHT
typedef TightLoader Loader;
#else
typedef FragmentLoader Loader;
#endif

// A fragment loaded from shared memory but not decoded: the lane's words, and the slot map.
struct PendingFragment {
    Loader::Stored stored;
    uint2 map;
};

// Main loop of a consumer warp.
template <class S>
struct Consumer {
    const TileScheduler<S>& scheduler;
    const SharedStorage<S>& smem;
    const Loader& loader;
    u32 tile, first;  // this warp's 16-row tile of the stage, and its first entry
    static constexpr u32 EACH = S::ENTRIES / S::SPLIT_K;

#if BUDDY_LINEAR_TIGHT
    BUDDY_FN PendingFragment fetch(u32 stage, u32 e) const {
        u32 lowest = loader.lowest(smem.rows(stage, tile));
        return {loader.fetch(smem.column(stage, tile, e), smem.nibbles(stage, tile * S::ENTRIES + e), lowest), make_uint2(0, 0)};
    }
    BUDDY_FN void decode(const PendingFragment& pending, const KBlock<S>& k_block, u32, u32 e, u32 (&a)[8], u32 (&b)[8]) const {
        loader.decode(pending.stored, scheduler.per_row, k_block.row_tile(scheduler) + tile, k_block.k * S::ENTRIES + e, a, b);
    }
#else
    BUDDY_FN PendingFragment fetch(u32 stage, u32 e) const {
        return {loader.fetch(smem.column(stage, tile, e)), lds64(smem.slot_map(stage, tile * S::ENTRIES + e))};
    }
    BUDDY_FN void decode(const PendingFragment& pending, const KBlock<S>& k_block, u32 stage, u32 e, u32 (&a)[8], u32 (&b)[8]) const {
        uint2 map = pending.map;
        loader.decode(pending.stored, a, b);
        // Rare from here on.
        if (__builtin_expect(IS_PLAIN || (map.x | map.y) == 0, 1)) return;
        loader.load_slots(smem.slots(stage), map, a, b);
        uint2 none = make_uint2(equal_nibbles(map.x, 15) * 15, equal_nibbles(map.y, 15) * 15);
        if ((none.x | none.y) == 0) return;
        u32 number = tile * S::ENTRIES + e;
        u64 first = ((u64)(k_block.row_tile(scheduler) + tile) * scheduler.per_row + k_block.k * S::ENTRIES + e) * TILE_ROWS;
        uint2 irregular = irregular_mask(lds64(smem.nibbles(stage, number)));
        irregular.x &= none.x, irregular.y &= none.y;
        loader.load_irregular_rows(smem.tail_owner(stage, number % WARP), smem.tail(stage, number % WARP), number, smem.column(stage, tile, e), first, irregular, a, b);
    }
#endif
    // Decodes and multiplies one k-block. `pending` is its first fragment and becomes the next
    // k-block's, unless this is the last. `is_reused` says that the previous stage's x will be
    // refilled. `PARITY` is 1 if the previous k-block had an odd number of entries.
    template <u32 PARITY>
    BUDDY_FN void multiply(const KBlock<S>& k_block, PipelineState<S::STAGES>& state, u32& before, bool last, bool is_reused, PendingFragment& pending, Fragments& of,
                      float (&sums)[S::TOKENS / 2]) const {
        u32 entries = k_block.entries(scheduler), stage = state.stage;
        state.advance();
        BUDDY_UNROLL
        for (u32 i = 0; i < EACH; i++) {
            // With split-K, k-blocks are never partial.
            if (S::SPLIT_K == 1 && i > 0 && i >= entries) break;
            bool ends = i + 1 == EACH || (S::SPLIT_K == 1 && i + 1 >= entries);
            u32 e = first + i, (&a)[8] = of.upper[(PARITY + i) % 2], (&b)[8] = of.lower[(PARITY + i) % 2];
            if (!S::AHEAD) pending = fetch(stage, e);
            decode(pending, k_block, stage, e, a, b);
            issue_wgmmas<S>(sums, a, b, smem.x(stage, e), before != ~0u || i > 0);
            if (ends) {
                // All weights of this stage are in registers.
                __syncwarp();
                if (threadIdx.x % WARP == 0) smem.weights_empty(stage).arrive();
                if (!last) {
                    smem.full(state.stage).wait(state.phase);
                    if (S::AHEAD) pending = fetch(state.stage, first);
                }
            } else if (S::AHEAD) {
                pending = fetch(stage, e + 1);
            }
            // A partial k-block leaves the other fragment buffer to the next.
            if (ends && i + 1 < EACH) wgmma_wait_group<0>();
            else wgmma_wait_group<1>();
            // The previous stage's wgmmas are complete.
            if (i == 0 && before != ~0u) smem.release_x(before, is_reused);
        }
        before = stage;
    }
};

template <class S>
BUDDY_FN void consume(const Linear& linear, const TileScheduler<S>& scheduler, const SharedStorage<S>& smem) {
    Loader loader(linear.weights);
    // With split-K, the first warpgroup holds the reduced tile.
    u32 warp = threadIdx.x / WARP, group = S::SPLIT_K > 1 ? __shfl_sync(ALL, warp / 4, 0) : 0;
    Consumer<S> consumer = {scheduler, smem, loader, S::SPLIT_K > 1 ? warp % 4 : warp, group * Consumer<S>::EACH};
    PipelineState<S::STAGES> state;
    u32 begin = scheduler.begin(), end = scheduler.end();
    KBlock<S> k_block(scheduler, begin);
#pragma unroll 1
    while (begin < end) {
        u32 k_blocks = min(end - begin, scheduler.tile_k_blocks - k_block.k), first_k = k_block.k, before = ~0u;
        float sums[S::TOKENS / 2];
        Fragments of;
        smem.full(state.stage).wait(state.phase);
        PendingFragment pending;
        if (S::AHEAD) pending = consumer.fetch(state.stage, consumer.first);
#pragma unroll 1
        for (u32 i = 0; i < k_blocks; i++, k_block.k++) {
            consumer.template multiply<0>(k_block, state, before, i + 1 == k_blocks, begin + i - 1 + S::STAGES < end, pending, of, sums);
            if (Consumer<S>::EACH % 2 == 0) continue;
            if (++i == k_blocks) break;
            k_block.k++;
            consumer.template multiply<1>(k_block, state, before, i + 1 == k_blocks, begin + i - 1 + S::STAGES < end, pending, of, sums);
        }
        u32 announced_before = group == 0 ? FixUp<S>(linear, scheduler, k_block.tile).announce() : 0;
        wgmma_wait_group<0>();
        wait_for_registers(sums);
        smem.release_x(before, begin + k_blocks - 1 + S::STAGES < end);
        k_block.k = first_k;
        if (S::SPLIT_K > 1) Accumulators<S>{sums}.reduce_split_k(smem, group);
        if (group == 0) finish_tile(linear, scheduler, smem, k_block, begin, announced_before, Accumulators<S>{sums});
        begin += k_blocks, k_block.k = 0, k_block.advance_tile(scheduler);
    }
}

}  // namespace buddy
