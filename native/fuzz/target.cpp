// An input is a list of patches to a valid topic: which contract, how it is used, and records that write bytes
// somewhere, before the topic is opened or, as a malicious peer would, while it is used. So nearly every input gets past
// the magic number, and mutations of it are small changes of one topic. An input that begins with 0xff is the file itself.
#include "fuzz/target.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "fuzz/face.hpp"
#include "rule/extension.hpp"
#include "rule/reader.hpp"
#include "rule/writer.hpp"
#include "topic/endpoint.hpp"
#include "topic/reaping.hpp"
#include "topic/removal.hpp"

namespace ringmain::fuzz {

namespace {

constexpr const char* kFile = "t.ring";
constexpr uint64_t kCapacity = 4096;
constexpr int kMessages =
    12;  // that the reader looks at, and the writer sends: more than the ring has room for
constexpr size_t kHeaderWords[] = {
    offsetof(Header, claim),        offsetof(Header, tail),       offsetof(Header, commit),
    offsetof(Header, newest),       offsetof(Header, turn),       offsetof(Header, retired),
    offsetof(Header, slots_used),   offsetof(Header, membership), offsetof(Header, schema_version),
    offsetof(Header, schema_bytes), offsetof(Header, contract),   offsetof(Header, capacity_bytes),
    offsetof(Header, data_offset),  offsetof(Header, flags),      offsetof(Header, schema_offset),
    offsetof(Header, slot_count),
};
constexpr size_t kSlotWords[] = {offsetof(Slot, state), offsetof(Slot, role), offsetof(Slot, hold),
                                 offsetof(Slot, busy),  offsetof(Slot, pid),  offsetof(Slot, position)};

struct Template {
    std::vector<uint8_t> bytes;
    uint64_t schema_offset, data_offset;
};

const char* runtime_directory;

std::shared_ptr<Directory> directory() {
    static std::shared_ptr<Directory> made = std::make_shared<Directory>(runtime_directory, false);
    return made;
}

void send(Writer& writer, uint32_t size) {
    std::array<std::byte, 2048> payload{};
    std::string kind = "k";
    if (size == 200) kind.insert(0, ExtensionOf<TermsItem>({.deadline_ns = 1, .retry = 1}));
    if (writer.prepare(room_for(footprint(size, 1, kind.size()))) != Status::ok) return writer.end();
    copy_in(writer.payload(1, kind.size()), payload.data(), size);
    writer.seal(writer.seq(), 1, size, "s", kind);
    writer.commit();
}

// A topic with a few messages, a schema, and a reader and a writer that are dead.
Template make_template(Contract contract) {
    WriterRequest request;
    request.contract = contract;
    request.capacity_bytes = kCapacity;
    request.schema = "a schema";
    request.name = "fuzz";
    auto participant = join_as_writer(directory(), "t", request);
    auto reader = join_as_reader(directory(), "t", "reader");
    Reader(ring_of(reader->topic_file()), reader->slot(), Start::oldest, false).attach(Start::oldest);
    Writer writer(ring_of(participant->topic_file()), participant->slot());
    writer.attach();
    for (uint32_t size : {8u, 200u, 0u, 1000u})
        if (writer.begin() == Status::ok) send(writer, size);
    const TopicFile& s = participant->topic_file();
    Template t{std::vector<uint8_t>(s.data_offset + kCapacity), s.header().schema_offset, s.data_offset};
    if (pread(s.fd().number(), t.bytes.data(), t.bytes.size(), 0) != static_cast<ssize_t>(t.bytes.size()))
        std::abort();
    unlink_topic(directory(), "t", true);
    return t;
}

const Template& template_of(Contract contract) {
    static const std::array<Template, 4> all{make_template(Contract::broadcast),
                                             make_template(Contract::pipe), make_template(Contract::bus),
                                             make_template(Contract::reliable)};
    return all[static_cast<size_t>(contract) % 4];
}

// The input, read from its front; past its end everything is 0.
class Input {
    const uint8_t *at_, *end_;

