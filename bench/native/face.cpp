// What a C++ program gets of ringmain, by the headers and the library that are shipped; and beside it a queue for one writer and
// one reader that does nothing else:
//
//   face throughput COUNT        32 B on a pipe, one process to another, messages a second
//   face oneway COUNT            from send() in one process to receive() in another, both spinning, ns (median)
//   face roundtrip COUNT         there and back, ns (median)
//   face queue-throughput COUNT  the same of the queue, whose two sides share a ring of slots and an index each
//   face queue-roundtrip COUNT
//   face duties-oneway COUNT     the same queue, when both sides also do for each message what those of a bus must
//   face duties-roundtrip COUNT
//   face publish READERS COUNT   a send on `bus` with so many readers, ns
//   face send TOPIC COUNT HEX... sends so many of these messages, in turn, for each line on standard input, and then says "sent"
//
// With two CPUs at the end, each process stays on its own. Prints one number. Topics are in RINGMAIN_DIR.
#include <sys/wait.h>

#include <cstring>
#include <iostream>
#include <optional>
#include <ringmain/ringmain.hpp>
#include <string>

#include "base/clock.hpp"
#include "processes.hpp"

using namespace bench;
using namespace std::chrono_literals;

namespace {

constexpr size_t kSize = 32;
std::optional<std::chrono::nanoseconds> spin;  // of both sides; none: as it is when nothing is said
constexpr auto kPatience = 20s;

struct Payload {
    uint64_t counter;
    int64_t sent_ns;
    uint64_t rest[kSize / 8 - 2];
};
static_assert(sizeof(Payload) == kSize);

// A direction between two processes.
struct Topic {
    static ringmain::Publisher open(const char* name) {
        return ringmain::Publisher(name,
                                   {.contract = ringmain::Contract::pipe, .capacity = 1 << 20, .spin = spin});
    }
    class Sender {
        ringmain::Publisher publisher_;

      public:
        explicit Sender(const char* name) : publisher_(open(name)) {}
        void send(const Payload& payload) {
            publisher_.send(std::as_bytes(std::span(&payload, 1)), {}, kPatience).value();
        }
    };
    class Receiver {
        ringmain::Subscriber subscriber_;

      public:
        explicit Receiver(const char* name) : subscriber_(name, {.spin = spin}) {}
        Payload receive() {
            Payload payload;
            if (subscriber_.receive_into(std::as_writable_bytes(std::span(&payload, 1)), kPatience).value() !=
                kSize)
                wrong("a message of another size");
            return payload;
        }
    };
};

// As rigtorp's SPSCQueue: a ring of slots, an index of each side in a line of its own, and what each knows of the other's.
struct Queue {
    static constexpr uint64_t kSlots = 1 << 14;
    struct Shared {
        alignas(128) std::atomic<uint64_t> written{0};
        alignas(128) std::atomic<uint64_t> read{0};
        alignas(128) Payload slots[kSlots];
    };
    static inline Shared* there = nullptr;  // two of them, made before the fork

    static Shared& named(const char* name) { return there[std::strcmp(name, "back") == 0]; }
    class Sender {
        Shared& queue_;
        uint64_t written_ = 0, read_ = 0;

      public:
        explicit Sender(const char* name) : queue_(named(name)) {}
        void send(const Payload& payload) {
            if (written_ - read_ == kSlots)
                spin_until([&] {
                    return (read_ = queue_.read.load(std::memory_order_acquire)) + kSlots != written_;
                });
            queue_.slots[written_ % kSlots] = payload;
            queue_.written.store(++written_, std::memory_order_release);
        }
    };
    class Receiver {
        Shared& queue_;
        uint64_t written_ = 0, read_ = 0;

      public:
        explicit Receiver(const char* name) : queue_(named(name)) {}
        Payload receive() {
            if (read_ == written_)
                spin_until(
                    [&] { return (written_ = queue_.written.load(std::memory_order_acquire)) != read_; });
            Payload payload = queue_.slots[read_ % kSlots];
            queue_.read.store(++read_, std::memory_order_release);
            return payload;
        }
    };
};

// A queue whose sides also do what those of a bus cannot leave out: each message has a number, a time and a size; the writer says
// that it is busy, has the turn, and how far it will write; the reader looks after its copy whether the bytes were still whole;
// both count for observers, and look whether anybody sleeps. Still no roster, no deaths, no sleep, one size.
struct Duties {
    using Number = std::atomic<uint64_t>;
    static constexpr uint64_t kSlots = 1 << 14, kTurn = 1;
    static constexpr auto relaxed = std::memory_order_relaxed;
    struct Slot {
        Number number, time_ns, size;
        Payload payload;
    };
    struct Shared {
        alignas(128) Number claim{kSlots}, written{0}, newest{0};
        alignas(128) Number turn{kTurn};
        alignas(128) Number bell{0};
        alignas(128) Number busy{0}, sent{0}, sent_bytes{0};
        alignas(128) Number read{0}, received{0}, received_bytes{0}, number{0}, lost{0}, awaited{0};
        alignas(128) Slot slots[kSlots];
    };
    static inline Shared* there = nullptr;

