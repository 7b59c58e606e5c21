// The parts of the core by themselves: text, topic files, roster, and the rule in one process.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/bulk_copy.hpp"
#include "base/text.hpp"
#include "recorder/spool.hpp"
#include "requests/terms.hpp"
#include "rule/writer.hpp"
#include "tests/check.hpp"
#include "tests/temporary_directory.hpp"
#include "topic/endpoint.hpp"
#include "topic/reaping.hpp"
#include "topic/removal.hpp"

using namespace ringmain;

namespace {

// Made by each test. Every topic in it must be gone when the test is over.
struct Fresh : tests::TemporaryDirectory {
    Fresh() : TemporaryDirectory("native") {}
    ~Fresh() { CHECK(has_no_topic()); }
};

WriterRequest request(Contract contract, uint64_t capacity = 4096) {
    WriterRequest r;
    r.contract = contract;
    r.capacity_bytes = capacity;
    r.name = "unit";
    return r;
}

void text_is_made_valid() {
    CHECK(is_utf8("caf\xc3\xa9 \xf0\x9f\x8e\x89"));
    for (const char* wrong :
         {"\xff", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\x80"}) {
        CHECK(!is_utf8(wrong));
        CHECK(is_utf8(valid_utf8(wrong)));
    }
    CHECK(printable("a\x1b[2J\x7f\xc2\x9bz") == "a?[2J??z");
}

void sizes_are_what_the_layout_says() {
    CHECK(footprint(0, 0, 0) == 24);
    CHECK(footprint(1, 1, 0) == 40);
    for (const ContractTraits& row : kContracts) {
        uint64_t most = largest_message(contract_of_row(row), 4096);
        CHECK(room_for(footprint(most, 0, 0)) <= (row.writer_waits() ? 4096 : 2048));
        CHECK(contract_named(row.name) == contract_of_row(row));
    }
    CHECK(!contract_named("frames") && !contract_named("waiting"));
    CHECK(round_capacity(4097) == 8192);
    CHECK(topic_name(file_name("a/b")) == "a/b");
    CHECK(topic_name("bell").empty());
}

void what_is_no_topic_is_refused() {
    Fresh fresh;
    const std::shared_ptr<Directory>& directory = *fresh;
    CHECK_FAULT(not_found, TopicFile::open(directory, "t", Access::read));
    int fd = openat(directory->fd(), "t.ring", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK_FAULT(corrupt, TopicFile::open(directory, "t", Access::read));
    CHECK(ftruncate(fd, 1 << 20) == 0);
    CHECK_FAULT(corrupt, TopicFile::open(directory, "t", Access::write));
    CHECK_FAULT(corrupt, unlink_topic(directory, "t", false));
    CHECK(unlink_topic(directory, "t", true));
    CHECK(symlinkat("/etc/passwd", directory->fd(), "t.ring") == 0);
    CHECK_FAULT(not_allowed, TopicFile::open(directory, "t", Access::read));
    CHECK_FAULT(not_allowed, unlink_topic(directory, "t", true));
    unlinkat(directory->fd(), "t.ring", 0);
    close(fd);
}

void the_last_to_leave_takes_the_topic_away() {
    Fresh fresh;
    const std::shared_ptr<Directory>& directory = *fresh;
    auto writer = join_as_writer(directory, "t", request(Contract::reliable));
    auto reader = join_as_reader(directory, "t", "r");
    CHECK(reader && reader->slot() != writer->slot());
    CHECK_FAULT(busy, unlink_topic(directory, "t", false));
    writer.reset();
    CHECK(join_as_reader(directory, "t", "another"));
    reader.reset();
    CHECK(!join_as_reader(directory, "t", "late"));
}

void one_writer_is_one_writer() {
    Fresh fresh;
    const std::shared_ptr<Directory>& directory = *fresh;
    auto first = join_as_writer(directory, "t", request(Contract::broadcast));
    CHECK_FAULT(busy, join_as_writer(directory, "t", request(Contract::broadcast)));
    Writer old(ring_of(first->topic_file()), first->slot());
    CHECK(old.attach() == Status::ok && old.begin() == Status::ok);
    old.end();
    WriterRequest wanted = request(Contract::broadcast);
    wanted.takeover = true;
    auto second = join_as_writer(directory, "t", wanted);
    CHECK(old.begin() == Status::taken_over);
    first.reset();
    second.reset();
}

// A writer that has asked for the turn and is stopped before it takes it must not take it from a later taking, for which
// another has asked. The explorer's case of it is too large.
void no_two_takings_look_alike() {
    Fresh fresh;
    const std::shared_ptr<Directory>& directory = *fresh;
    std::unique_ptr<Participant> joined[3];
    for (auto& one : joined) one = join_as_writer(directory, "t", request(Contract::bus));
    Ring ring = ring_of(joined[0]->topic_file());
    Writer owner(ring, joined[0]->slot()), second(ring, joined[1]->slot()), third(ring, joined[2]->slot());
    auto asked_by = [&](Writer& other) {
        CHECK(owner.begin() == Status::ok);
        other.take_idle_turn();
        CHECK(other.begin() == Status::blocked && other.arm().word != nullptr);
        uint64_t turn = ring.header.turn.load(std::memory_order_relaxed);
        CHECK(turn & kTurnAsked && turn_slot(turn, ring.slot_count) == joined[0]->slot());
        owner.end();
        return turn;
    };
    CHECK(asked_by(second) != asked_by(third));
}

constexpr int64_t kLater_ns = 1'000'000'000;  // after a pause, which ends a burst

// Three writers of a topic, without a wait: who comes for the turn while another has it is `blocked`.
struct Rivals : Fresh {
    std::unique_ptr<Participant> joined[3];
    std::vector<Writer> writers;
    Header* header;

    Rivals() {
        for (auto& one : joined) {
            one = join_as_writer(**this, "t", request(Contract::bus));
            writers.emplace_back(ring_of(one->topic_file()), one->slot());
        }
        header = &joined[0]->topic_file().header();
    }
    uint64_t turn() const { return header->turn.load(std::memory_order_relaxed); }
    bool has_turn(int writer) const { return turn_slot(turn(), kDefaultSlotCount) == joined[writer]->slot(); }
    // The first has the turn, the others come for it, and it gives it back. How often it was taken by then.
    uint32_t come_one_after_another() {
        CHECK(writers[0].begin() == Status::ok);
        uint32_t had = turn_count(turn());
        CHECK(writers[1].begin() == Status::blocked && writers[2].begin() == Status::blocked);
        finish(writers[0], kLater_ns);
        CHECK(turn_free(turn()));
        return had;
    }
    // A message, and the end of the turn where it is time. `writer` has begun.
    void finish(Writer& writer, int64_t time_ns) {
        CHECK(writer.prepare(64) == Status::ok);
        writer.seal(writer.seq(), time_ns, 8, {}, {});
        writer.commit();
    }
};

void writers_get_the_turn_in_the_order_in_which_they_came() {
    Rivals rivals;
    Writer &first = rivals.writers[0], &second = rivals.writers[1], &third = rivals.writers[2];
    uint32_t had = rivals.come_one_after_another();
    // The third does not take the turn before the second at once, and not for good if the second does not come.
    CHECK(third.begin() == Status::ok && turn_count(rivals.turn()) == had + 2);
    CHECK(first.begin() == Status::blocked && second.begin() == Status::blocked);
    rivals.finish(third, kLater_ns);
    // The second was passed, and comes after the first now.
    CHECK(first.begin() == Status::ok && turn_count(rivals.turn()) == had + 3);
    rivals.finish(first, 2 * kLater_ns);
    CHECK(second.begin() == Status::ok && turn_count(rivals.turn()) == had + 4);
    second.end();
}

// It may have slept, and the one that passed it come again meanwhile.
void who_was_passed_takes_a_free_turn() {
    Rivals rivals;
    Writer &first = rivals.writers[0], &second = rivals.writers[1], &third = rivals.writers[2];
    uint32_t had = rivals.come_one_after_another();
    CHECK(third.begin() == Status::ok && first.begin() == Status::blocked);
    rivals.finish(third, kLater_ns);
    CHECK(second.begin() == Status::ok && turn_count(rivals.turn()) == had + 3);
    second.end();
}

// Another process may write anything there.
void a_damaged_ticket_delays_no_writer() {
    for (uint32_t damaged : {1u << 31, UINT32_MAX, 1000u, kDefaultSlotCount + 5}) {
        Rivals rivals;
        CHECK(rivals.writers[0].begin() == Status::ok);
        rivals.header->last_ticket.store(turn_count(rivals.turn()) + damaged, std::memory_order_relaxed);
        CHECK(rivals.writers[1].begin() == Status::blocked);
        rivals.finish(rivals.writers[0], kLater_ns);
        CHECK(rivals.writers[1].begin() == Status::ok && turn_count(rivals.turn()) == 2);
        rivals.writers[1].end();
    }
}

// Who has waited for others longer than a pause may take goes on for a burst all the same.
void a_wait_for_others_ends_no_burst() {
    Rivals rivals;
    Writer &other = rivals.writers[0], &waits = rivals.writers[1];
    timespec wait{0, 5'000'000};
    CHECK(other.begin() == Status::ok && waits.begin() == Status::blocked);
    nanosleep(&wait, nullptr);
    rivals.finish(other, kLater_ns);
    CHECK(waits.begin() == Status::ok);
    rivals.finish(waits, wait.tv_nsec);
    CHECK(rivals.has_turn(1) && waits.begin() == Status::ok);
    rivals.finish(waits, kLater_ns);  // this was a pause of its own
    CHECK(turn_free(rivals.turn()));
}

// What a child that inherited a publisher asks for: to replace its parent, but not a sibling that was faster.
void a_heir_replaces_only_the_writer_it_came_from() {
    Fresh fresh;
    const std::shared_ptr<Directory>& directory = *fresh;
    auto parent = join_as_writer(directory, "t", request(Contract::broadcast));
    WriterRequest heir = request(Contract::broadcast);
    heir.replaces = {parent->topic_file().epoch, parent->slot(), parent->generation()};
    auto first = join_as_writer(directory, "t", heir);
    CHECK_FAULT(busy, join_as_writer(directory, "t", heir));
    first.reset();
    parent.reset();
    auto stranger =
        join_as_writer(directory, "t", request(Contract::broadcast));  // perhaps in the parent's slot
    CHECK_FAULT(busy, join_as_writer(directory, "t", heir));
    stranger.reset();
    CHECK(join_as_writer(directory, "t", heir));  // no other writer: nothing to replace
}

// A daemonizer closes descriptors that it did not open. The number may then be another file's. No lock of a participant hangs on
// it, and the file is opened again as long as it has its name.
void a_descriptor_closed_by_others_is_opened_again() {
    Fresh fresh;
    const std::shared_ptr<Directory>& directory = *fresh;
    auto writer = join_as_writer(directory, "t", request(Contract::bus));
    auto reader = join_as_reader(directory, "t", "r");
    const TopicFile& s = writer->topic_file();
    auto from_outside = TopicFile::open(directory, "t", Access::observe);
    int number = s.fd().number();
    CHECK(number == reader->topic_file().fd().number());
    auto close_it = [&] {
        CHECK(close(number) == 0);
        int stranger = openat(directory->fd(), "stranger", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        CHECK(stranger == number);
        return stranger;
    };
    int stranger = close_it();
    for (uint32_t slot : {writer->slot(), reader->slot()}) CHECK(slot_alive(*from_outside, slot));
    CHECK(RosterLock(s, 0).held());
    number = s.fd().number();
    CHECK(number != stranger && number == reader->topic_file().fd().number());

    int second = close_it();
    CHECK(renameat(directory->fd(), "t.ring", directory->fd(), "elsewhere") == 0);
    CHECK_FAULT(system, RosterLock(writer->topic_file()));
    CHECK_FAULT(system, reap_if_dead(writer->topic_file(), reader->slot()));
    CHECK(slot_alive(writer->topic_file(), reader->slot()));  // it cannot tell, so it does not reap
    CHECK(renameat(directory->fd(), "elsewhere", directory->fd(), "t.ring") == 0);
    writer.reset();
    reader.reset();
    for (int each : {stranger, second}) {
        CHECK(fcntl(each, F_GETFD) >= 0);  // still open
        struct flock any{.l_type = F_WRLCK};
        CHECK(fcntl(each, F_OFD_GETLK, &any) == 0 && any.l_type == F_UNLCK);
        close(each);
    }
    unlinkat(directory->fd(), "stranger", 0);
}

// Beyond half of what the process may have, the files that were opened first are closed, and opened again when they are needed.
void more_topics_than_descriptors() {
    Fresh fresh;
    const std::shared_ptr<Directory>& directory = *fresh;
    rlimit before{}, few{};
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few = {64, before.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    std::vector<std::unique_ptr<Participant>> writers, readers;
    for (int i = 0; i < 200; ++i) {
        std::string topic = "t" + std::to_string(i);
        writers.push_back(join_as_writer(directory, topic, request(Contract::reliable)));
        readers.push_back(join_as_reader(directory, topic, "r"));
    }
    for (size_t i = 0; i < writers.size(); ++i) {
        CHECK(RosterLock(writers[i]->topic_file(), 0).held());
        CHECK(slot_alive(readers[i]->topic_file(), writers[i]->slot()));
        uint32_t slot = readers[i]->slot();
        readers[i].reset();
        CHECK(!slot_taken(writers[i]->topic_file(), slot));
    }
    // In a file whose roster is locked none is closed: the lock hangs on it.
    RosterLock kept(writers[0]->topic_file(), 0);
    for (const auto& writer : writers) (void)writer->topic_file().fd();
    auto other = TopicFile::open(directory, "t0", Access::observe);
    struct flock roster{.l_type = F_WRLCK, .l_start = kRosterLockByte, .l_len = 1};
    CHECK(fcntl(other->fd().number(), F_OFD_GETLK, &roster) == 0 && roster.l_type == F_WRLCK);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

// The kernel drops a lock when its process dies, also where a child of it lives on.
void a_child_keeps_no_lock_of_its_parent() {
    Fresh fresh;
    const std::shared_ptr<Directory>& directory = *fresh;
    auto observer = join_as_writer(directory, "t", request(Contract::bus));
    int alive[2], over[2];
    CHECK(pipe(alive) == 0 && pipe(over) == 0);
    pid_t parent = fork();
    if (parent == 0) {
        auto own = std::make_shared<Directory>(directory->path(), false);
        auto participant = join_as_reader(own, "t", "parent");
        RosterLock lock(participant->topic_file());
        if (fork() == 0) {
            char byte = 0;
            close(over[1]);
            (void)!write(alive[1], "c", 1);
            (void)!read(over[0], &byte, 1);
        }
        _exit(0);  // with the roster locked
    }
    char byte = 0;
    int status = 0;
    CHECK(read(alive[0], &byte, 1) == 1);  // the child runs
    CHECK(waitpid(parent, &status, 0) == parent);
    const TopicFile& s = observer->topic_file();
    CHECK(slot_taken(s, observer->slot() + 1) && !slot_alive(s, observer->slot() + 1));
    CHECK(RosterLock(s, 0).held());
    for (int end : {alive[0], alive[1], over[0], over[1]}) close(end);
}

void the_dead_are_reaped() {
    Fresh fresh;
    const std::shared_ptr<Directory>& directory = *fresh;
    auto writer = join_as_writer(directory, "t", request(Contract::reliable));
    pid_t child = fork();
    if (child == 0) {
        auto own = std::make_shared<Directory>(directory->path(), false);
        auto participant = join_as_reader(own, "t", "dead");
        Reader reader(ring_of(participant->topic_file()), participant->slot(), Start::next, false);
        _exit(reader.attach(Start::next) == Status::ok ? 7 : 8);  // without leaving
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WEXITSTATUS(status) == 7);
    TopicFile& s = writer->topic_file();
    uint32_t dead = writer->slot() + 1;
    CHECK(slot_taken(s, dead) && !slot_alive(s, dead));
    CHECK((s.slot(dead).hold.load(std::memory_order_relaxed) & kPositionMask) != kNoHold);
    {
        auto other = TopicFile::open(directory, "t", Access::write);  // as of a process that has stopped
        RosterLock locked(*other);
        CHECK(!reap_if_dead(s, dead) && slot_taken(s, dead));
        CHECK(!RosterLock(s, std::try_to_lock).held());
        CHECK_FAULT(roster_locked, RosterLock(s, 0));
        CHECK(!unlink_if_dead(directory, "t"));
    }
    CHECK(reap_if_dead(s, dead) && !slot_taken(s, dead));
    CHECK((s.slot(dead).hold.load(std::memory_order_relaxed) & kPositionMask) == kNoHold);
    CHECK(!reap_if_dead(s, dead));
    // A hold in a free slot has no owner: it is reset as well.
    s.slot(dead).hold.store(0, std::memory_order_relaxed);
    CHECK(reap_if_dead(s, dead));
    writer.reset();
}

void a_schema_is_whole_or_the_one_before() {
    Fresh fresh;
    const std::shared_ptr<Directory>& directory = *fresh;
    WriterRequest wanted = request(Contract::bus);
    wanted.schema = "first";
    auto writer = join_as_writer(directory, "t", wanted);
    TopicFile& s = writer->topic_file();
    CHECK(s.schema() == "first");
    for (std::string next : {std::string(4000, 'x'), std::string(), std::string("third")}) {
        RosterLock lock(s);
        s.set_schema(next);
        CHECK(s.schema() == next);
    }
    RosterLock lock(s);
    CHECK_FAULT(system, s.set_schema(std::string(100'000, 'y')));
    CHECK(s.schema() == "third");
    s.header().schema_bytes[0].store(~uint64_t{0}, std::memory_order_relaxed);
    s.header().schema_bytes[1].store(~uint64_t{0}, std::memory_order_relaxed);
    CHECK_FAULT(corrupt, s.schema());
}

void a_removal_begun_is_finished() {
    Fresh fresh;
    const std::shared_ptr<Directory>& directory = *fresh;
    auto writer = join_as_writer(directory, "t", request(Contract::bus));
    {
        RosterLock lock(writer->topic_file());
        stop_writers(writer->topic_file(), lock);  // and then the process that removes it dies
    }
    Writer w(ring_of(writer->topic_file()), writer->slot());
    CHECK(w.begin() == Status::taken_over);
    auto next = join_as_writer(directory, "t", request(Contract::bus));
    CHECK(next->topic_file().inode != writer->topic_file().inode && writer->topic_file().retired());
    next->topic_file().header().retired.store(1, std::memory_order_release);  // marked, and then it dies
    auto third = join_as_writer(directory, "t", request(Contract::bus));
    CHECK(third->topic_file().inode != next->topic_file().inode);
    CHECK(finish_removal(writer->topic_file()) && !finish_removal(third->topic_file()));
    writer.reset();
    next.reset();
    third.reset();
}

void bulk_copies_are_copies() {
    std::string from(70'000, '\0');
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 31 + i / 256);
    for (CopyMethod way : {CopyMethod::ordinary, CopyMethod::string, CopyMethod::streaming})
        for (size_t at : {0, 1, 63})
            for (size_t size : {0, 1, 63, 64, 200, 65'536, 69'000}) {
                std::string to(70'000, '!');
                copy_bulk(way, to.data() + at, from.data() + 7, size);
                CHECK(to ==
                      std::string(at, '!') + from.substr(7, size) + std::string(70'000 - at - size, '!'));
            }
}

// Copies until the choice settles; returns the method used most among the last hundred.
CopyMethod settles_on(CopyChoice& choice, const std::function<float(CopyMethod)>& cost) {
    std::vector<int> taken(3);
    for (int i = 0; i < 2000; ++i) {
        CopyMethod way = choice.next();
        choice.learn(way, cost(way));
        if (i >= 1900) ++taken[static_cast<size_t>(way)];
    }
    return static_cast<CopyMethod>(std::max_element(taken.begin(), taken.end()) - taken.begin());
}

void the_fastest_way_to_copy_is_found() {
    if (kCopyMethods == 1) return;
    using enum CopyMethod;
    CopyChoice choice;
    auto near = [](CopyMethod way) { return way == ordinary ? 2.1f : way == string ? 1.9f : 2.6f; };
    auto far = [](CopyMethod way) { return way == ordinary ? 17.f : way == string ? 20.f : 3.5f; };
    CHECK(settles_on(choice, near) == string);
    CHECK(settles_on(choice, far) == streaming);  // the reader was moved to another die
    CHECK(settles_on(choice, near) == string);    // and back
    uint32_t count = 0;
    auto interrupted = [&](CopyMethod way) { return near(way) * (++count % 3 ? 1.f : 40.f); };
    CHECK(settles_on(choice, interrupted) == string);
    int hopeless = 0;
    for (int i = 0; i < 10'000; ++i) {
        CopyMethod way = choice.next();
        hopeless += way != streaming;
        choice.learn(way, far(way));
    }
    CHECK(hopeless < 200);  // trials cost little
}

// Extension and kind together, as if a peer had written them: whatever it says, what is found lies within.
void an_extension_is_what_it_says() {
    ExtensionOf<TermsItem> terms({.deadline_ns = 81'234'500'000'000, .retry = 1});
    Said said = parts_of(std::string(std::string_view(terms)) + "grab");
    CHECK(std::string_view(terms).size() == 12 && said.extension.size() == 12 && said.kind.size() == 4);
    Terms found = terms_of(terms);
    CHECK(found.deadline_ns == 81'234'500'000'000 && found.retry);
    CHECK(!answer_of(terms) && answer_of(ReplySays(7))->number == 7);
    CHECK(std::string_view(RequestSays({})).empty() && terms_of("").deadline_ns == kForever);
    TraceItem trace{.trace_id = {0x4b, 0xf9}, .span_id = {0, 0xf0}, .flags = 1};
    CHECK(traceparent_of(trace) == "00-4bf90000000000000000000000000000-00f0000000000000-01");
    std::string both = std::string(std::string_view(terms)) + std::string(sizeof trace, '\0') + "grab";
    both[1] = static_cast<char>(sizeof(TermsItem) + sizeof trace);
    std::memcpy(&both[12], &trace, sizeof trace);
    CHECK(parts_of(both).kind == "grab" && item_of<TraceItem>(parts_of(both).extension)->flags == 1);

    CHECK(parts_of("grab").kind == "grab" && parts_of("grab").extension.empty());
    for (std::string wrong : {"\xff", "\xff\x05grab", "\xff\xff"})
        CHECK(parts_of(wrong).kind.empty() && parts_of(wrong).extension.empty());
    CHECK(parts_of(std::string_view("\xff\0grab", 6)).kind == "grab");
    // An item that is cut short, and one of a later version: what follows is not looked at.
    for (std::string items : {std::string("\x01\0\0", 3), std::string("\x09") + std::string(10, '\x01')}) {
        std::string made = "\xff" + std::string(1, static_cast<char>(items.size())) + items + "grab";
        CHECK(parts_of(made).kind == "grab" && !item_of<TermsItem>(parts_of(made).extension));
    }
    for (std::string_view outcome : {"\x03", "\xff"}) {
        std::string wrong(std::string_view(ReplySays(7)));
        wrong.back() = outcome[0];
        CHECK(!answer_of(wrong));
    }
}

// An empty kind: there is nothing to copy, and no pointer to copy it from. UBSan checks it in `make sanitize`.
void a_sender_needs_no_kind() {
    Fresh fresh;
    const std::shared_ptr<Directory>& directory = *fresh;
    auto writer = join_as_writer(directory, "t", request(Contract::broadcast));
    Reader reader(ring_of(writer->topic_file()), writer->slot(), Start::oldest, false);
    CHECK(reader.attach(Start::oldest) == Status::ok);
    Writer w(ring_of(writer->topic_file()), writer->slot());
    CHECK(w.attach() == Status::ok && w.begin() == Status::ok);
    CHECK(w.prepare(room_for(footprint(0, 2, 0))) == Status::ok);
    copy_in(w.payload(2, 0), nullptr, 0);
    w.seal(w.seq(), 1, 0, "me", {});
    w.commit();
    View view;
    CHECK(reader.peek(view) == Status::ok && view.sender_size == 2 && view.kind_size == 0);
    writer.reset();
}

void what_is_spooled_is_written_in_order() {
    char path[] = "/dev/shm/ringmain-native-XXXXXX";
    int fd = mkstemp(path);
    std::vector<std::vector<char>> sent;
    for (int i = 0; i < 200; ++i) sent.emplace_back(i % 3 == 0 ? 10 : 200'000, static_cast<char>(i));
    size_t total = 0;
    Spool spool;
    for (auto& bytes : sent) {
        Spool::Job job{fd, {{bytes.data(), 5}, {nullptr, 0}, {bytes.data() + 5, bytes.size() - 5}}};
        CHECK(spool.put(std::move(job)) == ++total);
        CHECK(spool.written() <= total && spool.written() <= spool.finished());
        if (total % 50 == 0) spool.close();  // the next one starts it again
    }
    CHECK(spool.wait() == 0 && spool.written() == total);
    lseek(fd, 0, SEEK_SET);
    for (auto& bytes : sent) {
        std::vector<char> found(bytes.size());
        CHECK(read(fd, found.data(), found.size()) == static_cast<ssize_t>(found.size()) && found == bytes);
    }
    close(fd);
    unlink(path);
}

void after_a_failure_nothing_is_spooled() {
    int full = open("/dev/full", O_WRONLY);
    std::vector<char> bytes(1'000'000);
    Spool spool;
    for (int i = 0; i < 5; ++i) spool.put({full, {{bytes.data(), bytes.size()}}});
    CHECK(spool.wait() == ENOSPC && spool.written() == 0 && spool.finished() == 5);
    int null = open("/dev/null", O_WRONLY);
    spool.put({null, {{bytes.data(), 1}}});
    CHECK(spool.wait() == ENOSPC && spool.written() == 0 && spool.finished() == 6);
    close(full);
    close(null);
}

// A test that fails in the middle ends with exit(), and leaves nothing in shared memory.
void a_directory_goes_with_the_process_that_made_it() {
    char path[64] = {};
    int ends[2];
    CHECK(pipe(ends) == 0);
    std::fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        Fresh fresh;
        auto writer = join_as_writer(*fresh, "t", request(Contract::broadcast));
        (void)!write(ends[1], fresh.path().data(), fresh.path().size());
        std::exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WEXITSTATUS(status) == 7 && read(ends[0], path, sizeof path - 1) > 0);
    CHECK(access(path, F_OK) != 0);
    for (int end : ends) close(end);
}

}  // namespace

int main() {
    text_is_made_valid();
    a_directory_goes_with_the_process_that_made_it();
    sizes_are_what_the_layout_says();
    what_is_no_topic_is_refused();
    the_last_to_leave_takes_the_topic_away();
    one_writer_is_one_writer();
    no_two_takings_look_alike();
    writers_get_the_turn_in_the_order_in_which_they_came();
    who_was_passed_takes_a_free_turn();
    a_damaged_ticket_delays_no_writer();
    a_wait_for_others_ends_no_burst();
    a_heir_replaces_only_the_writer_it_came_from();
    a_descriptor_closed_by_others_is_opened_again();
    more_topics_than_descriptors();
    a_child_keeps_no_lock_of_its_parent();
    the_dead_are_reaped();
    a_schema_is_whole_or_the_one_before();
    a_removal_begun_is_finished();
    bulk_copies_are_copies();
    the_fastest_way_to_copy_is_found();
    an_extension_is_what_it_says();
    a_sender_needs_no_kind();
    what_is_spooled_is_written_in_order();
    after_a_failure_nothing_is_spooled();
    std::printf("%s\n", tests::failures ? "failed" : "all hold");
    return tests::failures != 0;
}
