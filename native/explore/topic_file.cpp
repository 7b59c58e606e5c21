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
    return PinnedDescriptor((topic[0] - '0') | (kind() == FileKind::waiting ? explore::kWaitingFile : 0) |
                            explore::file_of(*this) * explore::kPerFile);
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

// A topic loses its name only after it was marked.
bool TopicFile::nameless() const { return false; }

bool TopicFile::has_its_name() const {
    return kind() == FileKind::waiting ||
           explore::file_named(explore::topic_named(topic)) == explore::file_of(*this);
}

uint64_t round_capacity(uint64_t capacity_bytes) { return capacity_bytes; }

// The directory: one, with the names of all topics in it, and their waiting files, which stay there.
Directory::Directory(std::string, bool) {}
Directory::~Directory() = default;
std::shared_ptr<Directory> Directory::at(const std::string& path, bool create) {
    return std::make_shared<Directory>(path, create);
}
int Directory::fd() const { return -1; }
bool Directory::intact() const { return true; }
bool Directory::replaced() const { return false; }
bool Directory::has(std::string_view topic) const {
    return explore::file_named(explore::topic_named(topic)) != explore::kNoFile;
}
uint32_t Directory::changes() const { return bell().value; }
Bell Directory::bell() const {
    const auto* word = reinterpret_cast<const Word<uint32_t>*>(explore::directory_bell());
    return {word->futex(), word->load(std::memory_order_acquire)};
}
void Directory::ring() { explore::ring_directory(); }

std::string file_name(std::string_view topic, FileKind) { return std::string(topic); }

static std::shared_ptr<TopicFile> mapped(std::string_view topic, int file, FileKind kind) {
    auto topic_file = std::make_shared<TopicFile>();
    bool waiting = kind == FileKind::waiting;
    topic_file->topic = topic;
    topic_file->contract = waiting ? Contract::waiting : explore::topic.contract;
    topic_file->slot_count = explore::kSlots;
    topic_file->capacity_bytes = explore::topic.capacity_bytes;
    topic_file->mode = kDefaultMode;
    topic_file->inode = topic_file->epoch = static_cast<uint64_t>(2 * file + waiting + 1);
    return topic_file;
}

std::shared_ptr<TopicFile> TopicFile::open(std::shared_ptr<Directory> directory, std::string_view topic,
                                           Access, FileKind kind) {
    bool waiting = kind == FileKind::waiting;
    int file = waiting                  ? explore::topic_named(topic)
               : kind == FileKind::ring ? explore::file_named(explore::topic_named(topic))
                                        : explore::kNoFile;
    if (file == explore::kNoFile) throw Failure{Fault::not_found, "there is no such file"};
    auto topic_file = mapped(topic, file, kind);
    topic_file->directory = std::move(directory);
    topic_file->control_ =
        explore::control(file) + (waiting ? explore::kFirstWaitingSlot * sizeof(Slot) : size_t{0});
    topic_file->data_ = explore::data(file);
    return topic_file;
}

// What the next file says has been written there before the execution began.
std::shared_ptr<TopicFile> TopicFile::create(std::shared_ptr<Directory> directory, std::string_view topic,
                                             const TopicOptions&) {
    int file = explore::new_file();
    auto topic_file = mapped(topic, file, FileKind::ring);
    topic_file->directory = std::move(directory);
    topic_file->control_ = explore::control(file);
    topic_file->data_ = explore::data(file);
    return topic_file;
}

// As topic_file.cpp does.
bool TopicFile::give_name() {
    if (!explore::give_name(explore::topic_named(topic), explore::file_of(*this))) return false;
    directory->ring();
    return true;
}

uint64_t watch(Watch) { explore::give_up("no actor has an event loop"); }
void watch_all(const std::vector<Watch>&) { explore::give_up("no actor has so many readers"); }
void end_watches(const void*) {}
Event::Event() : fd_{-1} {}
Event::~Event() = default;

// ------------------------------------------------------------------------------------ deaths that end a sleep

struct DeathWatch::Listed {
    Awaiting awaiting;
};

bool Awaiting::is_over() const { return !explore::closing() && over(); }

// The thread that watches is the actor itself: a listed sleep asks over() after each death.
DeathWatch::DeathWatch(Awaiting awaiting) : listed_(new Listed{std::move(awaiting)}), on_(true) {
    explore::watch_deaths(&listed_->awaiting.over);
}
DeathWatch::~DeathWatch() { explore::unwatch_deaths(&listed_->awaiting.over); }
bool DeathWatch::over() const {
    if (!listed_->awaiting.is_over()) return false;
    explore::count_found_over();
    return true;
}
int64_t DeathWatch::slice_ns() const { return kLongestSleep_ns; }
uint32_t found_over() { return explore::times_found_over(); }

}  // namespace ringmain
