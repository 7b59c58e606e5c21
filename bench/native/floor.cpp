// The floors that the Python figures are held against, on this machine and at this moment:
//
//   floor cacheline 0        round trip of one cache line between two processes, ns
//   floor throughput COUNT   the ring from C++ at 32 B, one process to another, messages a second
//   floor roundtrip COUNT    the ring from C++ at 32 B, both sides spinning, ns (median)
//
// With two CPUs after the count, each process stays on its own. Prints one number. Every message's counter is checked; a wrong one ends the program with an error.
#include <sys/wait.h>

#include <string>

#include "base/clock.hpp"
#include "processes.hpp"
#include "rule/reader.hpp"
#include "rule/writer.hpp"
#include "topic/endpoint.hpp"

using namespace ringmain;
using namespace bench;

namespace {

constexpr uint64_t kSize = 32;

// Of many short rounds, what the fastest quarter stays under: on a crowded machine one side is often not running. At most
// some tens of milliseconds, since this is asked before and after everything else.
double cacheline() {
    constexpr uint64_t kTurns = 20, kMostRounds = 400, kFewestRounds = 8;
    constexpr int64_t kTime_ns = 40'000'000;
    constexpr uint64_t kOver = ~uint64_t{0};
    Line* line = shared<Line>();
    pid_t child = fork_pinned();
    if (child == 0) {
        for (uint64_t i = 1;; i += 2) {
            uint64_t seen = 0;
            spin_until([&] { return (seen = line->word.load(std::memory_order_acquire)) >= i; });
            if (seen == kOver) std::_Exit(0);
            line->word.store(i + 1, std::memory_order_release);
        }
    }
    std::vector<double> rounds;
    int64_t begun = now_ns();
    for (uint64_t i = 1; rounds.size() < kMostRounds;) {
        int64_t start = now_ns();
        if (start - begun > kTime_ns && rounds.size() >= kFewestRounds) break;
        for (uint64_t turn = 0; turn < kTurns; ++turn, i += 2) {
            line->word.store(i, std::memory_order_release);
            spin_until([&] { return line->word.load(std::memory_order_acquire) == i + 1; });
        }
        rounds.push_back(static_cast<double>(now_ns() - start) / kTurns);
    }
    line->word.store(kOver, std::memory_order_release);
    waitpid(child, nullptr, 0);
    std::sort(rounds.begin(), rounds.end());
    return rounds[rounds.size() / 4];
}

class Sender {
    std::unique_ptr<Participant> participant_;
    Writer writer_;
    Clock<CLOCK_REALTIME> clock_;

  public:
    explicit Sender(std::unique_ptr<Participant> participant)
        : participant_(std::move(participant)),
          writer_(ring_of(participant_->topic_file()), participant_->slot()) {
        if (writer_.attach() != Status::ok) wrong("a writer cannot begin");
    }
    void send(uint64_t counter) {
        spin_until([&] {
            if (writer_.begin() != Status::ok) wrong("the turn is not ours");
            Status status = writer_.prepare(room_for(footprint(kSize, 0, 0)));
            if (status == Status::ok) return true;
            if (status != Status::blocked) wrong("a writer cannot go on");
            writer_.end();
            return false;
        });
        uint64_t payload[kSize / 8] = {counter};
        copy_in(writer_.payload(0, 0), payload, kSize);
        writer_.seal(writer_.seq(), clock_.now_ns(), kSize, {}, {});
        writer_.commit();
    }
};

class Receiver {
    std::unique_ptr<Participant> participant_;
    Reader reader_;

