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
#include <iterator>
#include <stdexcept>
#include <string>
#include <type_traits>
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

// Values in device memory of the caller's, by their address and number.
template <class T> class span {
public:
    constexpr span() noexcept = default;
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    // A span of changeable values is one of constant values.
    template <class Other, class = std::enable_if_t<std::is_convertible_v<Other (*)[], T (*)[]>>>
    constexpr span(const span<Other> &other) noexcept : data_(other.data()), size_(other.size()) {}

    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
    constexpr bool empty() const noexcept { return size_ == 0; }
    // `size` values from `first` on.
    constexpr span subspan(std::size_t first, std::size_t size) const {
        if (first > size_ || size > size_ - first) throw std::out_of_range("buddy::span::subspan");
        return span(data_ + first, size);
    }

private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
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
        // The same with memory that must have room for the tile.
        void read(span<T> to, buddyStream stream = nullptr) const {
            fits(size_, to.size()), read(to.data(), stream);
        }
        void write(span<const T> from, buddyStream stream = nullptr) const {
            fits(size_, from.size()), write(from.data(), stream);
        }

    private:
        friend class vector;
        Tile(vector *of, std::size_t first, std::size_t size) : of_(of), first_(first), size_(size) {}
        vector *of_;
        std::size_t first_, size_;
    };

    // The tiles of a vector, in order. Any number of passes may be made over them. A tile is made when an
    // iterator is read, so C++17 calls the iterators input iterators; for C++20 they are forward iterators.
    class Tiles {
    public:
        class iterator {
        public:
            using iterator_category = std::input_iterator_tag;
            using iterator_concept = std::forward_iterator_tag;
            using value_type = Tile;
            using difference_type = std::ptrdiff_t;
            using pointer = void;
            using reference = Tile;

            iterator() = default;
            Tile operator*() const {
                std::size_t left = of_->size() - first_;
                return Tile(of_, first_, left < values_ ? left : values_);
            }
            iterator &operator++() {
                first_ = of_->size() - first_ < values_ ? of_->size() : first_ + values_;
                return *this;
            }
            iterator operator++(int) {
                iterator before = *this;
                ++*this;
                return before;
            }
            bool operator==(const iterator &other) const { return first_ == other.first_; }
            bool operator!=(const iterator &other) const { return first_ != other.first_; }

        private:
            friend class Tiles;
            iterator(vector *of, std::size_t first, std::size_t values)
                : of_(of), first_(first), values_(values) {}
            vector *of_ = nullptr;
            std::size_t first_ = 0, values_ = 0;
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
    // The same with memory that must have room for size() values.
    void assign(span<const T> from, buddyStream stream = nullptr) {
        fits(size_, from.size()), assign(from.data(), stream);
    }
    void copy_to(span<T> to, buddyStream stream = nullptr) const { fits(size_, to.size()), copy_to(to.data(), stream); }
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
    static void fits(std::size_t values, std::size_t room) {
        if (values > room) throw std::length_error("buddy::vector: more values than room for them");
    }

    Allocation memory_;
    std::size_t size_ = 0;
};

// A packed sparse matrix of float or double values in compressed rows, which it frees. Columns of x and y are
// interleaved: column j of row i is element i * columns + j.
class Csr {
public:
    Csr() = default;
    // Packs arrays of host memory, which may be freed afterwards: `starts` has rows + 1 elements.
    template <class T>
    Csr(std::uint32_t rows, std::uint32_t columns, const std::uint64_t *starts, const std::uint32_t *indices,
        const T *values)
        : rows_(rows), columns_(columns), value_bytes_(sizeof(T)) {
        static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>, "values are float or double");
        buddyCsrArrays arrays = {rows, columns, starts, indices, values, sizeof(T), 0};
        check(buddyCsrCreate(&handle_, &arrays), "buddyCsrCreate");
    }
    Csr(Csr &&other) noexcept
        : handle_(std::exchange(other.handle_, 0)), rows_(other.rows_), columns_(other.columns_),
          value_bytes_(other.value_bytes_) {}
    Csr &operator=(Csr &&other) noexcept {
        std::swap(handle_, other.handle_), std::swap(rows_, other.rows_), std::swap(columns_, other.columns_);
        std::swap(value_bytes_, other.value_bytes_);
        return *this;
    }
    Csr(const Csr &) = delete;
    Csr &operator=(const Csr &) = delete;
    ~Csr() {
        if (handle_) buddyCsrDestroy(handle_);
    }

    buddyHandle handle() const noexcept { return handle_; }
    std::uint32_t rows() const noexcept { return rows_; }
    std::uint32_t columns() const noexcept { return columns_; }
    // The packed bytes, and those of the plain matrix with 32-bit columns.
    std::uint64_t bytes() const { return sizes().first; }
    std::uint64_t plain_bytes() const { return sizes().second; }

    // Enqueues y = A x on device memory, for 1 to 8 columns.
    template <class T> void multiply(const T *x, T *y, std::size_t columns = 1, buddyStream stream = nullptr) const {
        same<T>();
        check(buddyCsrMultiply(handle_, address(x), address(y), columns, stream), "buddyCsrMultiply");
    }
    // Computes y = A x on host memory, with all cores; the bits are those of multiply().
    template <class T> void multiply_host(const T *x, T *y, std::size_t columns = 1) const {
        same<T>();
        check(buddyCsrMultiplyHost(handle_, x, y, columns), "buddyCsrMultiplyHost");
    }

private:
    template <class T> void same() const {
        static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>, "values are float or double");
        if (sizeof(T) != value_bytes_) throw std::invalid_argument("buddy::Csr: x and y have the type of the values");
    }
    std::pair<std::uint64_t, std::uint64_t> sizes() const {
        std::pair<std::uint64_t, std::uint64_t> found;
        check(buddyCsrBytes(handle_, &found.first, &found.second), "buddyCsrBytes");
        return found;
    }

    buddyHandle handle_ = 0;
    std::uint32_t rows_ = 0, columns_ = 0;
    std::size_t value_bytes_ = 0;
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
