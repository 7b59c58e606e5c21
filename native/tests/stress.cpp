// Blocking writers and readers, without Python, at full speed on one ring, every message checked.
//
//   stress CONTRACT processes|threads MESSAGES [WRITERS READERS]
//
// As processes: each opens the topic by itself, as in production. As threads: each has its own participant, and all use one mapping,
// so that ThreadSanitizer sees that they touch the same memory. Checked: every message whole, each writer's in order, none
// missing where the contract waits, and lost + received = sent where it laps; on a shared contract, each done once, by one
// worker. The ring is small, so that it wraps often;
// RINGMAIN_LAB_ORIGIN moves its beginning to where 32 or 63 bits wrap.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/temporary_directory.hpp"
#include "topic/endpoint.hpp"
#include "waiting/blocking_reader.hpp"
#include "waiting/blocking_writer.hpp"

using namespace ringmain;

namespace {

constexpr uint64_t kCapacity = 4096;
constexpr uint64_t kGoodbye = ~uint64_t{0};

struct Payload {
    uint64_t writer, counter, size;
    uint8_t filler[512];
    uint64_t bytes() const { return 24 + size; }
};

Payload compose(uint64_t writer, uint64_t counter) {
    Payload p{writer, counter, counter * 37 % 500, {}};
    std::memset(p.filler, static_cast<int>(writer * 31 + counter * 7), p.size);
    return p;
}

[[noreturn]] void wrong(const std::string& what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::exit(1);
}

void check_whole(const Payload& p, uint64_t bytes) {
    if (bytes < 24 || bytes != p.bytes() || p.size > sizeof p.filler) wrong("a message of the wrong size");
    for (uint64_t i = 0; i < p.size; ++i)
        if (p.filler[i] != static_cast<uint8_t>(p.writer * 31 + p.counter * 7)) wrong("a torn message");
}

void publish(BlockingWriter& w, const Payload& p) {
    PlainHost host;
    Deadline deadline(kForever);
    if (w.start(room_for(footprint(p.bytes(), 0, 0)), deadline, host) != Outcome::ready)
        wrong("a writer cannot go on");
    copy_in(w.writer->payload(0, 0), &p, p.bytes());
    w.writer->seal(w.writer->seq(), 0, p.bytes(), {}, {});
    w.writer->commit();
}

void write_all(Ring ring, std::unique_ptr<Participant> participant, uint64_t number, uint64_t messages) {
    BlockingWriter w;
    w.participant = std::move(participant);
    w.writer = std::make_unique<Writer>(ring, w.participant->slot());
    w.spin.set(-1);
    if (ring.contract.one_writer && w.writer->attach() != Status::ok) wrong("a writer cannot begin");
    for (uint64_t i = 0; i < messages; ++i) publish(w, compose(number, i));
    if (ring.contract.shared) return;
    Payload goodbye{number, kGoodbye, 0, {}};
    // A reader that can be lapped may miss a goodbye: repeat it until all readers have left, at most for a minute.
    publish(w, goodbye);
    for (int i = 0; !ring.contract.writer_waits() && i < 60'000; ++i) {
        bool has_readers = false;
        for (uint32_t slot : taken_slots(w.topic_file()))
            has_readers |= slot_has_role(w.topic_file(), slot, Role::reader);
        if (!has_readers) return;
        usleep(1000);
        publish(w, goodbye);
    }
}

// Which messages were done, for all processes.
struct Done {
    std::atomic<uint64_t> count{0};
    uint64_t messages;  // of each writer
    std::atomic<uint8_t> times[];
};

// Until all are done. A worker whose wait ends in vain looks whether others have done the rest.
void work_all(Ring ring, std::unique_ptr<Participant> participant, uint64_t writers, Done& done) {
    PlainReaderHost<PlainHost> host;
    BlockingReader r;
    uint32_t slot = participant->slot();
    r.participant = std::move(participant);
    r.reader = std::make_unique<Reader>(ring, slot, Start::oldest, true, true);
    r.work = std::make_unique<Unfinished>(ring, slot);
    r.slow_path = true;
    r.spin.set(-1);
    r.reader->hold_nothing();
    if (r.reader->attach(Start::oldest) != Status::ok) wrong("a worker cannot begin");
    for (uint64_t taken = 0; done.count < writers * done.messages;) {
        View view;
        Deadline deadline(50'000'000);
        r.work->finish_received();
        Outcome outcome = r.wait(deadline, view, false, host);
        if (outcome == Outcome::timed_out) continue;
        if (outcome != Outcome::ready) wrong("a worker cannot go on");
        Payload p{};
        if (view.size > sizeof p) wrong("a message too large");
        copy_out(&p, view.payload(), view.size);
        check_whole(p, view.size);
        // Every 64th goes back once: by a call that fails. Another worker, or this one, gets it again.
        bool fails = ++taken % 64 == 0;
        r.reader->take(view);
        if (!fails && done.times[p.writer * done.messages + p.counter]++ != 0) wrong("a message done twice");
        r.work->end_of_call(r.reader->messages(), fails, r.leases);
        done.count += !fails;
    }
    r.leave(host);
}

// Returns how many it received.
uint64_t read_all(Ring ring, std::unique_ptr<Participant> participant, uint64_t writers) {
    PlainReaderHost<PlainHost> host;
    BlockingReader blocking;
    blocking.reader = std::make_unique<Reader>(ring, participant->slot(), Start::oldest, false);
    blocking.participant = std::move(participant);
    blocking.spin.set(-1);
    Reader& r = *blocking.reader;
    if (r.attach(Start::oldest) != Status::ok) wrong("a reader cannot begin");
    std::map<uint64_t, uint64_t> due;
    uint64_t gone = 0, received = 0, began = r.sequence(), next_seq = began;
    while (gone < writers) {
        View view;
        bool borrows = received % 3 == 0;
        Deadline deadline(kForever);
        if (blocking.wait(deadline, view, borrows, host) != Outcome::ready) wrong("a reader cannot go on");
        Payload p{};
        if (view.size > sizeof p) wrong("a message too large");
        copy_out(&p, view.payload(), view.size);
        if (!r.still_whole(view)) {
            if (borrows) r.release();
            continue;
        }
        check_whole(p, view.size);
        uint64_t lost = r.take(view);
        r.release();
        if (view.seq != next_seq + lost) wrong("lost is not exact");
        if (lost && r.always_holds()) wrong("messages lost where none may be");
        next_seq = view.seq + 1;
        ++received;
        if (p.counter == kGoodbye) {
            gone += due[p.writer] != kGoodbye;
            due[p.writer] = kGoodbye;
            continue;
        }
        // A writer that claimed before our hold was announced may have made us begin later.
        if (began > 0) due.try_emplace(p.writer, p.counter);
        if (p.counter < due[p.writer]) wrong("a writer's messages out of order");
        if (r.always_holds() && p.counter != due[p.writer])
            wrong("writer " + std::to_string(p.writer) + "'s message " + std::to_string(due[p.writer]) +
                  " is missing: " + std::to_string(p.counter) + " came, as number " +
                  std::to_string(view.seq) + ", after " + std::to_string(received) + " messages");
        due[p.writer] = p.counter + 1;
    }
    return received;
}

WriterRequest request(Contract contract) {
    WriterRequest r;
    r.contract = contract;
    r.capacity_bytes = kCapacity;
    r.name = "stress";
    return r;
}

// No writer starts before all have joined and readers hold: readers that start at the oldest then see everything.
void wait_for_participants(const TopicFile& s, uint32_t count) {
    for (;;) {
        uint32_t there = 0;
        for (uint32_t i : taken_slots(s)) {
            bool writes = slot_has_role(s, i, Role::writer);
            bool holds = traits(s.contract).shared ||
                         (s.slot(i).hold.load(std::memory_order_acquire) & kPositionMask) != kNoHold;
            there += writes || holds || !traits(s.contract).writer_waits();
        }
        if (there >= count) return;
        usleep(200);
    }
}

Done& room_for_done(uint64_t writers, uint64_t messages) {
    size_t bytes = sizeof(Done) + writers * messages;
    void* there = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (there == MAP_FAILED) wrong("no memory");
    Done& done = *new (there) Done;
    done.messages = messages;
    return done;
}

int as_processes(const std::shared_ptr<Directory>& directory, Contract contract, uint64_t messages,
                 uint32_t writers, uint32_t readers) {
    auto founder = TopicFile::create(directory, "t", {contract, kCapacity, 0600, true});
    founder->give_name();
    Done& done = room_for_done(writers, messages);
    std::vector<pid_t> children;
    for (uint32_t i = 0; i < writers + readers; ++i) {
        pid_t child = fork();
        if (child == 0) {
            auto own = std::make_shared<Directory>(directory->path(), false);
            auto participant =
                i < writers ? join_as_writer(own, "t", request(contract)) : join_as_reader(own, "t", "r");
            Ring ring = ring_of(participant->topic_file());
            if (i < writers) {
                wait_for_participants(participant->topic_file(), writers + readers);
                write_all(ring, std::move(participant), i, messages);
            } else if (ring.contract.shared) {
                work_all(ring, std::move(participant), writers, done);
            } else {
                read_all(ring, std::move(participant), writers);
            }
            std::exit(0);
        }
        children.push_back(child);
    }
    int failed = 0;
    for (pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        failed += status != 0;
    }
    founder.reset();
    unlink_topic(directory, "t", true);
    return failed;
}

int as_threads(const std::shared_ptr<Directory>& directory, Contract contract, uint64_t messages,
               uint32_t writers, uint32_t readers) {
    std::vector<std::unique_ptr<Participant>> all_participants;
    for (uint32_t i = 0; i < writers; ++i)
        all_participants.push_back(join_as_writer(directory, "t", request(contract)));
    for (uint32_t i = 0; i < readers; ++i) all_participants.push_back(join_as_reader(directory, "t", "r"));
    std::shared_ptr<TopicFile> mapped = all_participants[0]->shared();
    Ring ring = ring_of(*mapped);
    Done& done = room_for_done(writers, messages);
    std::vector<std::thread> threads;
    for (uint32_t i = writers; i < writers + readers; ++i)
        threads.emplace_back([&, i] {
            auto participant = std::move(all_participants[i]);
            if (ring.contract.shared)
                work_all(ring, std::move(participant), writers, done);
            else
                read_all(ring, std::move(participant), writers);
        });
    for (uint32_t i = 0; i < writers; ++i)
        threads.emplace_back([&, i] {
            wait_for_participants(*mapped, writers + readers);
            write_all(ring, std::move(all_participants[i]), i, messages);
        });
    for (std::thread& thread : threads) thread.join();
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    std::optional<Contract> contract = argc > 3 ? contract_named(argv[1]) : std::nullopt;
    if (!contract) {
        std::fputs("stress CONTRACT processes|threads MESSAGES [WRITERS READERS]\n", stderr);
        return 2;
    }
    bool one = traits(*contract).one_writer;
    uint64_t messages = std::strtoull(argv[3], nullptr, 0);
    uint32_t writers = one ? 1 : argc > 4 ? static_cast<uint32_t>(std::atoi(argv[4])) : 2;
    uint32_t readers = traits(*contract).one_reader ? 1
                       : argc > 5                   ? static_cast<uint32_t>(std::atoi(argv[5]))
                                                    : 2;
    int failed = 1;
    try {
        tests::TemporaryDirectory temporary("stress");
        const std::shared_ptr<Directory>& directory = *temporary;
        failed = (std::string(argv[2]) == "threads" ? as_threads : as_processes)(directory, *contract,
                                                                                 messages, writers, readers);
        failed += !temporary.has_no_topic();
    } catch (const Failure& failure) {
        std::fprintf(stderr, "%s\n", failure.text.c_str());
    }
    return failed != 0;
}