  public:
    Input(const uint8_t* bytes, size_t size) : at_(bytes), end_(bytes + size) {}
    bool empty() const { return at_ == end_; }
    uint8_t byte() { return empty() ? 0 : *at_++; }
    uint64_t word(int bytes) {
        uint64_t value = 0;
        for (int i = 0; i < bytes; ++i) value |= uint64_t{byte()} << (8 * i);
        return value;
    }
    std::vector<uint8_t> some(size_t count) {
        std::vector<uint8_t> taken(at_, at_ + std::min<size_t>(count, static_cast<size_t>(end_ - at_)));
        at_ += taken.size();
        return taken;
    }
};

struct Patch {
    uint64_t offset;
    std::vector<uint8_t> bytes;
    bool later;  // while the topic is used
};

Patch next_patch(Input& input, const Template& t) {
    uint8_t where = input.byte();
    bool later = where & 0x80;
    auto word = [&](uint64_t offset) { return Patch{offset, input.some(8), later}; };
    switch (where % 6) {
        case 0:
            return word(kHeaderWords[input.byte() % std::size(kHeaderWords)]);
        case 1: {
            uint64_t slot = kRosterOffset + input.byte() % 4 * sizeof(Slot);
            return word(slot + kSlotWords[input.byte() % std::size(kSlotWords)]);
        }
        case 2:
            return word(t.data_offset + input.word(2) % kCapacity / 8 * 8);
        case 3: {
            uint64_t offset = input.word(2);
            return {offset, input.some(input.byte()), later};
        }
        case 4:
            return {t.schema_offset + input.byte() % 32, input.some(8), later};
        default: {
            uint64_t offset = t.data_offset + input.word(2) % kCapacity;
            return {offset, input.some(input.byte()), later};
        }
    }
}

struct Topic {
    int fd;
    std::vector<Patch> patches;
    size_t next = 0;

    void write(const Patch& p) const {
        if (pwrite(fd, p.bytes.data(), p.bytes.size(), static_cast<off_t>(p.offset)) < 0) std::abort();
    }
    // The malicious peer's turn. Never past the end: a longer file is another finding than a lie.
    void lie() {
        while (next < patches.size() && !patches[next].later) ++next;
        if (next < patches.size()) write(patches[next++]);
    }
};

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "fuzz: %s\n", what);
    std::abort();
}

void read_all(Topic& topic, uint8_t how) {
    auto participant =
        join_as_reader(directory(), "t", "fuzz", how & 1 ? ObserveMode::always : ObserveMode::never);
    if (!participant) return;
    const TopicFile& s = participant->topic_file();
    Reader reader(ring_of(s), participant->slot(), how & 2 ? Start::oldest : Start::next, how & 4, how & 1);
    topic.lie();
    Start start = how & 16 ? Start::newest : how & 8 ? Start::oldest : Start::next;
    if (reader.attach(start) != Status::ok) return;
    std::vector<std::byte> copy(s.capacity_bytes);
    for (int i = 0; i < kMessages; ++i) {
        topic.lie();
        View v{};
        Status status = how & 16 ? reader.borrow(v) : reader.peek(v);
        if (status == Status::empty) reader.bell();
        if (status != Status::ok) break;
        uint64_t begin = static_cast<uint64_t>(v.at - s.data()), end = begin + (v.end - v.position);
        require(begin < s.capacity_bytes && end <= begin + s.capacity_bytes, "a view outside the ring");
        require(v.payload() + v.size <= v.at + (v.end - v.position), "a payload outside its message");
        copy_out(copy.data(), v.payload(), v.size);
        const char* names = reinterpret_cast<const char*>(v.sender()) + v.sender_size;
        for (std::string_view part : {v.said().extension, v.said().kind})
            require(
                part.empty() || (part.data() >= names && part.data() + part.size() <= names + v.kind_size),
                "an extension or a kind outside its message");
        (void)item_of<TermsItem>(v.said().extension);
        (void)item_of<TraceItem>(v.said().extension);
        topic.lie();
        if (reader.still_whole(v))
            reader.take(v);
        else
            reader.skip(v);
        if (!reader.release()) break;
    }
}

