// What only the lab build has: dying or stopping at a crash point, a record of the points passed, and topics that
// begin far along. All of it is asked for by environment variables; nothing of it is in the build that ships.
//
//   RINGMAIN_CRASH="label"        die here with SIGKILL, the first time we come by
//   RINGMAIN_CRASH="label#3"      the third time;  "stop:label#3": stop with SIGSTOP instead
//   RINGMAIN_CRASH_LOG=file       append the label of every point passed to this file
//   RINGMAIN_LAB_ORIGIN=n         topics created begin at position n (a multiple of 8) instead of 0
#if defined(RINGMAIN_LAB)

#include "lab.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "crash.hpp"
#include "layout.hpp"

namespace ringmain::lab {

namespace {

// Read at the first crash point, so that a forked child can be armed before it touches a topic.
struct CrashPlan {
    size_t index = kCrashPointCount;
    int signal = SIGKILL;
    long left = 1;
    int log = -1;

    CrashPlan() {
        const char* variable = std::getenv("RINGMAIN_CRASH");
        std::string wanted = variable ? variable : "";
        if (wanted.starts_with("stop:")) {
            signal = SIGSTOP;
            wanted.erase(0, 5);
        }
        if (size_t count = wanted.rfind('#'); count != std::string::npos) {
            left = std::atol(wanted.c_str() + count + 1);
            wanted.erase(count);
        }
        for (size_t i = 0; i < kCrashPointCount; ++i)
            if (wanted == kCrashPoints[i]) index = i;
        if (const char* file = std::getenv("RINGMAIN_CRASH_LOG"))
            log = ::open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
};

}  // namespace

void crash_point(size_t index) {
    static CrashPlan orders;
    if (orders.log >= 0) {
        std::string line = std::string(kCrashPoints[index]) + "\n";
        (void)!write(orders.log, line.data(), line.size());
    }
    if (index == orders.index && orders.left > 0 && --orders.left == 0) ::raise(orders.signal);
}

uint64_t origin() {
    const char* variable = std::getenv("RINGMAIN_LAB_ORIGIN");
    return variable ? std::strtoull(variable, nullptr, 0) & kPositionMask : 0;
}

}  // namespace ringmain::lab

#endif
