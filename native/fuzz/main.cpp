// A small coverage-guided fuzzer: GCC's -fsanitize-coverage=trace-pc tells which basic blocks follow which, and an input
// that makes a pair follow that never did, or more often than ever, is kept and mutated further. libFuzzer does the same
// and needs clang; this needs the compiler that builds everything else, so the native tests run the corpus everywhere.
//
//   fuzz CORPUS                 every input of the corpus once
//   fuzz CORPUS --seconds 600 [--seed N] [--keep]   fuzzes on from there; --keep rewrites the corpus, smallest that covers all
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "fuzz/target.hpp"

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;

namespace {

constexpr size_t kEdges = 1 << 16;
constexpr size_t kMaxInput = 512;
constexpr unsigned kEndless_s = 20;

std::array<uint8_t, kEdges> hits;
uintptr_t previous;
bool counting;

// What the fuzzing process is at, for the one that watches it die.
struct Shared {
    uint64_t executions, kept, edges;
    uint32_t size;
    uint8_t input[kMaxInput];
};
Shared* shared;

}  // namespace

extern "C" void __sanitizer_cov_trace_pc() {
    if (!counting) return;
    auto here = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
    here = (here >> 1) * 0x9e3779b97f4a7c15 >> 48;
    uint8_t& count = hits[(here ^ previous) % kEdges];
    if (count < 255) ++count;
    previous = here >> 1;
}

namespace {

// How often, roughly: 1, 2, 3, 4-7, 8-15, ... each is a different bit.
uint8_t bucket(uint8_t count) {
    if (count == 0) return 0;
    if (count <= 3) return static_cast<uint8_t>(1 << (count - 1));
    return static_cast<uint8_t>(count < 8 ? 8 : count < 16 ? 16 : count < 32 ? 32 : count < 128 ? 64 : 128);
}

class Coverage {
    std::array<uint8_t, kEdges> seen_{};

  public:
    uint64_t edges = 0;
    bool add_hits() {
        bool news = false;
        for (size_t i = 0; i < kEdges; ++i) {
            if (hits[i] == 0) continue;
            uint8_t bit = bucket(hits[i]);
            if (seen_[i] & bit) continue;
            edges += seen_[i] == 0;
            seen_[i] |= bit;
            news = true;
        }
        return news;
    }
};

void run(const Bytes& input) {
    shared->size = static_cast<uint32_t>(input.size());
    std::copy(input.begin(), input.end(), shared->input);
    hits.fill(0);
    previous = 0;
    alarm(kEndless_s);
    counting = true;
    ringmain::fuzz::try_input(input.data(), input.size());
    counting = false;
    alarm(0);
    ++shared->executions;
}

class Mutator {
    std::mt19937_64 chance_;
    static constexpr uint64_t kInteresting[] = {0,          1,
                                                7,          8,
                                                24,         255,
                                                256,        511,
                                                512,        4095,
                                                4096,       4097,
                                                8192,       0x7fffffff,
                                                1u << 31,   ~0u,
                                                1ull << 32, (1ull << 62) - 8,
                                                1ull << 62, (1ull << 63) - 8,
                                                1ull << 63, ~0ull,
                                                ~0ull - 7};

    uint64_t below(uint64_t n) { return n == 0 ? 0 : chance_() % n; }

    void write(Bytes& b, size_t at, uint64_t value, size_t width) {
        for (size_t i = 0; i < width && at + i < b.size(); ++i)
            b[at + i] = static_cast<uint8_t>(value >> (8 * i));
    }

    void step(Bytes& b, const Bytes& other) {
        size_t at = below(b.size());
        switch (below(8)) {
            case 0:
                if (!b.empty()) b[at] ^= static_cast<uint8_t>(1 << below(8));
                break;
            case 1:
                if (!b.empty()) b[at] = static_cast<uint8_t>(chance_());
                break;
            case 2:
                write(b, at, kInteresting[below(std::size(kInteresting))], size_t{1} << below(4));
                break;
            case 3:
                if (!b.empty()) b[at] = static_cast<uint8_t>(b[at] + below(17) - 8);
                break;
            case 4: {  // a new record: a word somewhere
                Bytes record(10);
                for (uint8_t& byte : record) byte = static_cast<uint8_t>(chance_());
                if (below(2)) write(record, 2, kInteresting[below(std::size(kInteresting))], 8);
                b.insert(b.end(), record.begin(), record.end());
                break;
            }
            case 5:
                if (b.size() > 4)
                    b.erase(b.begin() + static_cast<ptrdiff_t>(at),
                            b.begin() + static_cast<ptrdiff_t>(at + below(b.size() - at) + 1));
                break;
            case 6:  // the end of another
                if (!other.empty())
                    b.insert(b.end(), other.begin() + static_cast<ptrdiff_t>(below(other.size())),
                             other.end());
                break;
            default:
                b.insert(b.begin() + static_cast<ptrdiff_t>(at), static_cast<uint8_t>(chance_()));
        }
    }

