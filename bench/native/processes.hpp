// What the baselines of this folder share: memory of two processes, processes that stay on a CPU, waits that end.
#pragma once

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <new>
#include <vector>

namespace bench {

[[noreturn]] inline void wrong(const char* what) {
    std::fprintf(stderr, "%s\n", what);
    std::_Exit(1);
}

inline int64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// The value that `share` of them do not exceed.
inline double centile(std::vector<double> values, double share) {
    auto at = values.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), at, values.end());
    return *at;
}

// Memory that a child shares with us.
inline void* shared_bytes(size_t bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED) wrong("no shared memory");
    return at;
}
template <typename T>
T* shared() {
    return new (shared_bytes(sizeof(T))) T{};
}

inline void pin(int cpu) {
    if (cpu < 0) return;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(static_cast<size_t>(cpu), &only);
    if (sched_setaffinity(0, sizeof only, &only) != 0) wrong("this CPU cannot be used");
}

// The CPUs of the two processes, or -1 where the kernel may choose.
inline int parent_cpu = -1, child_cpu = -1;

inline pid_t fork_pinned() {
    pid_t child = fork();
    pin(child == 0 ? child_cpu : parent_cpu);
    return child;
}

struct alignas(128) Line {
    std::atomic<uint64_t> word{0};
};

// Waits for a word to become something, at most some seconds: the other side may be dead.
template <typename Condition>
void spin_until(Condition done) {
    int64_t deadline = 0;
    for (uint64_t turns = 1; !done(); ++turns) {
        if (turns % (1 << 16) != 0) continue;
        sched_yield();  // perhaps the other side needs this CPU
        int64_t now = now_ns();
        if (deadline == 0) deadline = now + 20'000'000'000;
        if (now > deadline) wrong("the other side does not answer");
    }
}

}  // namespace bench