void write_some(Topic& topic, uint8_t how) {
    WriterRequest request;
    request.takeover = how & 1;
    request.name = "fuzz";
    auto participant = join_as_writer(directory(), "t", request);
    Writer writer(ring_of(participant->topic_file()), participant->slot());
    topic.lie();
    if (writer.attach() != Status::ok) return;
    for (int i = 0; i < kMessages; ++i) {
        topic.lie();
        Status status = writer.begin();
        if (status == Status::blocked) {
            writer.arm();
            reap_if_dead(participant->topic_file(), writer.obstacle.slot);
            continue;
        }
        if (status != Status::ok) return;
        topic.lie();
        send(writer, how & 2 ? 1000 : 8 * (how & 28));
    }
}

// The file that an input describes.
Topic lay_out(const uint8_t* bytes, size_t size) {
    Topic topic{openat(directory()->fd(), kFile, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), {}};
    Input input(bytes, size);
    uint8_t contract = input.byte();
    input.some(2);  // how it is read, and written
    uint8_t shrink = input.byte();
    if (contract == 0xff) {
        topic.write({0, {bytes + 1, bytes + size}, false});
    } else {
        const Template& t = template_of(static_cast<Contract>(contract % 4));
        size_t length = shrink & 1 ? t.bytes.size() * (shrink >> 1) / 128 : t.bytes.size();
        topic.write({0, {t.bytes.begin(), t.bytes.begin() + static_cast<ptrdiff_t>(length)}, false});
        while (!input.empty() && topic.patches.size() < 32) {
            Patch patch = next_patch(input, t);
            if (patch.offset + patch.bytes.size() > t.bytes.size()) continue;
            topic.patches.push_back(patch);
            if (!patch.later) topic.write(patch);
        }
    }
    return topic;
}

void take_away(const Topic& topic) {
    unlinkat(directory()->fd(), kFile, 0);
    close(topic.fd);
}

// A Failure is a correct result: the caller was told.
template <class Step>
void attempt(Step step) {
    try {
        step();
    } catch (const Failure&) {
    }
}

}  // namespace

void work_in(const char* path) { runtime_directory = path; }

void try_input(const uint8_t* bytes, size_t size) {
    static const bool templates_made = (template_of(Contract::broadcast), true);
    (void)templates_made;
    const uint8_t reads = size > 1 ? bytes[1] : 0, writes = size > 2 ? bytes[2] : 0;
    {
        Topic topic = lay_out(bytes, size);
        attempt([&] {
            auto looked_at = TopicFile::open(directory(), "t", Access::observe);
            for (uint32_t i = 0; i < looked_at->slot_count; ++i)
                look_at(*looked_at, i, slot_alive(*looked_at, i)).describe();
            looked_at->schema();
        });
        attempt([&] { read_all(topic, reads); });
        attempt([&] { write_some(topic, writes); });
        attempt([&] { read_all(topic, reads ^ 31); });
        attempt([&] { unlink_if_dead(directory(), "t"); });
        attempt([&] { unlink_topic(directory(), "t", true); });
        take_away(topic);
    }
    // The same file again, for a program that knows the C face alone.
    Topic topic = lay_out(bytes, size);
    auto lie = [&] { topic.lie(); };
    read_by_face(runtime_directory, reads, lie);
    write_by_face(runtime_directory, writes, lie);
    read_by_face(runtime_directory, reads ^ 31u, lie);
    attempt([&] { unlink_topic(directory(), "t", true); });
    take_away(topic);
}

}  // namespace ringmain::fuzz
