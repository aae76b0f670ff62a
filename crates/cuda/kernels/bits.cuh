// Words and bits, for a GPU compiler and for a plain C++ compiler alike. On a GPU every function
// here is one or two instructions; elsewhere it is the same arithmetic written out, so that a
// machine without a GPU can prove the codecs.
#pragma once

#ifdef __CUDACC__
#define BUDDY_FN __device__ __forceinline__
#define BUDDY_UNROLL _Pragma("unroll")
#define BUDDY_ROLLED _Pragma("unroll 1")
#else
#define BUDDY_FN inline
#define BUDDY_UNROLL
#define BUDDY_ROLLED
#endif

namespace buddy {

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

// Words of an entry, and of the longest stream that is stored as one.
constexpr u32 WORDS = BUDDY_ENTRY_BYTES / 4;
constexpr u32 STREAM_BITS = BUDDY_ENTRY_BYTES * 8 - BUDDY_SECTOR_BYTES * 8;
constexpr u32 STREAM_WORDS = STREAM_BITS / 32;

// What an allocation keeps for its codec. Codecs look at what is theirs.
struct Params {
    u32 window;  // bf16: the first of 16 exponents
    u32 reserved;
    const u32* learned;  // table, stride, scaled: the block of fields.cuh; bf16: null, or the window, for `settle` to fetch
};

// What a decoder says of a stream. The Rust side names the same numbers.
enum Status : u32 { OK = 0, TRUNCATED = 1, INVALID = 2, LAYOUT = 3, NIBBLE = 4, RANGE = 5 };

// The high word of (hi:lo) << (shift % 32).
BUDDY_FN u32 funnel_left(u32 lo, u32 hi, u32 shift) {
#ifdef __CUDA_ARCH__
    return __funnelshift_l(lo, hi, shift);
#else
    return (u32)(((((u64)hi << 32) | lo) << (shift & 31)) >> 32);
#endif
}

// The low word of (hi:lo) >> (shift % 32).
BUDDY_FN u32 funnel_right(u32 lo, u32 hi, u32 shift) {
#ifdef __CUDA_ARCH__
    return __funnelshift_r(lo, hi, shift);
#else
    return (u32)((((u64)hi << 32) | lo) >> (shift & 31));
#endif
}

// The low word of (hi:lo) >> shift, for shifts of 0 to 32.
BUDDY_FN u32 funnel_right_to(u32 lo, u32 hi, u32 shift) {
#ifdef __CUDA_ARCH__
    return __funnelshift_rc(lo, hi, shift);
#else
    return (u32)((((u64)hi << 32) | lo) >> shift);
#endif
}

// (word << (shift % 32)) + addend and a + b with b signed, by multiplication: it has a pipe of its
// own, where codecs have little to do.
BUDDY_FN u32 shift_add(u32 word, u32 shift, u32 addend) {
#ifdef __CUDA_ARCH__
    u32 out;
    asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(out) : "r"(word), "r"(__funnelshift_l(0, 1, shift)), "r"(addend));
    return out;
#else
    return (word << (shift & 31)) + addend;
#endif
}

BUDDY_FN u64 add_signed(u64 a, u32 b) {
#ifdef __CUDA_ARCH__
    u64 out;
    asm("mad.wide.s32 %0, %1, 1, %2;" : "=l"(out) : "r"(b), "l"(a));
    return out;
#else
    return a + (u64)(long long)(int)b;
#endif
}

BUDDY_FN u32 ones_in(u32 word) {
#ifdef __CUDA_ARCH__
    return __popc(word);
#else
    return (u32)__builtin_popcount(word);
#endif
}

// 32 for zero.
BUDDY_FN u32 leading_zeros(u32 word) {
#ifdef __CUDA_ARCH__
    return __clz(word);
#else
    return word == 0 ? 32 : (u32)__builtin_clz(word);
#endif
}

// 32 for zero.
BUDDY_FN u32 trailing_zeros(u32 word) {
#ifdef __CUDA_ARCH__
    return __clz(__brev(word));
#else
    return word == 0 ? 32 : (u32)__builtin_ctz(word);
#endif
}

// The larger and the smaller halves of two words.
BUDDY_FN u32 max_halves(u32 a, u32 b) {
#ifdef __CUDA_ARCH__
    return __vmaxu2(a, b);
#else
    u32 low = (a & 0xffff) > (b & 0xffff) ? a & 0xffff : b & 0xffff;
    return (a >> 16 > b >> 16 ? a >> 16 : b >> 16) << 16 | low;
#endif
}

BUDDY_FN u32 min_halves(u32 a, u32 b) {
#ifdef __CUDA_ARCH__
    return __vminu2(a, b);
#else
    return ~max_halves(~a, ~b);
#endif
}

// One, or zero for zero; by the instruction for the smaller of two, where the compiler would make
// two of a comparison.
BUDDY_FN u32 one_unless_zero(u32 word) {
#ifdef __CUDA_ARCH__
    u32 out;
    asm("min.u32 %0, %1, 1;" : "=r"(out) : "r"(word));
    return out;
#else
    return word != 0;
#endif
}

// Four bytes chosen by the nibbles of `selector` from (b:a), as the GPU's byte permute does.
BUDDY_FN u32 permute_bytes(u32 a, u32 b, u32 selector) {
#ifdef __CUDA_ARCH__
    return __byte_perm(a, b, selector);
#else
    u64 both = ((u64)b << 32) | a;
    u32 out = 0;
    for (u32 i = 0; i < 4; i++) {
        out |= (u32)(both >> (8 * ((selector >> (4 * i)) & 7)) & 0xff) << (8 * i);
    }
    return out;
#endif
}

// Byte `i` of a word.
template <u32 i>
BUDDY_FN u32 byte_of(u32 word) {
    return permute_bytes(word, 0, 0x4440 + i);
}

// A stream's first byte is the most significant one of its first word.
BUDDY_FN u32 big_endian(u32 word) { return permute_bytes(word, 0, 0x0123); }

// The OR over the threads of a warp that are here, which lets them skip what none of their entries
// needs; on a CPU a warp is one entry.
BUDDY_FN u32 warp_or(u32 word) {
#ifdef __CUDA_ARCH__
    return __reduce_or_sync(__activemask(), word);
#else
    return word;
#endif
}

BUDDY_FN void fill_zeros(u32 (&words)[32]) {
    BUDDY_UNROLL
    for (u32 i = 0; i < 32; i++) words[i] = 0;
}

BUDDY_FN bool all_zero(const u32 (&words)[32]) {
    u32 any = 0;
    BUDDY_UNROLL
    for (u32 i = 0; i < 32; i++) any |= words[i];
    return any == 0;
}

// Makes the compiler forget what it computed from these words. A second pass over them is then
// computed again, which is cheaper than the registers that would keep the first one's results.
BUDDY_FN void forget(u32 (&words)[32]) {
#ifdef __CUDA_ARCH__
    BUDDY_UNROLL
    for (u32 i = 0; i < 32; i++) asm volatile("" : "+r"(words[i]));
#else
    (void)words;
#endif
}

// A word that the compiler takes as it is, and does not compute anew in each of its uses.
BUDDY_FN u32 keep(u32 word) {
#ifdef __CUDA_ARCH__
    asm("" : "+r"(word));
#endif
    return word;
}

BUDDY_FN u64 keep(u64 word) {
#ifdef __CUDA_ARCH__
    asm("" : "+l"(word));
#endif
    return word;
}

// The bits of `a` where `mask` has ones, of `b` where it has zeros. Spelled out for the GPU: its
// compiler makes two instructions of the C++ form when the mask is a constant.
BUDDY_FN u32 choose_bits(u32 mask, u32 a, u32 b) {
#ifdef __CUDA_ARCH__
    u32 out;
    asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(out) : "r"(mask), "r"(a), "r"(b));
    return out;
#else
    return (a & mask) | (b & ~mask);
#endif
}

// One step of a transposition: of each block of 2 * SHIFT bits, the high half of `a` changes places
// with the low half of `b`.
template <u32 SHIFT>
BUDDY_FN void exchange(u32& a, u32& b) {
    u32 x = a, y = b;
    if (SHIFT == 16) {
        a = permute_bytes(x, y, 0x5410);
        b = permute_bytes(x, y, 0x7632);
    } else if (SHIFT == 8) {
        a = permute_bytes(x, y, 0x6240);
        b = permute_bytes(x, y, 0x7351);
    } else {
        const u32 mask = SHIFT == 4 ? 0x0f0f0f0fu : SHIFT == 2 ? 0x33333333u : 0x55555555u;
        a = choose_bits(mask, x, y << SHIFT);
        b = choose_bits(mask, x >> SHIFT, y);
    }
}

template <u32 SHIFT, u32 N>
BUDDY_FN void exchange_all(u32 (&m)[N]) {
    BUDDY_UNROLL
    for (u32 i = 0; i < N; i++) {
        if ((i & SHIFT) == 0) exchange<SHIFT>(m[i], m[i + SHIFT]);
    }
}

// Bit j of word i becomes bit i of word j.
BUDDY_FN void transpose(u32 (&m)[32]) {
    exchange_all<16>(m);
    exchange_all<8>(m);
    exchange_all<4>(m);
    exchange_all<2>(m);
    exchange_all<1>(m);
}

// The same within the low and within the high 16 columns of 16 words: word j holds column j below
// column 16 + j.
BUDDY_FN void transpose_halves(u32 (&m)[16]) {
    exchange_all<8>(m);
    exchange_all<4>(m);
    exchange_all<2>(m);
    exchange_all<1>(m);
}

// Adds three one-bit numbers in each of 32 columns: `a` becomes the sum, the carry is returned.
BUDDY_FN u32 add_columns(u32& a, u32 b, u32 c) {
    u32 carry = (a & b) | (a & c) | (b & c);
    a = a ^ b ^ c;
    return carry;
}

}  // namespace buddy
