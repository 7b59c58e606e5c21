// What only the lab build has: dying or stopping at a crash point, a log of the points passed, and topics whose
// positions begin far from 0. Environment variables ask for it; the shipped build has none of it.
//
//   RINGMAIN_CRASH="label"        die with SIGKILL at the first passage of this crash point
//   RINGMAIN_CRASH="label#3"      at the third passage;  "stop:label#3": stop with SIGSTOP instead
//   RINGMAIN_CRASH_LOG=file       append the label of every crash point passed to this file
//   RINGMAIN_LAB_ORIGIN=n         created topics begin at position n (a multiple of 8) instead of 0
//
// The recorder reads the same variable, with the same grammar (src/ringmain/recording/_crash.py). Each ignores the
// other's labels; `ringmain.testing.die_at` refuses a label that neither has.
#if defined(RINGMAIN_LAB)

#include "base/lab.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/crash.hpp"

namespace ringmain::lab {

namespace {

// Parsed at the first crash point, so that a forked child can set the variable before it touches a topic.
struct CrashPlan {
    size_t index = kCrashPointCount;  // none: no plan, or a label of the recorder
    int signal = SIGKILL;
    long passages_left = 1;
    int log = -1;

    CrashPlan() {
        const char* variable = std::getenv("RINGMAIN_CRASH");
        std::string wanted = variable ? variable : "";
        if (wanted.starts_with("stop:")) {
            signal = SIGSTOP;
            wanted.erase(0, 5);
        }
        if (size_t count = wanted.rfind('#'); count != std::string::npos) {
            passages_left = std::atol(wanted.c_str() + count + 1);
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
    static CrashPlan plan;
    if (plan.log >= 0) {
        std::string line = std::string(kCrashPoints[index]) + "\n";
        (void)!write(plan.log, line.data(), line.size());
    }
    if (index == plan.index && plan.passages_left > 0 && --plan.passages_left == 0) ::raise(plan.signal);
}

uint64_t origin() {
    const char* variable = std::getenv("RINGMAIN_LAB_ORIGIN");
    return variable ? std::strtoull(variable, nullptr, 0) & ~uint64_t{7} : 0;
}

}  // namespace ringmain::lab

#endif
