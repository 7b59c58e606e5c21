// The smallest test harness that says where and what: CHECK prints and counts, main() returns the count.
#pragma once

#include <cstdio>

namespace ringmain::tests {

inline int failures = 0;

inline void check(bool holds, const char* what, const char* file, int line) {
    if (holds) return;
    ++failures;
    std::fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
}

}  // namespace ringmain::tests

#define CHECK(condition) \
    ::ringmain::tests::check(static_cast<bool>(condition), #condition, __FILE__, __LINE__)

// The statement must throw a Failure of this kind.
#define CHECK_FAULT(kind, statement)                                         \
    do {                                                                     \
        bool thrown = false;                                                 \
        try {                                                                \
            statement;                                                       \
        } catch (const ::ringmain::Failure& failure) {                       \
            thrown = failure.fault == ::ringmain::Fault::kind;               \
            if (!thrown) std::fprintf(stderr, "%s\n", failure.text.c_str()); \
        }                                                                    \
        CHECK(thrown && #statement);                                         \
    } while (0)
