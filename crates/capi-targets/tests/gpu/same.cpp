// Allocates every row of a targets file, compresses the file of its name in FOLDER, reads it back and prints:
// name, different bytes, overflowing entries, device bytes of the memory and of the row.
#include <buddy.hpp>
#include <cuda_runtime.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

int main(int count, char **arguments) {
    if (count != 3) return std::printf("usage: %s TARGETS FOLDER\n", arguments[0]), 2;
    cudaFree(nullptr); // the runtime's context becomes current
    buddy::Targets targets(arguments[1]);
    for (std::size_t i = 0; i < targets.size(); i++) {
        buddyTargetsRow row = targets[i];
        std::ifstream file(std::string(arguments[2]) + "/" + row.name, std::ios::binary);
        std::vector<char> data((std::istreambuf_iterator<char>(file)), {}), back(data.size(), 1);
        buddy::Allocation memory = targets.allocate(row.name);
        if (data.size() != memory.bytes()) return std::printf("%s: %zu bytes\n", row.name, data.size()), 1;
        char *plain;
        if (cudaMalloc(&plain, data.size()) != cudaSuccess) return 1;
        cudaMemcpy(plain, data.data(), data.size(), cudaMemcpyHostToDevice);
        memory.write(0, plain, data.size());
        cudaMemset(plain, 0xee, data.size());
        memory.read_checked(0, plain, data.size());
        cudaMemcpy(back.data(), plain, data.size(), cudaMemcpyDeviceToHost);
        cudaFree(plain);
        std::size_t different = 0;
        for (std::size_t at = 0; at < data.size(); at++) different += data[at] != back[at];
        buddyStatistics found = memory.statistics();
        std::printf("%s %zu %llu %llu %llu\n", row.name, different, (unsigned long long)found.overflowing,
                    (unsigned long long)found.device_bytes, (unsigned long long)row.device_bytes);
    }
    return cudaGetLastError() != cudaSuccess;
}
