// Copying a large message or frame into shared memory, without the GIL and with the method that was fastest recently.
#pragma once

#include "base/bulk_copy.hpp"
#include "python/py.hpp"

namespace ringmain::py {

// For copies of kBulkBytes or more. The caller has the GIL, which protects `choice`.
inline void copy_measured(CopyChoice& choice, std::byte* to, const char* from, size_t size) {
    CopyMethod method = choice.next();
    int64_t took_ns;
    {
        WithoutGil unlocked;
        int64_t start_ns = monotonic_ns();
        copy_bulk(method, to, from, size);
        took_ns = monotonic_ns() - start_ns;
    }
    choice.learn(method, static_cast<float>(took_ns) / static_cast<float>(size));
}

}  // namespace ringmain::py
