// What word.hpp offers, with an explorer behind it: in this build every access of the core to shared memory is a
// step of an actor, and engine.cpp decides who steps next, which store a load sees, and who dies.
//
// Included by ../word.hpp when RINGMAIN_EXPLORE is set; nothing of it is in a build that ships.
#pragma once

#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ringmain {

struct Bell;
enum class Woken;

namespace explore {

enum class Update { exchange, bit_or, add };

// Addresses are those of the words; memory.cpp keeps the history of each.
uint64_t load(const void* address, size_t bytes, std::memory_order order);
void store(void* address, size_t bytes, uint64_t value, std::memory_order order);
uint64_t update(void* address, size_t bytes, Update how, uint64_t operand, std::memory_order order);
bool compare_exchange(void* address, size_t bytes, uint64_t& expected, uint64_t desired,
                      std::memory_order order);
void fence(std::memory_order order);
void copy_in(std::byte* shared, const void* from, size_t size);
void copy_out(void* to, const std::byte* shared, size_t size);
void crash_point(const char* label);

}  // namespace explore

template <class T>
class Word {
    T initial_;  // the value before the first step; later values are in the explorer's history

  public:
    T load(std::memory_order order) const { return static_cast<T>(explore::load(this, sizeof(T), order)); }
    void store(T value, std::memory_order order) { explore::store(this, sizeof(T), value, order); }
    T exchange(T value, std::memory_order order) { return update(explore::Update::exchange, value, order); }
    T fetch_or(T bits, std::memory_order order) { return update(explore::Update::bit_or, bits, order); }
    T fetch_add(T delta, std::memory_order order) { return update(explore::Update::add, delta, order); }
    bool compare_exchange(T& expected, T desired, std::memory_order order) {
        uint64_t seen = expected;
        bool done = explore::compare_exchange(this, sizeof(T), seen, desired, order);
        expected = static_cast<T>(seen);
        return done;
    }
    const uint32_t* futex() const { return reinterpret_cast<const uint32_t*>(this); }

  private:
    T update(explore::Update how, T operand, std::memory_order order) {
        return static_cast<T>(explore::update(this, sizeof(T), how, operand, order));
    }
};

inline void fence(std::memory_order order) { explore::fence(order); }
inline void copy_in(std::byte* shared, const void* from, size_t size) {
    explore::copy_in(shared, from, size);
}
inline void copy_out(void* to, const std::byte* shared, size_t size) { explore::copy_out(to, shared, size); }

// The compiler's reorderings are among those that the memory model allows the processor, so there is nothing to add.
inline void compiler_barrier() {}
inline void prefetch_to_write(const std::byte*) {}
inline void prefetch_to_read(const std::byte*) {}
inline void pause() {}

namespace process_barrier {
bool registered();
bool make();
void make_or_wait();
}  // namespace process_barrier

Woken sleep_on(Bell bell, int64_t timeout_ns);
Woken sleep_on_any(const Bell* bells, size_t count, int64_t timeout_ns, size_t* which = nullptr);
void wake(const uint32_t* word, int how_many = INT_MAX);

}  // namespace ringmain
