#include "fuzz/face.hpp"

#include <ringmain/ringmain.h>

#include <array>
#include <cstdlib>
#include <numeric>

namespace ringmain::fuzz {

namespace {

constexpr int kCalls = 12;
constexpr ringmain_wait kAtOnce{0, nullptr};

// Reads all that the call said is there, so that the sanitizer sees it.
void touch(const void* data, size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    volatile unsigned sum = std::accumulate(bytes, bytes + size, 0u);
    (void)sum;
}

// Every status is a correct result, if it has its sentence.
bool ok(ringmain_status status) {
    if (status != RINGMAIN_OK && status != RINGMAIN_EMPTY && *ringmain_last_error() == '\0') std::abort();
    return status == RINGMAIN_OK;
}

}  // namespace

void read_by_face(const char* directory, unsigned how, const std::function<void()>& lie) {
    ringmain_topic_list* list = nullptr;
    if (ok(ringmain_info("t", directory, &list))) touch(list->topics[0].schema, list->topics[0].schema_size);
    ringmain_topics_free(list);
    ringmain_subscriber_options options = {};
    options.size = sizeof options;
    options.directory = directory;
    options.start = static_cast<ringmain_start>(how % 3);
    options.observe = how & 1 ? RINGMAIN_OBSERVE_ALWAYS : RINGMAIN_OBSERVE_NEVER;
    options.conflate = (how & 4) != 0;
    ringmain_subscriber* subscriber = nullptr;
    if (!ok(ringmain_subscriber_open("t", &options, &subscriber))) return;
    uint8_t ready = 0;
    ok(ringmain_wait_any(&subscriber, 1, &kAtOnce, &ready));
    for (int i = 0; i < kCalls; ++i) {
        lie();
        ringmain_message message;
        bool borrows = (how >> (i % 8)) & 1;
        if (!ok(borrows ? ringmain_borrow(subscriber, &kAtOnce, &message)
                        : ringmain_receive(subscriber, &kAtOnce, nullptr, 0, &message)))
            continue;
        lie();
        touch(message.data, message.size);
        touch(message.sender, message.sender_size);
        touch(message.kind, message.kind_size);
        if (borrows) ok(ringmain_return(subscriber, &message, how & 2));
    }
    ringmain_endpoint there;
    ok(ringmain_subscriber_endpoint(subscriber, &there));
    ringmain_subscriber_close(subscriber);
}

void write_by_face(const char* directory, unsigned how, const std::function<void()>& lie) {
    ringmain_publisher_options options = {};
    options.size = sizeof options;
    options.directory = directory;
    options.takeover = how & 1;
    ringmain_publisher* publisher = nullptr;
    if (!ok(ringmain_publisher_open("t", &options, &publisher))) return;
    static const std::array<char, 2048> payload{};
    for (int i = 0; i < kCalls; ++i) {
        lie();
        size_t size = how & 2 ? 1000 : 8 * (how & 28);
        if (i % 3) {
            ok(ringmain_send(publisher, payload.data(), size, "k", 1, &kAtOnce, nullptr));
            continue;
        }
        void* data = nullptr;
        if (!ok(ringmain_reserve(publisher, size, "k", 1, &kAtOnce, &data))) continue;
        lie();
        ok(ringmain_commit(publisher, size, nullptr));
    }
    int all = 0;
    ok(ringmain_all_read(publisher, &all));
    ringmain_publisher_close(publisher);
}

}  // namespace ringmain::fuzz