    static Shared& named(const char* name) { return there[std::strcmp(name, "back") == 0]; }
    class Sender {
        Shared& queue_;
        uint64_t written_ = 0, read_ = 0, bytes_ = 0;
        ringmain::Clock<CLOCK_REALTIME> clock_;

      public:
        explicit Sender(const char* name) : queue_(named(name)) {}
        void send(const Payload& payload) {
            Shared& q = queue_;
            q.busy.store(1, relaxed);
            ringmain::compiler_barrier();
            if (q.turn.load(relaxed) != kTurn) wrong("the turn is not ours");
            if (written_ - read_ == kSlots) {
                spin_until(
                    [&] { return (read_ = q.read.load(std::memory_order_acquire)) + kSlots != written_; });
                q.claim.store(read_ + kSlots, relaxed);
                std::atomic_thread_fence(std::memory_order_release);
            }
            Slot& slot = q.slots[written_ % kSlots];
            slot.number.store(written_, relaxed);
            slot.time_ns.store(static_cast<uint64_t>(clock_.now_ns()), relaxed);
            slot.size.store(kSize, relaxed);
            slot.payload = payload;
            q.newest.store(written_, relaxed);
            q.written.store(++written_, std::memory_order_release);
            q.sent.store(written_, relaxed);
            q.sent_bytes.store(bytes_ += kSize, relaxed);
            q.busy.store(0, std::memory_order_release);
            ringmain::compiler_barrier();
            if (q.turn.load(relaxed) != kTurn || q.bell.load(relaxed)) wrong("nobody else is here");
        }
    };
    class Receiver {
        Shared& queue_;
        uint64_t written_ = 0, read_ = 0, bytes_ = 0;

