// What actors.cpp and readers.cpp know of an actor. What only writers have, or only readers, is in the one or the other, so that
// a mutant of one side does not compile the other.
#pragma once

#include <cstring>
#include <memory>
#include <new>

#include "explore/actors.hpp"
#include "explore/model.hpp"
#include "topic/participant.hpp"

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

// None of it is ever destroyed or freed, as all that a dead process has.
struct ActorState {
    std::shared_ptr<TopicFile>* topic_file = nullptr;
    Participant* participant = nullptr;
};
extern ActorState actor_states[kMaxActors];

Ring ring_of_topic(const TopicFile& s);
void join(int actor, Role role, bool takeover);
void forget_readers();  // of the execution before
void remove_topic(TopicFile& topic_file, const RosterLock& lock);

}  // namespace ringmain::explore