  public:
    explicit Mutator(uint64_t seed) : chance_(seed) {}
    Bytes mutate(const std::vector<Bytes>& pool) {
        Bytes b = pool[below(pool.size())];
        for (uint64_t n = 1 + below(8); n > 0; --n) step(b, pool[below(pool.size())]);
        if (b.size() > kMaxInput) b.resize(kMaxInput);
        return b;
    }
};

std::vector<Bytes> load(const fs::path& folder) {
    std::set<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder)) files.insert(entry.path());
    std::vector<Bytes> pool;
    for (const auto& file : files) {
        std::ifstream in(file, std::ios::binary);
        pool.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
        pool.back().resize(std::min(pool.back().size(), kMaxInput));
    }
    return pool;
}

void save(const fs::path& file, const uint8_t* bytes, size_t size) {
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes), static_cast<std::streamsize>(size));
}

// Keeps the small inputs that together cover every edge that all of them do.
void rewrite(const fs::path& folder, std::vector<Bytes> pool) {
    std::ranges::stable_sort(pool, {}, &Bytes::size);
    std::set<size_t> covered;
    for (const auto& entry : fs::directory_iterator(folder)) fs::remove(entry.path());
    int number = 0;
    for (const Bytes& input : pool) {
        run(input);
        size_t before = covered.size();
        for (size_t i = 0; i < kEdges; ++i)
            if (hits[i]) covered.insert(i);
        if (covered.size() == before) continue;
        char name[16];
        std::snprintf(name, sizeof name, "%03d", number++);
        save(folder / name, input.data(), input.size());
    }
}

[[noreturn]] void fuzz(const fs::path& folder, double seconds, uint64_t seed, bool keep) {
    std::vector<Bytes> pool = load(folder);
    if (pool.empty()) pool.push_back({0, 0, 0, 0});
    Coverage coverage;
    for (const Bytes& input : pool) run(input), coverage.add_hits();
    shared->kept = pool.size();
    shared->edges = coverage.edges;
    Mutator mutator(seed);
    auto begin = std::chrono::steady_clock::now();
    auto elapsed = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    for (double told = 0; elapsed() < seconds;) {
        Bytes input = mutator.mutate(pool);
        run(input);
        if (coverage.add_hits()) pool.push_back(input);
        shared->kept = pool.size();
        shared->edges = coverage.edges;
        if (elapsed() - told < 30) continue;
        told = elapsed();
        std::printf("%6.0f s  %9lu inputs, %5lu edges, %4lu kept\n", told, shared->executions, shared->edges,
                    shared->kept);
        std::fflush(stdout);
    }
    if (keep) rewrite(folder, pool);
    std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
    double seconds = 0;
    uint64_t seed =
        static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) % 1'000'000;
    bool keep = false;
    for (int i = 2; i < argc; ++i) {
        std::string option = argv[i];
        if (option == "--keep")
            keep = true;
        else if (option == "--seconds" && i + 1 < argc)
            seconds = std::atof(argv[++i]);
        else if (option == "--seed" && i + 1 < argc)
            seed = std::strtoull(argv[++i], nullptr, 10);
        else
            argc = 1;
    }
    if (argc < 2) return std::puts("fuzz CORPUS [--seconds N [--seed N] [--keep]]"), 2;
    fs::path folder = argv[1];
    shared = static_cast<Shared*>(
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    std::printf("seed %lu\n", seed);
    std::fflush(stdout);
    char directory[] = "/dev/shm/ringmain-fuzz-XXXXXX";
    if (!mkdtemp(directory)) return std::perror(directory), 2;
    ringmain::fuzz::work_in(directory);
    pid_t child = fork();
    if (child == 0) fuzz(folder, seconds, seed, keep);
    int status = 0;
    waitpid(child, &status, 0);
    std::printf("%lu inputs, %lu edges, %lu kept\n", shared->executions, shared->edges, shared->kept);
    fs::remove_all(directory);
    if (status == 0) return 0;
    save("fuzz-finding", shared->input, shared->size);
    std::printf("FOUND: %s; the input is in ./fuzz-finding: put it into the corpus once it is mended\n",
                WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "a sanitizer's report");
    return 1;
}
