// What actors.cpp and readers.cpp know of an actor. What only writers have, or only readers, is in the one or the other, so that
// a mutant of one side does not compile the other.
#pragma once

#include <cstring>
#include <memory>
#include <new>

#include "explore/actors.hpp"
#include "explore/model.hpp"
#include "topic/endpoint.hpp"

namespace ringmain::explore {

// Objects live in zeroed memory, so that their bytes, padding included, are their whole state.
template <class T>
struct Storage {
    alignas(16) std::byte bytes[(sizeof(T) + 7) / 8 * 8];
    template <class... A>
    T& make(A&&... arguments) {
        std::memset(bytes, 0, sizeof bytes);
        return *new (bytes) T(std::forward<A>(arguments)...);
    }
    T& get() { return *std::launder(reinterpret_cast<T*>(bytes)); }
};

inline int file_of(const TopicFile& s) { return file_at(&s.header()); }
// A topic's name is the number of the actor that knows it by this name, then its own.
std::string topic_name(int actor, int topic);
inline int topic_named(std::string_view name) { return name[1] - '0'; }
Ring ring_of_topic(const TopicFile& s);
// Joins a topic that is there. The result is never destroyed, as nothing that a dead process has.
Participant* join(int actor, int topic, Role role, bool takeover);
void forget_readers();  // of the execution before

}  // namespace ringmain::explore
