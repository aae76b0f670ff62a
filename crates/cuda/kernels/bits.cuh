// Words and bits, for CUDA and plain C++ compilers. On a GPU every function is one or two
// instructions; elsewhere it is the same arithmetic in plain C++, so that codecs are tested without
// a GPU.
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

// Words of an entry, and of the longest stream that is stored.
constexpr u32 WORDS = BUDDY_ENTRY_BYTES / 4;
constexpr u32 STREAM_BITS = BUDDY_ENTRY_BYTES * 8 - BUDDY_SECTOR_BYTES * 8;
constexpr u32 STREAM_WORDS = STREAM_BITS / 32;

// An allocation's parameters for its codec. Each codec reads its own.
struct Params {
    u32 window;  // bf16: the first of 16 exponents
    u32 reserved;
    const u32* learned;  // table, stride, scaled: the block of fields.cuh; bf16: null, or the window, which `settle` fetches
};

// Status of a decoded stream. Rust has the same numbers.
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

// (word << (shift % 32)) + addend, and a + b with b signed, by multiplication: the multiplier is a
// pipe that codecs hardly use.
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

// Counts leading zeros; 32 for zero.
BUDDY_FN u32 leading_zeros(u32 word) {
#ifdef __CUDA_ARCH__
    return __clz(word);
#else
    return word == 0 ? 32 : (u32)__builtin_clz(word);
#endif
}

// Counts trailing zeros; 32 for zero.
BUDDY_FN u32 trailing_zeros(u32 word) {
#ifdef __CUDA_ARCH__
    return __clz(__brev(word));
#else
    return word == 0 ? 32 : (u32)__builtin_ctz(word);
#endif
}

// Returns the larger, and the smaller, of each pair of 16-bit halves.
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

// Returns 1, or 0 for zero. `min` is one instruction, where the compiler would make two of a
// comparison.
BUDDY_FN u32 one_unless_zero(u32 word) {
#ifdef __CUDA_ARCH__
    u32 out;
    asm("min.u32 %0, %1, 1;" : "=r"(out) : "r"(word));
    return out;
#else
    return word != 0;
#endif
}

// Selects four bytes of (b:a) by the nibbles of `selector`, like `__byte_perm`.
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

// Returns byte `i` of a word.
template <u32 i>
BUDDY_FN u32 byte_of(u32 word) {
    return permute_bytes(word, 0, 0x4440 + i);
}

// A stream's first byte is the most significant one of its first word.
BUDDY_FN u32 big_endian(u32 word) { return permute_bytes(word, 0, 0x0123); }

// ORs a word over the active threads of a warp, so that they skip work that none of their entries
// needs. On a CPU a warp is one entry.
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

// Makes the compiler recompute values of these words in a second pass, which is cheaper than the
// registers that would hold the first pass's results.
BUDDY_FN void forget(u32 (&words)[32]) {
#ifdef __CUDA_ARCH__
    BUDDY_UNROLL
    for (u32 i = 0; i < 32; i++) asm volatile("" : "+r"(words[i]));
#else
    (void)words;
#endif
}

// Makes the compiler hold a word in a register instead of recomputing it at each use.
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

// Selects bits: `a` where `mask` is one, `b` where it is zero. Written as inline PTX, since the
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

// One step of a transposition: within each block of 2 * SHIFT bits, swaps the high half of `a` with
// the low half of `b`.
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

// Transposes a 32 x 32 bit matrix: bit j of word i becomes bit i of word j.
BUDDY_FN void transpose(u32 (&m)[32]) {
    exchange_all<16>(m);
    exchange_all<8>(m);
    exchange_all<4>(m);
    exchange_all<2>(m);
    exchange_all<1>(m);
}

// Transposes the low and the high 16 columns of 16 words: word j holds column j in its low half and
// column 16 + j in its high half.
BUDDY_FN void transpose_halves(u32 (&m)[16]) {
    exchange_all<8>(m);
    exchange_all<4>(m);
    exchange_all<2>(m);
    exchange_all<1>(m);
}

// A full adder of one-bit numbers in each of 32 columns: `a` becomes the sum; returns the carry.
BUDDY_FN u32 add_columns(u32& a, u32 b, u32 c) {
    u32 carry = (a & b) | (a & c) | (b & c);
    a = a ^ b ^ c;
    return carry;
}

}  // namespace buddy
