// Who a process is, in words that hold across containers. A pid alone does not: each pid namespace numbers its own
// processes, and numbers are reused. So a pid is kept with its namespace and with the process's start time.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "topic/topic_file.hpp"

namespace ringmain {

struct ProcessIdentity {
    uint32_t pid = 0;
    uint64_t pid_namespace = 0;  // its inode, as `readlink /proc/self/ns/pid` shows it; 0: unknown
    uint64_t started_ticks = 0;  // clock ticks from boot, the 22nd field of /proc/self/stat; 0: unknown
};

namespace process {

inline uint64_t own_pid_namespace() {
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

// Of a pid, or "self". 0: unknown.
inline uint64_t start_ticks(const std::string& who) {
    int fd = ::open(("/proc/" + who + "/stat").c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    char text[1024];
    ssize_t size = ::read(fd, text, sizeof text - 1);
    ::close(fd);
    if (size <= 0) return 0;
    text[size] = '\0';
    // The second field is the program's name in parentheses, which may contain anything. The third follows the last ')'.
    std::string_view all(text, static_cast<size_t>(size));
    size_t at = all.rfind(')');
    for (int field = 2; field < 22 && at != std::string_view::npos; ++field) at = all.find(' ', at + 1);
    return at == std::string_view::npos ? 0 : std::strtoull(text + at + 1, nullptr, 10);
}

}  // namespace process

// Asked of the kernel once in each thread, and again after a fork.
inline const ProcessIdentity& this_process() {
    thread_local uint32_t asked_after = UINT32_MAX;
    thread_local ProcessIdentity identity;
    uint32_t now = forks.load(std::memory_order_relaxed), pid = static_cast<uint32_t>(getpid());
    if (asked_after != now || identity.pid != pid) {
        identity = {pid, process::own_pid_namespace(), process::start_ticks("self")};
        asked_after = now;
    }
    return identity;
}

// Does a pid of this namespace mean the same process here?
inline bool in_our_namespace(uint64_t pid_namespace) {
    return pid_namespace != 0 && pid_namespace == this_process().pid_namespace;
}

// "pid 12", or "pid 12 in another pid namespace (4026532281)", which no number here stands for.
inline std::string describe_pid(uint32_t pid, uint64_t pid_namespace) {
    std::string text = "pid " + std::to_string(pid);
    if (in_our_namespace(pid_namespace)) return text;
    if (pid_namespace == 0) return text + " in an unknown pid namespace";
    return text + " in another pid namespace (" + std::to_string(pid_namespace) + ")";
}

}  // namespace ringmain
