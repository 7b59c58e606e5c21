// Large messages as `bytes`.
#include <cstdlib>

#include "python/subscriber.hpp"

namespace ringmain::py {

// Before the first large `bytes`: makes glibc keep freed memory, instead of returning it to the kernel and having every
// page cleared and mapped again for the next, which costs several times the copy. It uses glibc's own rule: when a large
// block that was mapped by itself is freed, later blocks up to that size come from the heap, which keeps twice as much.
// Where the user has set these limits (mallopt, GLIBC_TUNABLES), the rule is off, and this has no effect.
static void keep_large_blocks() {
    constexpr size_t kBlock_bytes = 16 << 20;
    static const bool done = [] {
        void* volatile block = std::malloc(kBlock_bytes);  // never touched: address space, not memory
        std::free(block);
        return true;
    }();
    (void)done;
}

PyObject* copy_large(const std::byte* from, size_t size) {
    keep_large_blocks();
    PyObject* bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
    if (!bytes) return nullptr;
    char* to = PyBytes_AsString(bytes);
    WithoutGil unlocked;
    copy_out(to, from, size);
    return bytes;
}

}  // namespace ringmain::py
