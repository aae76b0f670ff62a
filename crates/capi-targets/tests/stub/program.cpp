// Allocates by a targets file on the stand-in driver, which has memory but runs no kernel.
#include "buddy_targets.h"
#include "buddy.hpp"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstring>
#include <vector>

extern "C" void stubCurrent(int on);

// Fails unless the call throws this error.
template <class Expected, class Call> static void refused(Call call) {
    try {
        call();
    } catch (const Expected &) {
        return;
    }
    assert(!"nothing was refused");
}

int main(int count, char **arguments) {
    assert(count == 3);
    stubCurrent(1);
    try {
        buddy::Targets missing("none.toml");
        return 2;
    } catch (const buddy::Error &error) {
        assert(error.code() == BUDDY_ERROR_INVALID_VALUE && std::strstr(error.what(), "none.toml: No such file"));
    }
    try {
        buddy::Targets damaged(arguments[2]);
        return 3;
    } catch (const buddy::Error &error) {
        std::printf("%s\n", error.what());
    }
    buddy::Targets targets(arguments[1]);
    for (std::size_t i = 0; i < targets.size(); i++) {
        buddyTargetsRow row = targets[i];
        buddy::Allocation memory = targets.allocate(row.name);
        buddyStatistics found = memory.statistics();
        std::printf("%s %s %llu %llu %llu %llu %llu\n", row.name, row.codec, (unsigned long long)row.ranges,
                    (unsigned long long)row.device_bytes, (unsigned long long)found.device_bytes,
                    (unsigned long long)row.buddy_bytes, (unsigned long long)found.buddy_bytes);
        assert(memory.bytes() == row.bytes && found.bytes == row.bytes);
        try {
            targets.allocate(row.name, 1 << 20);
            assert(row.ranges == 1);
        } catch (const buddy::Error &error) {
            assert(row.ranges > 1 && std::strstr(error.what(), "profile a run of this size"));
        }
    }
    try {
        targets.allocate("nothing", 128);
        return 4;
    } catch (const buddy::Error &error) {
        assert(std::strstr(error.what(), "no allocation \"nothing\"; they have "));
    }
    {
        buddy::vector<double> field(1000, BUDDY_TARGET_2X, "planes64");
        std::size_t values = 0, tiles = 0;
        for (auto tile : field.tiles(300)) {
            assert(tile.first() == values && (tile.size() % 16 == 0 || values + tile.size() == 1000));
            values += tile.size(), tiles++;
        }
        assert(values == 1000 && tiles == 4); // of 288 values, whole entries
        for (auto tile : field.tiles(1)) assert(tile.size() <= 16);
        auto whole = field.tiles(300);
        assert(std::distance(whole.begin(), whole.end()) == 4);
        auto last = std::find_if(whole.begin(), whole.end(), [](auto tile) { return tile.size() < 288; });
        assert((*last).first() == 864 && (*last++).size() == 136 && last == whole.end());
#if __cplusplus >= 202002L
        static_assert(std::forward_iterator<decltype(last)>);
#endif
        double device[999]; // never read: each call is refused before
        buddy::span<double> few(device, 999), part = few.subspan(900, 99);
        assert(part.size_bytes() == 99 * sizeof(double) && part.data() == device + 900 && !part.empty());
        refused<std::out_of_range>([&] { few.subspan(900, 100); });
        refused<std::length_error>([&] { field.copy_to(few); });
        refused<std::length_error>([&] { field.assign(buddy::span<const double>(few)); });
        refused<std::length_error>([&] { (*whole.begin()).read(buddy::span<double>(device, 287)); });
        refused<std::length_error>([&] { (*whole.begin()).write(buddy::span<double>(device, 287)); });
        std::vector<unsigned char> view(4096);
        assert(buddyView(field.allocation().handle(), view.data(), 1) == BUDDY_ERROR_INVALID_VALUE);
        std::printf("%s\n", buddyGetLastErrorMessage());
        buddy::vector<double> other = std::move(field);
        assert(field.allocation().handle() == 0 && other.size() == 1000);
    }
    {
        const std::uint64_t starts[] = {0, 2, 3};
        const std::uint32_t indices[] = {0, 2, 1};
        const double values[] = {1.5, 2, -4}, x[] = {1, 10, 2, 20, 3, 30};
        double y[4];
        buddy::Csr made(2, 3, starts, indices, values), matrix = std::move(made);
        assert(made.handle() == 0 && matrix.rows() == 2 && matrix.columns() == 3);
        assert(matrix.bytes() > 0 && matrix.plain_bytes() == 3 * 12 + 3 * 4);
        matrix.multiply_host(x, y, 2);
        assert(y[0] == 7.5 && y[1] == 75 && y[2] == -8 && y[3] == -80);
        refused<buddy::Error>([&] { matrix.multiply_host(x, y, 9); });
        refused<std::invalid_argument>([&] { float z[3] = {}; matrix.multiply_host(z, z); });
        refused<buddy::Error>([&] { buddy::Csr(2, 2, starts, indices, values); });
    }
    return 0;
}
