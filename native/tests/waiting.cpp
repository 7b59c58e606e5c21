// What blocks, with a Host of C++, without Python: waits for many readers at once, for readers, for frames and their buffers.
#include <algorithm>
#include <cstdio>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "frames/frame_ends.hpp"
#include "tests/check.hpp"
#include "tests/temporary_directory.hpp"
#include "topic/endpoint.hpp"
#include "waiting/blocking_writer.hpp"
#include "waiting/wait_for_any.hpp"

using namespace ringmain;

namespace {

using Indexes = std::vector<size_t>;
constexpr int64_t kLong_ns = 60'000'000'000;  // no test takes as long

// A topic with its writer. Every topic must be gone when the test is over.
struct Sender {
    BlockingWriter end;

    Sender(const std::shared_ptr<Directory>& directory, const std::string& topic,
           Contract contract = Contract::broadcast) {
        WriterRequest request;
        request.contract = contract;
        request.capacity_bytes = 4096;
        request.name = "sender";
        end.participant = join_as_writer(directory, topic, request);
        end.writer = std::make_unique<Writer>(ring_of(end.topic_file()), end.participant->slot());
        if (traits(contract).one_writer) CHECK(end.writer->attach() == Status::ok);
        end.spin.set(-1);
    }
    void send(const void* data = nullptr, size_t size = 0) {
        PlainHost host;
        Deadline deadline(kLong_ns);
        CHECK(end.start(room_for(footprint(size, 0, 0)), deadline, host) == Outcome::ready);
        copy_in(end.writer->payload(0, 0), data, size);
        end.writer->seal(end.writer->seq(), 0, size, {}, {});
        end.writer->commit();
    }
};

struct Receiver {
    BlockingReader end;
    PlainReaderHost<PlainHost> host;

