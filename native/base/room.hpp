// Room for what comes after a step that cannot be undone.
#pragma once

#include <algorithm>
#include <vector>

namespace ringmain {

// For `more` elements, so that adding them cannot fail. Throws std::bad_alloc, and then has changed nothing.
template <class T>
[[gnu::always_inline]] inline void make_room(std::vector<T>& in, size_t more = 1) {
    if (in.capacity() - in.size() < more) [[unlikely]]
        in.reserve(std::max(in.size() + more, 2 * in.size()));
}

}  // namespace ringmain
