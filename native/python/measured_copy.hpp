// Copying a message or a frame in, without the GIL once it is large, and in the way that has been fastest lately.
#pragma once

#include "bulk_copy.hpp"
#include "py.hpp"

namespace ringmain::py {

// Large enough to be worth measuring. Whoever calls has the GIL, under which alone `choice` is touched.
inline void copy_measured(CopyChoice& choice, std::byte* to, const char* from, size_t size) {
    CopyMethod way = choice.next();
    int64_t took_ns;
    {
        WithoutGil unlocked;
        int64_t start_ns = monotonic_ns();
        copy_bulk(way, to, from, size);
        took_ns = monotonic_ns() - start_ns;
    }
    choice.learn(way, static_cast<float>(took_ns) / static_cast<float>(size));
}

}  // namespace ringmain::py
