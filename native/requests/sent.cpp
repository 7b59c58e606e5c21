#include "requests/sent.hpp"

#include <algorithm>

#include "rule/worker.hpp"
#include "topic/inspection.hpp"
#include "topic/reaping.hpp"

namespace ringmain {

namespace {

RequestState state_of(const TopicFile& file, TaskMark mark) {
    if (mark.owner == TaskMark::kDone) return RequestState::done;
    if (mark.owner == TaskMark::kFree) return mark.returns ? RequestState::returned : RequestState::free;
    auto slot = static_cast<uint32_t>(mark.owner - 1);
    bool alive = slot < file.slot_count && slot_taken(file, slot) && slot_alive(file, slot);
    return alive ? RequestState::taken : RequestState::orphaned;
}

// `see(number, mark)` for each request that may be unfinished, until it says true.
template <class See>
void look_through(const TopicFile& file, See see) {
    Ring ring = ring_of(file);
    uint64_t commit = ring.header.commit.load(std::memory_order_acquire) & kPositionMask;
    WorkQueue queue(ring);
    for (uint64_t at = first_unfinished(file); at < commit && commit - at <= ring.capacity_bytes;) {
        Envelope envelope = Envelope::load(ring, at);
        if (see(envelope.seq, queue.look(at))) return;
        at += envelope.bytes();
    }
}

}  // namespace

const char* name_of(RequestState state) {
    constexpr const char* kNames[] = {"free", "taken", "orphaned", "returned", "done"};
    return kNames[static_cast<size_t>(state)];
}

RequestState request_state(const TopicFile& file, uint64_t number) {
    RequestState state = RequestState::done;
    look_through(file, [&](uint64_t seq, TaskMark mark) {
        if (seq != number) return false;
        state = state_of(file, mark);
        return true;
    });
    return state;
}

void for_each_lost(const TopicFile& file, const std::function<void(uint64_t number)>& lost) {
    look_through(file, [&](uint64_t seq, TaskMark mark) {
        RequestState state = state_of(file, mark);
        if (state == RequestState::orphaned || state == RequestState::returned) lost(seq);
        return false;
    });
}

long withdraw(const std::shared_ptr<Directory>& directory, const std::string& topic, uint64_t epoch,
              const std::vector<uint64_t>& numbers) {
    std::unique_ptr<Participant> participant = join_as_reader(directory, topic, "withdraws requests");
    if (!participant || participant->topic_file().epoch != epoch) return 0;
    long done = 0;
    Worker worker(ring_of(participant->topic_file()), participant->slot());
    auto ours = [&](const View& view) { return std::ranges::find(numbers, view.seq) != numbers.end(); };
    for (View view; worker.take(view, ours) == Status::ok; worker.release(kNoHold))
        done += worker.finish(view);
    worker.release(kNoHold);
    return done;
}

}  // namespace ringmain
