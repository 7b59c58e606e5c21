// The process-wide barrier: who seldom waits pays, so that those who send and receive do not. Owns this invariant: of a
// store and a load in one process, and a store and a load in another, at least one of the two loads sees the other's store.
//
// The frequent side writes, keeps the compiler from reordering (light_barrier), and reads. The rare side writes, makes every
// processor that runs a registered process pass a full barrier (`membarrier`), and reads. A process that cannot register
// (an old kernel, a filter of system calls) pays for a fence of its own on the frequent side. So each side decides alone.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "base/word.hpp"

namespace ringmain {

#if !defined(RINGMAIN_EXPLORE)

namespace process_barrier {

inline constexpr int kGlobalExpedited = 2, kRegisterGlobalExpedited = 4;  // MEMBARRIER_CMD_...

// Asked of the kernel once for the process; its forked children stay registered, since they copy the address space.
inline bool registered() {
#if defined(__SANITIZE_THREAD__)
    return false;  // TSan knows fences, and no barriers that the kernel makes
#else
    static const bool done = syscall(SYS_membarrier, kRegisterGlobalExpedited, 0, 0) == 0;
    return done;
#endif
}

// False: this process cannot make one. It passes a full barrier itself, and others that cannot register do so on their own.
inline bool make() {
    fence(std::memory_order_seq_cst);
    return registered() && syscall(SYS_membarrier, kGlobalExpedited, 0, 0) == 0;
}

// For what must not go wrong: where there is none, waits longer than any store stays in a store buffer.
inline void make_or_wait() {
    if (!make()) usleep(20'000);
}

}  // namespace process_barrier

#endif

// Between a store and a load of the frequent side. `fences`: this process is not registered.
inline void light_barrier(bool fences) {
    if (fences) [[unlikely]]
        fence(std::memory_order_seq_cst);
    else
        compiler_barrier();
}

}  // namespace ringmain
