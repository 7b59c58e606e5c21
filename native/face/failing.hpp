// How the face says what went wrong: a status, and a sentence for the thread that called. Nothing is thrown at a caller, who may
// have been compiled with another standard library, or in another language.
#pragma once

#include <ringmain/ringmain.h>

#include <new>
#include <string>

#include "base/failure.hpp"

namespace ringmain::face {

// Thrown within the face, and caught by guarded().
struct Refusal {
    ringmain_status status;
    std::string text;
    int error = 0;
};

// Notes the sentence; returns the status.
ringmain_status fail(ringmain_status status, std::string text, int error = 0) noexcept;
ringmain_status fail(const Failure& failure) noexcept;
ringmain_status fail(const Refusal& refusal) noexcept;
ringmain_status fail(const std::exception& thrown) noexcept;

inline ringmain_status invalid(std::string text) noexcept {
    return fail(RINGMAIN_INVALID_ARGUMENT, std::move(text));
}

// Calls what returns a status, and turns what it throws into one.
template <class Call>
ringmain_status guarded(Call call) noexcept {
    try {
        return call();
    } catch (const Failure& failure) {
        return fail(failure);
    } catch (const Refusal& refusal) {
        return fail(refusal);
    } catch (const std::exception& thrown) {
        return fail(thrown);
    }
}

}  // namespace ringmain::face
