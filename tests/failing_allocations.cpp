// A preload: the n-th allocation of C++ fails, counted from when fail_at(n) is called: `new` throws std::bad_alloc, as it does
// without memory. So do those of every thread, since a module's threads have no one to ask. Allocations by malloc are those of C
// libraries and of the interpreter; `_testcapi.set_nomemory` has these.
#include <atomic>
#include <cstdlib>
#include <new>

static std::atomic<long> left{0}, made{0};

extern "C" void fail_at(long n) {
    made = 0;
    left = n;
}
// How many were made since then. None fails any more.
extern "C" long stop_failing() {
    left = 0;
    return made;
}

static bool fails() {
    ++made;
    return left.load() > 0 && --left == 0;
}

static void* allocate(std::size_t size) { return fails() ? nullptr : std::malloc(size ? size : 1); }
static void* allocate(std::size_t size, std::align_val_t alignment) {
    auto align = static_cast<std::size_t>(alignment);
    return fails() ? nullptr : std::aligned_alloc(align, (size + align - 1) / align * align);
}
static void* checked(void* memory) {
    if (!memory) throw std::bad_alloc();
    return memory;
}

void* operator new(std::size_t size) { return checked(allocate(size)); }
void* operator new[](std::size_t size) { return checked(allocate(size)); }
void* operator new(std::size_t size, std::align_val_t align) { return checked(allocate(size, align)); }
void* operator new[](std::size_t size, std::align_val_t align) { return checked(allocate(size, align)); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
