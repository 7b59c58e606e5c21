// What this machine lets any program reach, in the fewest instructions and without ringmain. A row of the table that cannot be
// brought ahead of every peer is held against one of these:
//
//   limits large BYTES COUNT    one process copies messages into shared memory, another reads every byte there: messages a second
//   limits wake COUNT P         two processes that sleep on a futex: the P-th centile (50, 99, 99.9) of a round trip, µs
//   limits crowd CLIENTS COUNT  clients sleep until a server, which takes what is there, has answered: requests a second
//   limits idle PROCESSES 0     so many processes that each wait so: processor time, ms a second
//   limits second 0             a wait of a second as ours is: a sleep of 15 ms, a thread that sees to deaths, the
//                               rest of the second: processor time, ms
//   limits shares PROCESSES S   so many processes take numbers from one word for S seconds: the most of one / the least of one
//
// With two CPUs behind the numbers, each of two processes stays on its own. Prints one number.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <climits>
#include <cstring>
#include <string>
#include <thread>

#include "processes.hpp"

using namespace bench;

namespace {

using Futex = std::atomic<uint32_t>;

void sleep_while(Futex& word, uint32_t value, const timespec* at_most = nullptr) {
    syscall(SYS_futex, &word, FUTEX_WAIT, value, at_most, nullptr, 0);
}
void wake_one(Futex& word) { syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0); }

constexpr timespec kPatience{20, 0};

// ------------------------------------------------------------------------------------------------ large messages
constexpr uint64_t kBuffers = 3;  // as many as the messages that the table's rows send in turn

uint64_t total_of(const std::byte* data, size_t size) {
    uint64_t total = 0;
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word;
        std::memcpy(&word, data + at, 8);
        total += word;
    }
    return total;
}

double large(size_t size, uint64_t count) {
    auto* sent = shared<Line>();
    auto* read = shared<Line>();
    auto* buffers = static_cast<std::byte*>(shared_bytes(kBuffers * size));
    std::vector<std::vector<std::byte>> sources(kBuffers, std::vector<std::byte>(size));
    std::vector<uint64_t> totals;
    for (uint64_t i = 0; i < kBuffers; ++i) {
        for (size_t at = 0; at < size; at += 8)
            std::memset(sources[i].data() + at, static_cast<int>(i + at % 251), 8);
        totals.push_back(total_of(sources[i].data(), size));
    }
    pid_t child = fork_pinned();
    if (child == 0) {
        for (uint64_t i = 0; i < count; ++i) {
            spin_until([&] { return sent->word.load(std::memory_order_acquire) > i; });
            if (total_of(buffers + i % kBuffers * size, size) != totals[i % kBuffers])
                wrong("not the message that was sent");
            read->word.store(i + 1, std::memory_order_release);
        }
        std::_Exit(0);
    }
    int64_t start = now_ns();
    for (uint64_t i = 0; i < count; ++i) {
        spin_until([&] { return read->word.load(std::memory_order_acquire) + kBuffers > i; });
        std::memcpy(buffers + i % kBuffers * size, sources[i % kBuffers].data(), size);
        sent->word.store(i + 1, std::memory_order_release);
    }
    spin_until([&] { return read->word.load(std::memory_order_acquire) == count; });
    double took_ns = static_cast<double>(now_ns() - start);
    waitpid(child, nullptr, 0);
    return static_cast<double>(count) * 1e9 / took_ns;
}

// ------------------------------------------------------------------------------------------------------- sleeping
struct alignas(128) Bell {
    Futex word{0};
};

void wait_for(Bell& bell, uint32_t value) {
    for (uint32_t seen; (seen = bell.word.load(std::memory_order_acquire)) < value;)
        sleep_while(bell.word, seen, &kPatience);
}
void ring(Bell& bell, uint32_t value) {
    bell.word.store(value, std::memory_order_release);
    wake_one(bell.word);
}

double wake(uint32_t count, double share) {
    auto* there = shared<Bell>();
    auto* back = shared<Bell>();
    pid_t child = fork_pinned();
    if (child == 0) {
        for (uint32_t i = 1; i <= count; ++i) {
            wait_for(*there, i);
            ring(*back, i);
        }
        std::_Exit(0);
    }
    std::vector<double> trips;
    for (uint32_t i = 1; i <= count; ++i) {
        int64_t start = now_ns();
        ring(*there, i);
        wait_for(*back, i);
        if (i > count / 10) trips.push_back(static_cast<double>(now_ns() - start) / 1e3);
    }
    waitpid(child, nullptr, 0);
    return centile(std::move(trips), share / 100);
}

// ---------------------------------------------------------------------------------------------------------- crowd
struct alignas(128) Client {
    Futex asked{0}, answered{0};
};

