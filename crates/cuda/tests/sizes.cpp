// Sizes of many spans with several codecs in one pass, by the emulated kernel: data, spans,
// requests and codec parameters from stdin; sums and classes to stdout.
#include "row.h"

#include "../kernels/survey.cu"

template <class T>
static std::vector<T> take(u64 count) {
    std::vector<T> all(count);
    if (count && fread(all.data(), sizeof(T), count, stdin) != count) _Exit(3);
    return all;
}

struct alignas(128) Line { u8 bytes[128]; };

int main() {
    struct { u64 lines, spans, rows, tiles, classes, learned, blocks; } how = take<decltype(how)>(1)[0];
    std::vector<Line> data = take<Line>(how.lines);
    std::vector<u64> numbers = take<u64>(4 * how.spans), wanted = take<u64>(3 * how.rows);
    // Each block of parameters is aligned to 16 bytes.
    std::vector<Quad> learned = take<Quad>(how.learned);
    std::vector<u8> classes(how.classes, 9);
    std::vector<Span> spans(how.spans);
    std::vector<CodecRequest> asked(how.rows);
    for (u64 i = 0; i < how.spans; i++) {
        const u64* number = &numbers[4 * i];
        spans[i] = {data[0].bytes + number[0], number[1], number[2], number[3]};
    }
    for (u64 i = 0; i < how.rows; i++) {
        u8* to = wanted[3 * i] == ~0ull ? nullptr : classes.data() + wanted[3 * i];
        asked[i] = {to, wanted[3 * i + 1], learned[0].words + 4 * wanted[3 * i + 2]};
    }
    std::vector<u64> sums(how.spans * Survey<BUDDY_CODECS>::COUNT * SUMS);
    emu::launch(buddy_survey, dim3((u32)how.blocks), WARPS * WARP, (const Span*)spans.data(), (u32)how.spans, how.tiles,
                (const CodecRequest*)asked.data(), sums.data());
    fwrite(sums.data(), 8, sums.size(), stdout), fwrite(classes.data(), 1, classes.size(), stdout);
}
