// Reads quarters of a bf16 entry like the lanes of a linear kernel, for device.rs.
#include <cstdio>

#include "../kernels/buddy_device.cuh"

using namespace buddy;

int main() {
    u32 head[2], stream[STREAM_WORDS];
    if (fread(head, 4, 2, stdin) != 2 || fread(stream, 4, STREAM_WORDS, stdin) != STREAM_WORDS) return 1;
    for (u32 quarter = 0; quarter < 4; quarter++) {
        u32 bytes[4], codes[2], rest[8], out[8];
        for (u32 i = 0; i < 4; i++) bytes[i] = stream[4 * quarter + i];
        for (u32 i = 0; i < 2; i++) codes[i] = stream[Bf16::CODES + 2 * quarter + i];
        for (u32 i = 0; i < 8; i++) rest[i] = stream[Bf16::CODES + i];
        if (head[0] == 1) {
            Bf16::read_window_quarter(bytes, codes, head[1], out);
        } else {
            Bf16::read_own_quarter(bytes, rest, quarter, out);
        }
        fwrite(out, 4, 8, stdout);
    }
    return 0;
}