    Receiver(const std::shared_ptr<Directory>& directory, const std::string& topic) {
        end.directory_path = directory->path();
        end.topic = topic;
        end.name = "receiver";
        end.spin.set(0);
        end.attach(host);
    }
    ~Receiver() { end.leave(host); }
    // Takes the message that is there.
    void take() {
        View view;
        CHECK(end.now(view, false, true, host) == Outcome::ready);
        end.reader->take(view);
        if (end.work) {
            end.work->end_of_call(end.reader->messages(), false, end.leases);
            end.work->finish_received();
            end.work->worker.release(kNoHold);
        } else {
            end.reader->release(kNoHold);
        }
    }
};

template <class H>
Outcome wait(const std::vector<BlockingReader*>& readers, int64_t timeout_ns, Indexes& ready, H host,
             std::optional<uint32_t> directory_seen = {}) {
    Deadline deadline(timeout_ns);
    OwnReaders own(std::span<BlockingReader* const>(readers), host);
    return wait_for_any(readers.size(), deadline, ready, own, directory_seen);
}
using Plain = PlainReaderHost<PlainHost>;

// Of every contract one, each woken by its own writer while the other sleeps on.
void those_with_a_message_are_found() {
    tests::TemporaryDirectory fresh("waiting");
    for (const ContractTraits& row : kContracts) {
        Sender sender(*fresh, row.name, contract_of_row(row)), silent(*fresh, "silent");
        Receiver one(*fresh, row.name), other(*fresh, "silent");
        std::vector<BlockingReader*> both{&other.end, &one.end};
        Indexes ready;
        CHECK(wait(both, 0, ready, Plain()) == Outcome::timed_out && ready.empty());
        CHECK(wait(both, 1'000'000, ready, Plain()) == Outcome::timed_out && ready.empty());
        std::thread sends([&] { sender.send(); });
        CHECK(wait(both, kLong_ns, ready, Plain()) == Outcome::ready && ready == Indexes{1});
        sends.join();
        silent.send();
        CHECK(wait(both, kLong_ns, ready, Plain()) == Outcome::ready && ready == (Indexes{0, 1}));
        one.take();
        other.take();
        CHECK(wait(both, 0, ready, Plain()) == Outcome::timed_out);
    }
    CHECK(fresh.has_no_topic());
}

void a_topic_that_is_made_meanwhile_is_found() {
    tests::TemporaryDirectory fresh("waiting");
    {
        Receiver one(*fresh, "late"), other(*fresh, "later");
        Indexes ready;
        uint32_t seen = (*fresh)->changes();
        std::thread makes([&] {
            Sender sender(*fresh, "later", Contract::reliable);
            sender.send();
        });
        CHECK(wait({&one.end, &other.end}, kLong_ns, ready, Plain()) == Outcome::ready);
        CHECK(ready == Indexes{1});
        makes.join();
        CHECK(wait({&one.end}, kLong_ns, ready, Plain(), seen) == Outcome::ready && ready.empty());
        other.take();
    }
    CHECK(fresh.has_no_topic());
}

void a_stop_ends_the_wait() {
    tests::TemporaryDirectory fresh("waiting");
    {
        Sender sender(*fresh, "t");
        Receiver there(*fresh, "t"), not_there(*fresh, "none");
        for (std::vector<BlockingReader*> readers :
             {std::vector{&there.end}, std::vector{&not_there.end, &there.end}}) {
            std::stop_source source;
            std::thread stops([&] { source.request_stop(); });
            Indexes ready;
            PlainReaderHost<StoppableHost> host(source.get_token());
            CHECK(wait(readers, kLong_ns, ready, host) == Outcome::stopped);
            stops.join();
        }
    }
    CHECK(fresh.has_no_topic());
}

// More bells than the kernel takes in one call.
void many_topics_are_waited_for() {
    tests::TemporaryDirectory fresh("waiting");
    {
        std::vector<std::unique_ptr<Sender>> senders;
        std::vector<std::unique_ptr<Receiver>> receivers;
        std::vector<BlockingReader*> readers;
        for (size_t i = 0; i <= kMaxBells; ++i) {
            senders.push_back(std::make_unique<Sender>(*fresh, "t" + std::to_string(i)));
            receivers.push_back(std::make_unique<Receiver>(*fresh, "t" + std::to_string(i)));
            readers.push_back(&receivers.back()->end);
        }
        Indexes ready;
        CHECK(wait(readers, 50'000'000, ready, Plain()) == Outcome::timed_out);
        std::thread sends([&] { senders.back()->send(); });
        CHECK(wait(readers, kLong_ns, ready, Plain()) == Outcome::ready && ready == Indexes{kMaxBells});
        sends.join();
    }
    CHECK(fresh.has_no_topic());
}

void readers_are_waited_for() {
    tests::TemporaryDirectory fresh("waiting");
    {
        Sender sender(*fresh, "t");
        PlainHost host;
        uint32_t readers = 0;
        Deadline brief(1'000'000), deadline(kLong_ns);
        const std::shared_ptr<TopicFile>& file = sender.end.participant->shared();
        CHECK(wait_for_readers(file, 1, readers, brief, host) == Outcome::timed_out && readers == 0);
        std::unique_ptr<Receiver> receiver;
        std::thread joins([&] { receiver = std::make_unique<Receiver>(*fresh, "t"); });
        CHECK(wait_for_readers(file, 1, readers, deadline, host) == Outcome::ready && readers == 1);
        joins.join();
        std::stop_source source;
        source.request_stop();
        StoppableHost stopped(source.get_token());
        CHECK(wait_for_readers(file, 2, readers, deadline, stopped) == Outcome::stopped);
    }
    CHECK(fresh.has_no_topic());
}

// A publisher with two buffers: its third frame waits until a reader gives one back, and a frame that was not leased in time is
// counted as lost.
void frames_and_buffers_are_waited_for() {
    tests::TemporaryDirectory fresh("waiting");
    {
        Sender sender(*fresh, "t");
        PoolRequest request{.buffer_count = 2, .buffer_bytes = 64, .name = "sender"};
        std::unique_ptr<PoolWriter> pool = create_pool(*fresh, "t", request);
        auto claim = [&](int64_t timeout_ns) {
            PlainHost host;
            Deadline deadline(timeout_ns);
            uint32_t buffer = 0;
            Outcome how = wait_for_buffer(*pool, sender.end.ring(), sender.end.spin, deadline, buffer, host);
            return std::pair(how, buffer);
        };
        auto publish = [&](uint32_t buffer) {
            Descriptor descriptor{.magic = kDescriptorMagic, .version = kPoolVersion};
            descriptor.buffer = buffer;
            descriptor.pool = pool->pool().epoch();
            descriptor.number = pool->seal(buffer);
            sender.send(&descriptor, sizeof descriptor);
            pool->sent(buffer, sender.end.writer->position());
            pool->give_back(buffer);
        };
        Receiver receiver(*fresh, "t");
        FrameReader frames;
        frames.joined(receiver.end);
        std::unique_ptr<PoolReader> leased;
        auto receive = [&](FoundFrame& found) {
            auto attach = [&](uint64_t epoch, PoolReader*& there) {
                Outcome how =
                    leased ? Outcome::ready : open_pool_of(receiver.end, epoch, leased, receiver.host);
                there = leased.get();
                return how;
            };
            Deadline deadline(kLong_ns);
            uint64_t lost = 0;
            CHECK(frames.next(receiver.end, deadline, found, attach, receiver.host) == Outcome::ready);
            CHECK(FrameReader::take(receiver.end, found, lost));
            return lost;
        };
        FoundFrame found, second;
        std::thread publishes([&] { publish(claim(0).second); });
        CHECK(receive(found) == 0);
        publishes.join();
        publish(claim(0).second);
        CHECK(receive(second) == 0 && second.descriptor.buffer != found.descriptor.buffer);
        CHECK(claim(1'000'000).first == Outcome::timed_out);  // the reader has both
        std::thread gives_back([&] { leased->release(found.descriptor.buffer); });
        auto [how, buffer] = claim(kLong_ns);
        gives_back.join();
        CHECK(how == Outcome::ready && buffer == found.descriptor.buffer);
        // Rewritten before the reader has looked.
        publish(buffer);
        publish(claim(0).second);
        leased->release(second.descriptor.buffer);
        CHECK(receive(found) == 1);
        leased->release(found.descriptor.buffer);
        claim(0);
        claim(0);
        CHECK(claim(kLong_ns).first == Outcome::not_there);  // all are ours
        leased.reset();
    }
    CHECK(fresh.has_no_topic());
}

}  // namespace

int main() {
    those_with_a_message_are_found();
    a_topic_that_is_made_meanwhile_is_found();
    a_stop_ends_the_wait();
    many_topics_are_waited_for();
    readers_are_waited_for();
    frames_and_buffers_are_waited_for();
    std::printf("%s\n", tests::failures ? "failed" : "all hold");
    return tests::failures != 0;
}
