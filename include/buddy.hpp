// Compressed GPU memory for C++17: a thin layer over buddy.h and buddy_targets.h. Link with -lbuddy, or
// with -lbuddy_targets for buddy::Targets.
//
//     buddy::vector<double> field(n, BUDDY_TARGET_2X, "planes64");
//     field.assign(device_pointer, stream);
//     for (auto tile : field.tiles(1 << 20)) {
//         tile.read(scratch, stream);
//         kernel<<<grid, block, 0, stream>>>(scratch, tile.size());
//         tile.write(scratch, stream);
//     }
//
// Failures throw buddy::Error, which holds the code of buddy.h and its message. Destructors free memory and
// never throw. A program that wants codes calls the C functions with handle().
#ifndef BUDDY_HPP
#define BUDDY_HPP

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "buddy_targets.h"

namespace buddy {

// A failed call.
class Error : public std::runtime_error {
public:
    Error(buddyError code, const char *call)
        : std::runtime_error(std::string(call) + ": " + buddyGetLastErrorMessage()), code_(code) {}
    buddyError code() const noexcept { return code_; }

private:
    buddyError code_;
};

inline void check(buddyError code, const char *call) {
    if (code != BUDDY_SUCCESS) throw Error(code, call);
}

// The number of a device pointer.
inline buddyDevicePtr address(const void *pointer) noexcept {
    return static_cast<buddyDevicePtr>(reinterpret_cast<std::uintptr_t>(pointer));
}

// Compressed memory that it frees. Offsets are multiples of 128; lengths too, or they reach the end.
class Allocation {
public:
    Allocation() = default;
    Allocation(std::size_t bytes, buddyTarget target, const char *codec) : bytes_(bytes) {
        check(buddyMalloc(&handle_, bytes, target, codec), "buddyMalloc");
    }
    // Takes over a handle.
    Allocation(buddyHandle handle, std::size_t bytes) noexcept : handle_(handle), bytes_(bytes) {}
    Allocation(Allocation &&other) noexcept
        : handle_(std::exchange(other.handle_, 0)), bytes_(std::exchange(other.bytes_, 0)) {}
    Allocation &operator=(Allocation &&other) noexcept {
        std::swap(handle_, other.handle_), std::swap(bytes_, other.bytes_);
        return *this;
    }
    Allocation(const Allocation &) = delete;
    Allocation &operator=(const Allocation &) = delete;
    ~Allocation() {
        if (handle_) buddyFree(handle_);
    }

    buddyHandle handle() const noexcept { return handle_; }
    std::size_t bytes() const noexcept { return bytes_; }

