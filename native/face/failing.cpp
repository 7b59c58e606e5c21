#include "face/failing.hpp"

#include <cerrno>
#include <utility>

namespace ringmain::face {

namespace {

struct LastError {
    std::string text;
    int error = 0;
};
thread_local LastError last;

ringmain_status status_of(Fault fault) {
    switch (fault) {
        case Fault::not_found:
            return RINGMAIN_NOT_FOUND;
        case Fault::not_allowed:
            return RINGMAIN_NOT_ALLOWED;
        case Fault::corrupt:
            return RINGMAIN_CORRUPT;
        case Fault::busy:
            return RINGMAIN_BUSY;
        case Fault::roster_full:
            return RINGMAIN_ROSTER_FULL;
        case Fault::mismatch:
            return RINGMAIN_MISMATCH;
        case Fault::timed_out:
        case Fault::roster_locked:
            return RINGMAIN_TIMEOUT;
        case Fault::system:
            return RINGMAIN_SYSTEM;
    }
    return RINGMAIN_SYSTEM;
}

// In a text so short that a string needs no memory for it.
ringmain_status fail_without_memory() noexcept { return fail(RINGMAIN_SYSTEM, "out of memory", ENOMEM); }

}  // namespace

ringmain_status fail(ringmain_status status, std::string text, int error) noexcept {
    last.text = std::move(text);
    last.error = error;
    return status;
}

ringmain_status fail(const Failure& failure) noexcept try {
    return fail(status_of(failure.fault), failure.text, failure.error);
} catch (const std::bad_alloc&) {
    return fail(status_of(failure.fault), {}, failure.error);
}

ringmain_status fail(const Refusal& refusal) noexcept try {
    return fail(refusal.status, refusal.text, refusal.error);
} catch (const std::bad_alloc&) {
    return fail(refusal.status, {}, refusal.error);
}

ringmain_status fail(const std::exception& thrown) noexcept try {
    bool no_memory = dynamic_cast<const std::bad_alloc*>(&thrown);
    return no_memory ? fail_without_memory() : fail(RINGMAIN_SYSTEM, thrown.what());
} catch (const std::bad_alloc&) {
    return fail_without_memory();
}

}  // namespace ringmain::face

extern "C" {

RINGMAIN_API const char* ringmain_last_error(void) { return ringmain::face::last.text.c_str(); }
RINGMAIN_API int ringmain_last_errno(void) { return ringmain::face::last.error; }
}