  public:
    explicit Receiver(std::unique_ptr<Participant> participant)
        : participant_(std::move(participant)),
          reader_(ring_of(participant_->topic_file()), participant_->slot(), Start::oldest, false) {
        if (reader_.attach(Start::oldest) != Status::ok) wrong("a reader cannot begin");
    }
    void receive(uint64_t expected) {
        View view;
        spin_until([&] { return reader_.peek(view) == Status::ok; });
        uint64_t payload[kSize / 8];
        if (view.size != kSize) wrong("a message of another size");
        copy_out(payload, view.payload(), kSize);
        if (!reader_.still_whole(view) || payload[0] != expected) wrong("not the message that was sent");
        reader_.take(view);
        reader_.release();
    }
};

WriterRequest pipe_of(uint64_t capacity_bytes) {
    WriterRequest request;
    request.contract = Contract::pipe;
    request.capacity_bytes = capacity_bytes;
    request.name = "floor";
    return request;
}

// Two pipes, one each way, and a child at their other end.
template <typename Near, typename Far>
double between_processes(const std::shared_ptr<Directory>& directory, Near near, Far far) {
    Line* ready = shared<Line>();
    pid_t child = fork_pinned();
    if (child == 0) {
        {
            auto own = std::make_shared<Directory>(directory->path(), false);
            spin_until([&] { return ready->word.load(std::memory_order_acquire) == 1; });
            Sender back(join_as_writer(own, "back", pipe_of(1 << 20)));
            Receiver there(join_as_reader(own, "there", "far"));
            ready->word.store(2, std::memory_order_release);
            far(there, back);
            spin_until([&] { return ready->word.load(std::memory_order_acquire) == 3; });
        }
        std::_Exit(0);
    }
    double found;
    {
        Sender there(join_as_writer(directory, "there", pipe_of(1 << 20)));
        ready->word.store(1, std::memory_order_release);
        spin_until([&] { return ready->word.load(std::memory_order_acquire) == 2; });
        Receiver back(join_as_reader(directory, "back", "near"));
        found = near(there, back);
        ready->word.store(3, std::memory_order_release);
        waitpid(child, nullptr, 0);
    }
    return found;
}

double throughput(const std::shared_ptr<Directory>& directory, uint64_t count) {
    return between_processes(
        directory,
        [&](Sender& there, Receiver& back) {
            int64_t start = now_ns();
            for (uint64_t i = 0; i < count; ++i) there.send(i);
            back.receive(count);
            return static_cast<double>(count) * 1e9 / static_cast<double>(now_ns() - start);
        },
        [&](Receiver& there, Sender& back) {
            for (uint64_t i = 0; i < count; ++i) there.receive(i);
            back.send(count);
        });
}

double roundtrip(const std::shared_ptr<Directory>& directory, uint64_t count) {
    return between_processes(
        directory,
        [&](Sender& there, Receiver& back) {
            std::vector<double> found;
            for (uint64_t i = 0; i < count; ++i) {
                int64_t start = now_ns();
                there.send(i);
                back.receive(i);
                found.push_back(static_cast<double>(now_ns() - start));
            }
            return centile(std::move(found), 0.5);
        },
        [&](Receiver& there, Sender& back) {
            for (uint64_t i = 0; i < count; ++i) {
                there.receive(i);
                back.send(i);
            }
        });
}

}  // namespace

int main(int argc, char** argv) {
    std::string what = argc > 1 ? argv[1] : "";
    uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 0;
    if (argc > 4) parent_cpu = std::atoi(argv[3]), child_cpu = std::atoi(argv[4]);
    if (what == "cacheline") {
        std::printf("%.1f\n", cacheline());
        return 0;
    }
    if ((what != "throughput" && what != "roundtrip") || count == 0) {
        std::fputs("floor cacheline 0 | throughput COUNT | roundtrip COUNT [CPU CPU]\n", stderr);
        return 2;
    }
    char path[] = "/dev/shm/ringmain-floor-XXXXXX";
    if (!mkdtemp(path)) return 1;
    int result = 1;
    try {
        auto directory = std::make_shared<Directory>(path, false);
        std::printf("%.1f\n",
                    what == "throughput" ? throughput(directory, count) : roundtrip(directory, count));
        unlinkat(directory->fd(), "bell", 0);
        result = 0;
    } catch (const Failure& failure) {
        std::fprintf(stderr, "floor: %s\n", failure.text.c_str());
    }
    if (rmdir(path) != 0) std::fprintf(stderr, "floor: something is left in %s\n", path);
    return result;
}