double crowd(uint32_t clients, uint32_t count) {
    auto* requests = shared<Bell>();  // counts them, so that the server can sleep
    auto* sleeps = shared<Bell>();
    auto* each = static_cast<Client*>(shared_bytes(clients * sizeof(Client)));
    std::vector<pid_t> children;
    for (uint32_t number = 0; number < clients; ++number) {
        pid_t child = fork();
        if (child == 0) {
            Client& me = each[number];
            for (uint32_t i = 1; i <= count; ++i) {
                me.asked.store(i, std::memory_order_release);
                requests->word.fetch_add(1, std::memory_order_seq_cst);
                if (sleeps->word.load(std::memory_order_seq_cst)) wake_one(requests->word);
                for (uint32_t seen; (seen = me.answered.load(std::memory_order_acquire)) < i;)
                    sleep_while(me.answered, seen, &kPatience);
            }
            std::_Exit(0);
        }
        children.push_back(child);
    }
    int64_t start = now_ns();
    for (uint64_t done = 0, of_all = uint64_t{clients} * count; done < of_all;) {
        uint32_t before = requests->word.load(std::memory_order_seq_cst);
        uint64_t taken = 0;
        for (uint32_t number = 0; number < clients; ++number) {
            Client& client = each[number];
            uint32_t asked = client.asked.load(std::memory_order_acquire);
            if (asked == client.answered.load(std::memory_order_relaxed)) continue;
            client.answered.store(asked, std::memory_order_release);
            wake_one(client.answered);
            ++taken;
        }
        done += taken;
        if (taken) continue;
        sleeps->word.store(1, std::memory_order_seq_cst);
        if (requests->word.load(std::memory_order_seq_cst) == before)
            sleep_while(requests->word, before, &kPatience);
        sleeps->word.store(0, std::memory_order_seq_cst);
    }
    double took_ns = static_cast<double>(now_ns() - start);
    for (pid_t child : children) waitpid(child, nullptr, 0);
    return static_cast<double>(clients) * count * 1e9 / took_ns;
}

// --------------------------------------------------------------------------------------------------------- waiting
double wait_of(int64_t seconds) {
    Futex never{0}, over{0};
    timespec before{}, after{}, slice{0, 15'000'000}, rest{seconds - 1, 985'000'000};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    sleep_while(never, 0, &slice);
    std::thread watcher([&] { sleep_while(over, 0, &kPatience); });
    sleep_while(never, 0, &rest);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    over.store(1);
    wake_one(over);
    watcher.join();
    return static_cast<double>(after.tv_sec - before.tv_sec) * 1e3 +
           static_cast<double>(after.tv_nsec - before.tv_nsec) / 1e6;
}

double idle(uint32_t processes) {
    constexpr int64_t kSeconds = 2;
    auto* each_ms = static_cast<double*>(shared_bytes(processes * sizeof(double)));
    std::vector<pid_t> children;
    for (uint32_t number = 0; number < processes; ++number) {
        pid_t child = fork();
        if (child == 0) {
            each_ms[number] = wait_of(kSeconds);
            std::_Exit(0);
        }
        children.push_back(child);
    }
    for (pid_t child : children) waitpid(child, nullptr, 0);
    double all_ms = 0;
    for (uint32_t number = 0; number < processes; ++number) all_ms += each_ms[number];
    return all_ms / kSeconds;
}

// Nothing orders them: who is nearest to the last one gets more.
double shares(uint32_t processes, double seconds) {
    auto* numbers = shared<Line>();
    auto* begun = shared<Line>();
    auto* taken = static_cast<Line*>(shared_bytes(processes * sizeof(Line)));
    std::vector<pid_t> children;
    for (uint32_t number = 0; number < processes; ++number) {
        pid_t child = fork();
        if (child == 0) {
            ++begun->word;
            spin_until([&] { return begun->word.load() == processes; });
            uint64_t mine = 0;
            for (int64_t end = now_ns() + static_cast<int64_t>(seconds * 1e9); now_ns() < end;)
                for (int i = 0; i < 64; ++i, ++mine) {
                    uint64_t seen = numbers->word.load();
                    while (!numbers->word.compare_exchange_weak(seen, seen + 1)) {
                    }
                }
            taken[number].word.store(mine);
            std::_Exit(0);
        }
        children.push_back(child);
    }
    for (pid_t child : children) waitpid(child, nullptr, 0);
    std::vector<double> counts;
    for (uint32_t number = 0; number < processes; ++number)
        counts.push_back(static_cast<double>(taken[number].word.load()));
    auto [least, most] = std::ranges::minmax(counts);
    return most / std::max(1.0, least);
}

double found(const std::string& what, uint64_t first, double second_number) {
    auto count = static_cast<uint64_t>(second_number);
    if (what == "large" && first && first % 8 == 0 && count) return large(first, count);
    if (what == "wake" && first > 100 && second_number <= 100)
        return wake(static_cast<uint32_t>(first), second_number);
    if (what == "crowd" && first && count)
        return crowd(static_cast<uint32_t>(first), static_cast<uint32_t>(count));
    if (what == "idle" && first) return idle(static_cast<uint32_t>(first));
    if (what == "second") return wait_of(1);
    if (what == "shares" && first && second_number > 0)
        return shares(static_cast<uint32_t>(first), second_number);
    wrong(
        "limits large BYTES COUNT | wake COUNT P | crowd CLIENTS COUNT | idle PROCESSES 0 | "
        "second 0 | shares PROCESSES S   [CPU CPU]");
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 5) parent_cpu = std::atoi(argv[4]), child_cpu = std::atoi(argv[5]);
    std::string what = argc > 1 ? argv[1] : "";
    std::printf("%.4f\n", found(what, argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 0,
                                argc > 3 ? std::atof(argv[3]) : 0));
    return 0;
}
