// The C++ headers and the library behind them, in one process: for the sanitizers, which see both. Two threads for each contract,
// each with handles of its own; frames, structs, waits for many, stops, and what is refused. tests/cpp has the other language.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <ringmain/ringmain.hpp>
#include <string>
#include <thread>

#include "tests/check.hpp"

using namespace std::chrono_literals;
using namespace ringmain;

namespace {

constexpr int kMessages = 400;
constexpr auto kLong = 60s;  // no test takes as long

struct Sample {
    double t;
    uint32_t values[3];
};
RINGMAIN_STRUCT(Sample, t, values)

std::string directory;

Bytes as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

// Sizes from nothing to more than a Message has inside.
std::string numbered(int number) {
    return std::to_string(number) + std::string(static_cast<size_t>(number % 7) * 60, 'x');
}

void send_all(Contract contract, std::atomic<bool>& there) {
    Publisher publisher("t",
                        {.contract = contract, .capacity = 1 << 16, .sender = "s", .directory = directory});
    there = true;
    CHECK(publisher.wait_for_readers(1, kLong).value() >= 1);
    for (int number = 0; number < kMessages; ++number) {
        std::string text = numbered(number);
        if (number % 3) {
            CHECK(publisher.send(as_bytes(text), "k", kLong).has_value());
            continue;
        }
        auto draft = publisher.reserve(text.size() + 8, "k", kLong);
        std::memcpy(draft->data(), text.data(), text.size());
        CHECK(draft->commit(text.size()).has_value());
    }
    CHECK(publisher.send(as_bytes("end"), "end", kLong).has_value());
    while (!publisher.all_read()) std::this_thread::sleep_for(1ms);  // or a pipe would stay
}

void pass_messages(Contract contract) {
    std::atomic<bool> there = false;
    std::jthread sender([&] { send_all(contract, there); });
    Subscriber subscriber("t", {.start = Start::oldest, .name = "r", .directory = directory});
    int received = 0;
    for (std::string kind; kind != "end"; ++received) {
        if (received % 2) {
            auto message = subscriber.borrow(kLong);
            kind = message->kind();
            CHECK(message->sender() == "s");
            std::string text(message->text());
            Code released = message->release();
            CHECK(released == Code::ok || contract == Contract::broadcast);
            if (released == Code::ok && kind == "k") CHECK(text == numbered(std::stoi(text)));
        } else {
            auto message = subscriber.receive(kLong);
            kind = message->kind();
            if (kind == "k") CHECK(message->text() == numbered(std::stoi(std::string(message->text()))));
        }
    }
    CHECK(contract == Contract::broadcast || contract == Contract::bus || received == kMessages + 1);
    (void)subscriber.try_receive();  // on work, the last one is done
}

void pass_frames() {
    FramePublisher camera("frames", FrameLayout::of_image("nv12", 16, 8),
                          {.buffers = 2, .directory = directory});
    std::jthread viewer([] {
        FrameSubscriber images("frames", {.directory = directory});
        for (int seen = 0; seen < 50; ++seen) {
            auto frame = images.receive(kLong);
            if (frame->id() == 99) return;
            CHECK(frame->plane("uv")->data()[0] == frame->data()[0] && !frame->plane("alpha"));
        }
    });
    CHECK(camera.wait_for_readers(1, kLong).has_value());
    for (int number = 0; number < 100; ++number) {
        auto frame = camera.frame(kLong);
        std::memset(frame->data(), number, frame->size());
        frame->id = static_cast<uint64_t>(number);
        CHECK(frame->commit().has_value());
    }
}

void pass_structs() {
    PublisherOf<Sample> out("structs", {.directory = directory});
    SubscriberOf<Sample> in("structs", {.directory = directory});
    CHECK(out.send({0.5, {1, 2, 3}}).has_value());
    auto sample = in.borrow(kLong);
    CHECK((*sample)->t == 0.5 && (*sample)->values[2] == 3);
}

void wait_for_many() {
    Subscriber a("a", {.directory = directory}), b("b", {.directory = directory});
    std::stop_source stop;
    std::jthread later([&] {
        std::this_thread::sleep_for(5ms);
        stop.request_stop();
    });
    CHECK(wait({&a, &b}, forever, stop.get_token()).code() == Code::stopped);
    CHECK(a.receive(forever, stop.get_token()).code() == Code::stopped);
    CHECK(wait({&a, &b}, 1ms).code() == Code::timeout);
    Publisher publisher("b", {.directory = directory});
    CHECK(publisher.send(as_bytes("one")).has_value());
    CHECK(wait({&a, &b}, kLong).value() == std::vector<size_t>{1});
    CHECK(info("b", directory).participants.size() == 2 && topics(directory).size() == 1);
}

template <class Call>
Code refused(Call call) {
    try {
        call();
    } catch (const Error& error) {
        CHECK(*error.what() != '\0');
        return error.code();
    }
    return Code::ok;
}

void refuse() {
    Publisher publisher("t", {.contract = Contract::pipe, .directory = directory});
    CHECK(refused([] { Publisher again("t", {.directory = directory}); }) == Code::busy);
    CHECK(refused([] { Publisher wrong("a//b", {.directory = directory}); }) == Code::invalid_argument);
    CHECK(refused([] { FrameLayout::of_image("jpeg", 1, 1); }) == Code::invalid_argument);
    CHECK(refused([] { (void)info("none", directory); }) == Code::not_found);
    CHECK(publisher.send({static_cast<const std::byte*>(nullptr), size_t{1} << 40}).code() ==
          Code::too_large);
    CHECK(publisher.send(as_bytes("x"), "\xff").code() == Code::invalid_argument);
    CHECK(publisher.reserve(8, "\xff\x02no").code() == Code::invalid_argument);
    auto first = publisher.reserve(8);
    CHECK(publisher.try_reserve(8).code() == Code::in_use);
}

}  // namespace

int main() {
    directory = "/dev/shm/ringmain-face-XXXXXX";
    if (!mkdtemp(directory.data())) return 2;
    for (uint32_t i = 1; ringmain_contract_name(static_cast<ringmain_contract>(i)); ++i)
        pass_messages(static_cast<Contract>(i));
    pass_frames();
    pass_structs();
    wait_for_many();
    refuse();
    for (const auto& left : std::filesystem::directory_iterator(directory))
        CHECK(left.path().filename() == "bell");
    std::filesystem::remove_all(directory);
    std::printf("%s\n", tests::failures ? "failed" : "all hold");
    return tests::failures != 0;
}
