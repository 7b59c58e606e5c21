// Segment without a file: the explorer's memory, seen by one actor. The descriptor is the actor's number, which is
// what kernel.cpp knows a lock's owner by.
#include "segment.hpp"

#include "actors.hpp"
#include "model.hpp"

namespace ringmain {

std::atomic<uint32_t> forks{0};

Segment::~Segment() = default;

std::string file_name(std::string_view topic, FileKind) { return std::string(topic); }

std::shared_ptr<Segment> Segment::open(std::shared_ptr<Directory>, std::string_view actor, Access, FileKind) {
    auto segment = std::make_shared<Segment>();
    segment->fd_ = actor[0] - '0';
    segment->topic = actor;
    segment->control_ = explore::control();
    segment->data_ = explore::data();
    segment->contract = explore::topic.contract;
    segment->capacity_bytes = explore::topic.capacity_bytes;
    segment->flags = kPersist;  // the file's life is not explored here
    return segment;
}

void Segment::retire() {}

}  // namespace ringmain