    void write(std::size_t offset, const void *from, std::size_t bytes, buddyStream stream = nullptr) {
        check(buddyWrite(handle_, offset, address(from), bytes, stream), "buddyWrite");
    }
    void read(std::size_t offset, void *to, std::size_t bytes, buddyStream stream = nullptr) const {
        check(buddyRead(handle_, offset, address(to), bytes, stream), "buddyRead");
    }
    // Waits for the stream; an entry that does not decode throws.
    void read_checked(std::size_t offset, void *to, std::size_t bytes, buddyStream stream = nullptr) const {
        check(buddyReadChecked(handle_, offset, address(to), bytes, stream), "buddyReadChecked");
    }
    // Waits for the stream.
    void retarget(buddyTarget target, buddyStream stream = nullptr) {
        check(buddyRetarget(handle_, target, stream), "buddyRetarget");
    }
    // Waits for the stream.
    buddyStatistics statistics(buddyStream stream = nullptr) const {
        buddyStatistics found;
        check(buddyStats(handle_, &found, stream), "buddyStats");
        return found;
    }
    // The argument of kernels that include buddy_device.cuh: view<buddy::BuddyView>().
    template <class View> View view() const {
        View found;
        check(buddyView(handle_, &found, sizeof found), "buddyView");
        return found;
    }

private:
    buddyHandle handle_ = 0;
    std::size_t bytes_ = 0;
};

// Values of a type whose size divides 128, in compressed memory.
template <class T> class vector {
    static_assert(128 % sizeof(T) == 0, "an entry of 128 bytes must hold whole values");

public:
    // A run of values: it begins at an entry and ends at one, or at the end of the vector.
    class Tile {
    public:
        std::size_t first() const noexcept { return first_; }
        std::size_t size() const noexcept { return size_; }
        void read(T *to, buddyStream stream = nullptr) const {
            of_->memory_.read(first_ * sizeof(T), to, size_ * sizeof(T), stream);
        }
        void write(const T *from, buddyStream stream = nullptr) const {
            of_->memory_.write(first_ * sizeof(T), from, size_ * sizeof(T), stream);
        }

    private:
        friend class vector;
        Tile(vector *of, std::size_t first, std::size_t size) : of_(of), first_(first), size_(size) {}
        vector *of_;
        std::size_t first_, size_;
    };

    // The tiles of a vector, in order, for a range-based for.
    class Tiles {
    public:
        class iterator {
        public:
            Tile operator*() const {
                std::size_t left = of_->size() - first_;
                return Tile(of_, first_, left < values_ ? left : values_);
            }
            iterator &operator++() {
                first_ = of_->size() - first_ < values_ ? of_->size() : first_ + values_;
                return *this;
            }
            bool operator!=(const iterator &other) const { return first_ != other.first_; }

        private:
            friend class Tiles;
            iterator(vector *of, std::size_t first, std::size_t values)
                : of_(of), first_(first), values_(values) {}
            vector *of_;
            std::size_t first_, values_;
        };
        iterator begin() const { return iterator(of_, 0, values_); }
        iterator end() const { return iterator(of_, of_->size(), values_); }

    private:
        friend class vector;
        Tiles(vector *of, std::size_t values) : of_(of), values_(values) {}
        vector *of_;
        std::size_t values_;
    };

    vector() = default;
    vector(std::size_t size, buddyTarget target, const char *codec)
        : memory_(size * sizeof(T), target, codec), size_(size) {}
    // Takes over an allocation of whole values, such as Targets::allocate returns.
    explicit vector(Allocation memory) : memory_(std::move(memory)), size_(memory_.bytes() / sizeof(T)) {}

    std::size_t size() const noexcept { return size_; }
    const Allocation &allocation() const noexcept { return memory_; }
    Allocation &allocation() noexcept { return memory_; }

    // Compresses size() values of device memory.
    void assign(const T *from, buddyStream stream = nullptr) {
        memory_.write(0, from, size_ * sizeof(T), stream);
    }
    // Decompresses all values into device memory.
    void copy_to(T *to, buddyStream stream = nullptr) const {
        memory_.read(0, to, size_ * sizeof(T), stream);
    }
    // Decompresses `size` values from `first` on into device memory, and returns it. `first` begins an entry;
    // so does the value behind the last one, unless it is the end.
    T *read(std::size_t first, T *to, std::size_t size, buddyStream stream = nullptr) const {
        memory_.read(first * sizeof(T), to, size * sizeof(T), stream);
        return to;
    }
    // Compresses `size` values of device memory, with the same bounds.
    void write(std::size_t first, const T *from, std::size_t size, buddyStream stream = nullptr) {
        memory_.write(first * sizeof(T), from, size * sizeof(T), stream);
    }
    // Tiles of at most `values` values, rounded down to whole entries, at least one.
    Tiles tiles(std::size_t values) {
        std::size_t entry = 128 / sizeof(T);
        return Tiles(this, values < entry ? entry : values / entry * entry);
    }

private:
    Allocation memory_;
    std::size_t size_ = 0;
};

// A targets file of `buddy profile`.
class Targets {
public:
    explicit Targets(const char *path) { check(buddyTargetsOpen(path, &targets_), "buddyTargetsOpen"); }
    Targets(Targets &&other) noexcept : targets_(std::exchange(other.targets_, nullptr)) {}
    Targets &operator=(Targets &&other) noexcept {
        std::swap(targets_, other.targets_);
        return *this;
    }
    Targets(const Targets &) = delete;
    Targets &operator=(const Targets &) = delete;
    ~Targets() { buddyTargetsClose(targets_); }

    std::size_t size() const noexcept { return buddyTargetsCount(targets_); }
    buddyTargetsRow operator[](std::size_t index) const {
        buddyTargetsRow row;
        check(buddyTargetsGet(targets_, index, &row), "buddyTargetsGet");
        return row;
    }
    // An allocation by name, of the file's length or of `bytes` bytes.
    Allocation allocate(const char *name, std::size_t bytes = 0) {
        buddyHandle handle;
        if (bytes == 0) {
            for (std::size_t i = 0; i < size(); i++) {
                if ((*this)[i].name == std::string(name)) bytes = static_cast<std::size_t>((*this)[i].bytes);
            }
        }
        check(buddyTargetsMalloc(targets_, name, bytes, &handle), "buddyTargetsMalloc");
        return Allocation(handle, bytes);
    }
    // The changes of a phase.
    void change(std::uint64_t snapshot, buddyStream stream = nullptr) {
        check(buddyTargetsChange(targets_, snapshot, stream), "buddyTargetsChange");
    }

private:
    buddyTargets *targets_ = nullptr;
};

} // namespace buddy

#endif
