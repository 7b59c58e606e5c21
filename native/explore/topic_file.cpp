// TopicFile without a file, and what else waits stand on: the explorer's memory, as one actor sees it. The descriptor is the actor's number, by which
// kernel.cpp identifies a lock's owner.
#include "topic/topic_file.hpp"

#include <fcntl.h>

#include "explore/actor_state.hpp"
#include "explore/model.hpp"
#include "topic/endpoint.hpp"
#include "waiting/watcher.hpp"

namespace ringmain {

std::atomic<uint32_t> forks{0};

TopicFile::~TopicFile() = default;

PinnedDescriptor::~PinnedDescriptor() = default;

// Each actor is a process.
bool PinnedDescriptor::claim_roster() const { return true; }
void PinnedDescriptor::drop_roster() const {}

PinnedDescriptor TopicFile::fd() const {
    return PinnedDescriptor((topic[0] - '0') | (contract == Contract::waiting ? explore::kWaitingFile : 0));
}

PinnedDescriptor TopicFile::intact_fd() const { return fd(); }

static bool set_slot_lock(int file, uint32_t index, short type) {
    struct flock lock{};
    lock.l_type = type;
    lock.l_start = slot_lock_byte(index);
    lock.l_len = 1;
    return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

bool TopicFile::lock_slot(uint32_t index) { return set_slot_lock(fd().number(), index, F_WRLCK); }

void TopicFile::unlock_slot(uint32_t index) { set_slot_lock(fd().number(), index, F_UNLCK); }

void SlotLock::unlock() {}

bool TopicFile::nameless() const { return false; }

// The directory: one, with one name in it.
Directory::Directory(std::string, bool) {}
Directory::~Directory() = default;
std::shared_ptr<Directory> Directory::at(const std::string& path, bool create) {
    return std::make_shared<Directory>(path, create);
}
int Directory::fd() const { return -1; }
bool Directory::intact() const { return true; }
bool Directory::replaced() const { return false; }
bool Directory::has(std::string_view) const { return explore::has_name(); }
Bell Directory::bell() const {
    const auto* word = reinterpret_cast<const Word<uint32_t>*>(explore::directory_bell());
    return {word->futex(), word->load(std::memory_order_acquire)};
}

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

// As endpoint.cpp does: `topic` is the actor's number.
std::unique_ptr<Participant> join_or_wait(const std::shared_ptr<Directory>&, const std::string& topic,
                                          const std::string& name, ObserveMode,
                                          std::unique_ptr<Participant>& waiting, int64_t) {
    if (!explore::has_name()) return nullptr;
    auto topic_file = TopicFile::open(nullptr, topic, Access::write);
    std::unique_ptr<Participant> reader;
    {
        RosterLock lock(*topic_file);
        if (topic_file->retired()) {  // a process died while it removed it
            explore::remove_topic(*topic_file, lock);
            return nullptr;
        }
        if (waiting) reader = Participant::take_enrolled(topic_file, *waiting, lock);
        if (!reader) reader = std::make_unique<Participant>(topic_file, Role::reader, name, false, lock);
    }
    waiting.reset();
    return reader;
}
void stop_waiting(std::unique_ptr<Participant>& waiting) { waiting.reset(); }

uint64_t watch(Watch) { explore::give_up("no actor has an event loop"); }

// ------------------------------------------------------------------------------------ deaths that end a sleep

struct DeathWatch::Listed {
    Awaiting awaiting;
};

bool Awaiting::is_over() const { return !explore::closing() && over(); }

// The thread that watches is the actor itself: a listed sleep asks over() after each death.
DeathWatch::DeathWatch(Awaiting awaiting) : listed_(new Listed{std::move(awaiting)}), on_(true) {
    explore::watch_deaths(&listed_->awaiting.over);
}
DeathWatch::~DeathWatch() { explore::watch_deaths(nullptr); }
bool DeathWatch::over() const {
    if (!listed_->awaiting.is_over()) return false;
    explore::count_found_over();
    return true;
}
int64_t DeathWatch::slice_ns() const { return kLongestSleep_ns; }
uint32_t found_over() { return explore::times_found_over(); }

}  // namespace ringmain
