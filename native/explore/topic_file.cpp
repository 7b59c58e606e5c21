// TopicFile without a file: the explorer's memory, as one actor sees it. The descriptor is the actor's number, by which
// kernel.cpp identifies a lock's owner.
#include "topic/topic_file.hpp"

#include "explore/actors.hpp"
#include "explore/model.hpp"

namespace ringmain {

std::atomic<uint32_t> forks{0};

TopicFile::~TopicFile() = default;

bool OwnDescriptor::intact() const { return true; }

int TopicFile::fd() const {
    return (topic[0] - '0') | (contract == Contract::waiting ? explore::kWaitingFile : 0);
}

int TopicFile::intact_fd() const { return fd(); }

int Directory::fd() const { return -1; }

std::string file_name(std::string_view topic, FileKind) { return std::string(topic); }

std::shared_ptr<TopicFile> TopicFile::open(std::shared_ptr<Directory>, std::string_view actor, Access,
                                           FileKind kind) {
    bool waiting = kind == FileKind::waiting;
    auto topic_file = std::make_shared<TopicFile>();
    topic_file->topic = actor;
    topic_file->control_ =
        explore::control() + (waiting ? explore::kFirstWaitingSlot * sizeof(Slot) : size_t{0});
    topic_file->data_ = explore::data();
    topic_file->contract = waiting ? Contract::waiting : explore::topic.contract;
    topic_file->slot_count = explore::kSlots;
    topic_file->capacity_bytes = explore::topic.capacity_bytes;
    return topic_file;
}

void TopicFile::retire() {}

}  // namespace ringmain
