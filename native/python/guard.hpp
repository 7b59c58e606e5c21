// The way from Python into C++, in one place: nothing that C++ throws passes into the interpreter, which is C. A type's tables
// name `entry<function>` in place of `function`. As long as nothing is thrown, that costs next to nothing; the few functions whose
// fast path throws nothing make an entry of the rest instead, and then it is nothing at all.
//
// Not caught: the unwinding of a thread that ends, which is no exception and must not be stopped. What has no way to say that
// there is no memory, such as a destructor, needs none: see tests/lab/failing_allocations.py.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <exception>
#include <type_traits>

#include "base/failure.hpp"

namespace ringmain::py {

// Raises what is being caught: MemoryError for std::bad_alloc. An exception of Python that is raised already stays.
void raise_caught() noexcept;
inline void raise_standard(const std::exception& thrown) noexcept {
    if (PyErr_Occurred()) return;
    if (dynamic_cast<const std::bad_alloc*>(&thrown))
        PyErr_NoMemory();
    else
        PyErr_SetString(PyExc_RuntimeError, thrown.what());
}

// What `call` returns; where it throws, raises, and returns what says so: a null pointer, false, or -1.
template <class Call>
[[gnu::always_inline]] inline auto guarded(Call call) -> decltype(call()) {
    using Result = decltype(call());
    try {
        return call();
    } catch (const std::exception&) {
        raise_caught();
    } catch (const Failure&) {
        raise_caught();
    }
    if constexpr (std::is_pointer_v<Result>)
        return nullptr;
    else
        return std::is_same_v<Result, bool> ? Result(0) : Result(-1);
}

template <auto function>
struct Entry;
template <class Result, class... Given, Result (*function)(Given...)>
struct Entry<function> {
    [[gnu::noinline]] static Result call(Given... given) {
        return guarded([&] { return function(given...); });
    }
};
template <auto function>
inline constexpr auto entry = &Entry<function>::call;

}  // namespace ringmain::py
