// Allocates by a targets file on the stand-in driver, which has memory but runs no kernel.
#include "buddy_targets.h"
#include "buddy.hpp"

#include <cassert>
#include <cstdio>
#include <cstring>
#include <vector>

extern "C" void stubCurrent(int on);

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
        std::vector<unsigned char> view(4096);
        assert(buddyView(field.allocation().handle(), view.data(), 1) == BUDDY_ERROR_INVALID_VALUE);
        std::printf("%s\n", buddyGetLastErrorMessage());
        buddy::vector<double> other = std::move(field);
        assert(field.allocation().handle() == 0 && other.size() == 1000);
    }
    return 0;
}
