// So many messages through one small ring, from one process to another, that every counter wraps that can: each carries
// its number, and the reader sees all of them in order (pipe), or knows exactly how many it lost (broadcast).
//
//   endurance CONTRACT MESSAGES        with RINGMAIN_LAB_ORIGIN the topic begins where 32 or 63 bits wrap
//
// 32 bytes each in the ring: a thousand million of them pass 2^32 seven times.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "rule/writer.hpp"
#include "tests/temporary_directory.hpp"
#include "topic/endpoint.hpp"

using namespace ringmain;

namespace {

constexpr uint64_t kCapacity = 64 * 1024;
constexpr uint64_t kBatch = 64;

[[noreturn]] void wrong(const char* what, uint64_t number) {
    std::fprintf(stderr, "%s, at message %lu\n", what, number);
    std::exit(1);
}

void write_all(const Participant& participant, uint64_t messages) {
    Writer w(ring_of(participant.topic_file()), participant.slot());
    if (w.attach() != Status::ok) wrong("a writer cannot begin", 0);
    for (uint64_t sent = 0; sent < messages;) {
        if (w.begin() != Status::ok) wrong("a writer cannot go on", sent);
        for (uint64_t in_batch = 0; in_batch < kBatch && sent < messages; ++in_batch, ++sent) {
            Status status;
            while ((status = w.prepare(room_for(footprint(8, 0, 0)))) == Status::blocked) {
                if (in_batch != 0) break;  // the reader may need what we have not committed yet
                if (Bell bell = w.arm(); bell.word) sleep_on(bell, kSlice_ns);
            }
            if (status == Status::blocked) break;
            if (status != Status::ok) wrong("a writer finds the ring corrupt", sent);
            copy_in(w.payload(0, 0), &sent, 8);
            w.seal(sent, 0, 8, {}, {});
        }
        w.commit();
    }
}

uint64_t read_all(const Participant& participant, uint64_t messages) {
    Reader r(ring_of(participant.topic_file()), participant.slot(), Start::oldest, false);
    if (r.attach(Start::oldest, true) != Status::ok) wrong("a reader cannot begin", 0);
    uint64_t received = 0;
    for (uint64_t due = 0; due < messages;) {
        View view;
        Status status = r.peek(view);
        if (status == Status::corrupt) wrong("a reader finds the ring corrupt", due);
        if (status == Status::empty) {
            r.release();
            if (Bell bell = r.bell(); bell.word) sleep_on(bell, kSlice_ns);
            continue;
        }
        uint64_t number = 0;
        copy_out(&number, view.payload(), 8);
        if (!r.still_whole(view)) continue;
        due += r.take(view);
        if (view.size != 8 || number != view.seq || number != due) wrong("not the message that was due", due);
        ++due;
        if (++received % kBatch == 0) r.release();
    }
    r.release();  // or the last few would count as unread, and the pipe would stay
    if (received + r.lost != messages) wrong("received and lost are not all", received);
    if (r.always_holds() && r.lost != 0) wrong("lost where nothing may be", r.lost);
    return received;
}

}  // namespace

int main(int argc, char** argv) {
    std::optional<Contract> contract = argc == 3 ? contract_named(argv[1]) : std::nullopt;
    if (!contract || !traits(*contract).one_writer) {
        std::fputs("endurance broadcast|pipe MESSAGES\n", stderr);
        return 2;
    }
    uint64_t messages = std::strtoull(argv[2], nullptr, 0);
    tests::TemporaryDirectory temporary("endurance");
    const std::shared_ptr<Directory>& directory = *temporary;
    WriterRequest request;
    request.contract = contract;
    request.capacity_bytes = kCapacity;
    request.name = "endurance";
    auto began = std::chrono::steady_clock::now();
    auto participant = join_as_writer(directory, "t", request);
    pid_t child = fork();
    if (child == 0) {
        auto own = std::make_shared<Directory>(temporary.path(), false);
        auto reader = join_as_reader(own, "t", "r");
        uint64_t received = read_all(*reader, messages);
        std::printf("%s: %lu messages, %lu received\n", argv[1], messages, received);
        reader.reset();
        std::exit(0);
    }
    uint64_t first =
        participant->topic_file().header().commit.load(std::memory_order_acquire) & kPositionMask;
    // Not before the reader is there: it must see the first message.
    while (participant->topic_file().header().membership.load(std::memory_order_acquire) < 3) usleep(200);
    write_all(*participant, messages);
    int status = 0;
    waitpid(child, &status, 0);
    uint64_t last = participant->topic_file().header().commit.load(std::memory_order_acquire) & kPositionMask;
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    std::printf("positions %#lx to %#lx, %.1f s\n", first, last, seconds);
    participant.reset();
    return status != 0 || !temporary.has_no_topic();
}