      public:
        explicit Receiver(const char* name) : queue_(named(name)) {}
        Payload receive() {
            Shared& q = queue_;
            if (read_ == written_)
                spin_until([&] { return (written_ = q.written.load(std::memory_order_acquire)) != read_; });
            Slot& slot = q.slots[read_ % kSlots];
            uint64_t number = slot.number.load(relaxed), time_ns = slot.time_ns.load(relaxed),
                     size = slot.size.load(relaxed);
            Payload payload = slot.payload;
            std::atomic_thread_fence(std::memory_order_acquire);
            if (number != read_ || time_ns == 0 || size != kSize || q.claim.load(relaxed) > read_ + kSlots)
                wrong("a message is not whole");
            ++read_;
            q.received.store(read_, relaxed);
            q.received_bytes.store(bytes_ += kSize, relaxed);
            q.number.store(read_, relaxed);
            q.lost.store(0, relaxed);
            q.read.store(read_, std::memory_order_release);
            ringmain::compiler_barrier();
            if (q.awaited.load(relaxed)) wrong("nobody sleeps");
            return payload;
        }
    };
};

void expect(const Payload& payload, uint64_t counter) {
    if (payload.counter != counter) wrong("not the message that was sent");
}

// A direction there and one back, and a child at their other end.
template <class By, class Near, class Far>
double between_processes(Near near, Far far) {
    Line* ready = shared<Line>();
    auto becomes = [&](uint64_t step) {
        spin_until([&] { return ready->word.load(std::memory_order_acquire) == step; });
    };
    pid_t child = fork_pinned();
    if (child == 0) {
        {
            becomes(1);
            typename By::Sender back("back");
            typename By::Receiver there("there");
            ready->word.store(2, std::memory_order_release);
            far(there, back);
            becomes(3);
        }
        std::_Exit(0);
    }
    double found;
    {
        typename By::Sender there("there");
        ready->word.store(1, std::memory_order_release);
        becomes(2);
        typename By::Receiver back("back");
        found = near(there, back);
        ready->word.store(3, std::memory_order_release);
        waitpid(child, nullptr, 0);
    }
    return found;
}

template <class By>
double throughput(uint64_t count) {
    return between_processes<By>(
        [&](auto& there, auto& back) {
            int64_t start = now_ns();
            for (uint64_t i = 0; i < count; ++i) there.send({i, 0, {}});
            expect(back.receive(), count);
            return static_cast<double>(count) * 1e9 / static_cast<double>(now_ns() - start);
        },
        [&](auto& there, auto& back) {
            for (uint64_t i = 0; i < count; ++i) expect(there.receive(), i);
            back.send({count, 0, {}});
        });
}

// There and back: a score of turns between two looks at the clock, as the cache line's are measured (floor.cpp).
template <class By>
double round_trip(uint64_t count) {
    constexpr uint64_t kTurns = 20;
    count = (count + kTurns - 1) / kTurns * kTurns;
    return between_processes<By>(
        [&](auto& there, auto& back) {
            std::vector<double> found;
            for (uint64_t i = 0; i < count;) {
                int64_t start = now_ns();
                for (uint64_t turn = 0; turn < kTurns; ++turn, ++i) {
                    there.send({i, 0, {}});
                    expect(back.receive(), i);
                }
                found.push_back(static_cast<double>(now_ns() - start) / kTurns);
            }
            return centile(std::move(found), 0.5);
        },
        [&](auto& there, auto& back) {
            for (uint64_t i = 0; i < count; ++i) back.send(there.receive());
        });
}

// From before the one sends to after the other has received: the clock is the same in both processes.
template <class By>
double one_way(uint64_t count) {
    return between_processes<By>(
        [&](auto& there, auto& back) {
            std::vector<double> found;
            for (uint64_t i = 0; i < count; ++i) {
                int64_t start = now_ns();
                there.send({i, start, {}});
                Payload answer = back.receive();
                expect(answer, i);
                found.push_back(static_cast<double>(answer.sent_ns - start));
            }
            return centile(std::move(found), 0.5);
        },
        [&](auto& there, auto& back) {
            for (uint64_t i = 0; i < count; ++i) {
                Payload payload = there.receive();
                payload.sent_ns = now_ns();
                back.send(payload);
            }
        });
}

// Of bursts, what the fastest tenth stays under. The readers do not read: on bus a writer looks at what each holds, and waits for none.
double publish(uint64_t readers, uint64_t count) {
    constexpr uint64_t kBurst = 1000;
    ringmain::Publisher publisher("crowd", {.contract = ringmain::Contract::bus, .capacity = 1 << 20});
    std::vector<ringmain::Subscriber> crowd;
    for (uint64_t i = 0; i < readers; ++i) crowd.emplace_back("crowd");
    Payload payload{};
    std::vector<double> found;
    for (uint64_t sent = 0; sent < count; sent += kBurst) {
        int64_t start = now_ns();
        for (uint64_t i = 0; i < kBurst; ++i) publisher.send(std::as_bytes(std::span(&payload, 1))).value();
        found.push_back(static_cast<double>(now_ns() - start) / kBurst);
    }
    return centile(std::move(found), 0.1);
}

int send(const char* topic, uint64_t count, int argc, char** hexed) {
    std::vector<std::vector<std::byte>> messages;
    for (int i = 0; i < argc; ++i) {
        std::string digits = hexed[i];
        std::vector<std::byte>& message = messages.emplace_back();
        for (size_t at = 0; at < digits.size(); at += 2)
            message.push_back(static_cast<std::byte>(std::stoi(digits.substr(at, 2), nullptr, 16)));
    }
    ringmain::Publisher publisher = Topic::open(topic);
    auto say = [](const char* what) { std::puts(what), std::fflush(stdout); };
    say("ready");
    for (std::string line; std::getline(std::cin, line); say("sent"))
        for (uint64_t i = 0; i < count; ++i)
            publisher.send(messages[i % messages.size()], {}, kPatience).value();
    return 0;
}

}  // namespace

int main(int argc, char** argv) try {
    std::string what = argc > 1 ? argv[1] : "";
    uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 0;
    if (what == "send" && argc > 4)
        return send(argv[2], std::strtoull(argv[3], nullptr, 0), argc - 4, argv + 4);
    if (what == "publish" && argc > 3) {
        std::printf("%.1f\n", publish(count, std::strtoull(argv[3], nullptr, 0)));
        return 0;
    }
    if (argc > 4) parent_cpu = std::atoi(argv[3]), child_cpu = std::atoi(argv[4]);
    Queue::there = static_cast<Queue::Shared*>(shared_bytes(2 * sizeof(Queue::Shared)));
    Duties::there = static_cast<Duties::Shared*>(shared_bytes(2 * sizeof(Duties::Shared)));
    for (int i = 0; i < 2; ++i) new (Duties::there + i) Duties::Shared;
    double found = 0;
    if (count == 0) what.clear();
    if (what == "oneway" || what == "roundtrip") spin = 10ms;
    if (what == "throughput")
        found = throughput<Topic>(count);
    else if (what == "oneway")
        found = one_way<Topic>(count);
    else if (what == "duties-oneway")
        found = one_way<Duties>(count);
    else if (what == "duties-roundtrip")
        found = round_trip<Duties>(count);
    else if (what == "roundtrip")
        found = round_trip<Topic>(count);
    else if (what == "queue-throughput")
        found = throughput<Queue>(count);
    else if (what == "queue-roundtrip")
        found = round_trip<Queue>(count);
    else {
        std::fputs("see the head of bench/native/face.cpp\n", stderr);
        return 2;
    }
    std::printf("%.1f\n", found);
} catch (const ringmain::Error& error) {
    std::fprintf(stderr, "face: %s\n", error.what());
    return 1;
}
