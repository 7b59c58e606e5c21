#include "explore/arena.hpp"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

constexpr std::size_t kArenaBytes = 1 << 20;
alignas(64) std::byte arena[kArenaBytes];
std::size_t used;
bool for_actors;

bool inside(void* p) { return p >= arena && p < arena + kArenaBytes; }

}  // namespace

namespace ringmain::explore {

void arena_reset() { used = 0; }
Allocates::Allocates(bool actors) : before_(for_actors) { for_actors = actors; }
Allocates::~Allocates() { for_actors = before_; }
void explorer_allocates() { for_actors = false; }

}  // namespace ringmain::explore

void* operator new(std::size_t size) {
    if (!for_actors) {
        if (void* p = std::malloc(size)) return p;
        throw std::bad_alloc();
    }
    std::size_t at = (used + 15) & ~std::size_t{15};
    if (at + size > kArenaBytes) {
        std::fputs("explore: the actors' arena is full\n", stderr);
        std::abort();
    }
    used = at + size;
    return std::memset(arena + at, 0, size);  // so that an object's padding is part of no state
}
void operator delete(void* p) noexcept {
    if (!inside(p)) std::free(p);
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }
