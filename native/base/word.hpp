// The only ways in which the core touches memory that another process may touch at the same time.
//
// `Word<T>` is an atomic word in shared memory; `copy_in` and `copy_out` move message bytes, which in a
// lapping contract may be rewritten while they are read (the reader checks afterwards and discards).
// Everything goes through here, so that the exploration build (RINGMAIN_EXPLORE) can put a scheduler behind
// each access and run the shipped code through every interleaving.
//
// Why not plain memcpy everywhere? Copying bytes that may be overwritten is a data race in C++. What makes it
// sound is that the bytes are moved by instructions the compiler cannot split or repeat, followed by an
// acquire fence and a second look at `claim`. Under TSan, and with RINGMAIN_STRICT, the copies are loops over
// relaxed atomic words, which is in effect what the release build's memcpy compiles to.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/crash.hpp"

#if defined(RINGMAIN_EXPLORE)
#include "explore/word.hpp"
#else

namespace ringmain {

static_assert(std::endian::native == std::endian::little, "futexes use the low half of 64-bit words");

template <class T>
class Word {
    static_assert(std::atomic<T>::is_always_lock_free, "a lock hidden in the process would not be shared");
    std::atomic<T> value_;

  public:
    T load(std::memory_order order) const { return value_.load(order); }
    void store(T value, std::memory_order order) { value_.store(value, order); }
    T exchange(T value, std::memory_order order) { return value_.exchange(value, order); }
    T fetch_or(T bits, std::memory_order order) { return value_.fetch_or(bits, order); }
    T fetch_add(T delta, std::memory_order order) { return value_.fetch_add(delta, order); }
    bool compare_exchange(T& expected, T desired, std::memory_order order) {
        return value_.compare_exchange_strong(expected, desired, order, std::memory_order_relaxed);
    }
    // The 32 bits the kernel compares in a futex call: for a 64-bit word its low half.
    const uint32_t* futex() const { return reinterpret_cast<const uint32_t*>(&value_); }
};

inline void fence(std::memory_order order) { std::atomic_thread_fence(order); }

#if defined(__SANITIZE_THREAD__) || defined(RINGMAIN_STRICT)

template <class Step>
inline void by_words(size_t size, Step step) {
    size_t done = 0;
    for (; done + 8 <= size; done += 8) step(done, size_t{8});
    for (; done < size; ++done) step(done, size_t{1});
}

inline void copy_in(std::byte* shared, const void* from, size_t size) {
    auto* source = static_cast<const std::byte*>(from);
    by_words(size, [&](size_t at, size_t width) {
        if (width == 8) {
            uint64_t word;
            std::memcpy(&word, source + at, 8);
            if ((reinterpret_cast<uintptr_t>(shared + at) & 7) == 0) {
                __atomic_store_n(reinterpret_cast<uint64_t*>(shared + at), word, __ATOMIC_RELAXED);
                return;
            }
        }
        for (size_t i = at; i < at + width; ++i)
            __atomic_store_n(reinterpret_cast<uint8_t*>(shared + i), static_cast<uint8_t>(source[i]),
                             __ATOMIC_RELAXED);
    });
}

inline void copy_out(void* to, const std::byte* shared, size_t size) {
    auto* target = static_cast<std::byte*>(to);
    by_words(size, [&](size_t at, size_t width) {
        if (width == 8 && (reinterpret_cast<uintptr_t>(shared + at) & 7) == 0) {
            uint64_t word = __atomic_load_n(reinterpret_cast<const uint64_t*>(shared + at), __ATOMIC_RELAXED);
            std::memcpy(target + at, &word, 8);
            return;
        }
        for (size_t i = at; i < at + width; ++i)
            target[i] = static_cast<std::byte>(
                __atomic_load_n(reinterpret_cast<const uint8_t*>(shared + i), __ATOMIC_RELAXED));
    });
}

#else

// Small messages in place, two overlapping halves at a time: a call costs as much as the copy. memcpy must not be given a
// null pointer, even with a size of 0.
template <size_t half>
inline void copy_halves(std::byte* to, const char* from, size_t size) {
    std::byte first[half], second[half];
    std::memcpy(first, from, half);
    std::memcpy(second, from + size - half, half);
    std::memcpy(to, first, half);
    std::memcpy(to + size - half, second, half);
}
[[gnu::always_inline]] inline void copy_in(std::byte* shared, const void* from, size_t size) {
    auto* bytes = static_cast<const char*>(from);
    if (size - 16 <= 16) [[likely]]
        copy_halves<16>(shared, bytes, size);
    else if (size != 0)
        std::memcpy(shared, from, size);
}
inline void copy_out(void* to, const std::byte* shared, size_t size) {
    if (size != 0) std::memcpy(to, shared, size);
}

#endif

// Keeps the compiler (not the processor) from moving memory accesses across. See Writer::begin.
inline void compiler_barrier() { std::atomic_signal_fence(std::memory_order_seq_cst); }

// Brings a line here that is about to be written, or read. A processor without it does nothing.
inline void prefetch_to_write(const std::byte* at) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*at));
#else
    __builtin_prefetch(at, 1);
#endif
}
inline void prefetch_to_read(const std::byte* at) { __builtin_prefetch(at, 0); }

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    asm volatile("yield");
#endif
}

}  // namespace ringmain

#endif
