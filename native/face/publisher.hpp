// What a ringmain_publisher is.
#pragma once

#include <ringmain/ringmain.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "topic/endpoint.hpp"
#include "waiting/blocking_writer.hpp"

struct ringmain_publisher {
    std::shared_ptr<ringmain::Directory> directory;
    ringmain::BlockingWriter end;
    std::string topic, sender;
    ringmain::Clock<CLOCK_REALTIME> clock;
    uint64_t largest_bytes = 0;  // of a payload without sender and kind
    bool reserved = false;
    uint64_t room = 0;  // of the reservation
    std::string kind;   // of the reservation

    // Throws a Failure or a Refusal.
    ringmain_publisher(const char* topic, const ringmain_publisher_options& options, bool of_frames = false);
    ~ringmain_publisher();

    ringmain::TopicFile& file() const { return end.participant->topic_file(); }
    // relaxed: set before this process ran.
    bool forked() const { return file().forked.load(std::memory_order_relaxed); }
    // Is there nothing to do but to write?
    bool fast_path_ok() const { return !forked() && !reserved && end.min_readers == 0; }

    uint64_t envelope_bytes(std::string_view kind) const {
        return ringmain::align_up(sender.size() + kind.size());
    }
    // Makes room for a message, waiting for it; then it must be committed, or the turn ended.
    ringmain_status start(uint64_t size, std::string_view kind, const ringmain_wait* wait);
};
