// ringmain_info, ringmain_topics, ringmain_unlink: what is to be seen from outside.
#include <algorithm>
#include <cstring>
#include <memory>

#include "face/arguments.hpp"
#include "face/failing.hpp"
#include "topic/inspection.hpp"

namespace ringmain::face {

namespace {

// What a ringmain_topic points to.
struct Seen {
    std::string schema;
    std::vector<ringmain_participant> participants;
};

struct List : ringmain_topic_list {
    std::vector<ringmain_topic> all;
    std::vector<Seen> seen;
};

template <size_t size>
void copy_text(char (&to)[size], std::string_view from) {
    std::memcpy(to, from.data(), std::min(from.size(), size - 1));
}

ringmain_participant participant(const ParticipantInfo& p, const Inspection& topic) {
    ringmain_participant out = {};
    out.role = static_cast<ringmain_role>(p.role);
    out.pid = p.pid;
    out.user = p.uid;
    out.alive = p.alive;
    out.same_namespace = p.same_namespace;
    out.messages = p.messages;
    out.bytes = p.bytes;
    out.lost = p.lost;
    Lag lag = topic.lag_of(p);
    out.lag_messages = lag.messages;
    out.lag_bytes = lag.bytes;
    copy_text(out.name, p.name);
    return out;
}

void add(List& list, const std::string& name, const Inspection& topic) {
    ringmain_topic out = {};
    copy_text(out.name, name);
    out.contract = static_cast<ringmain_contract>(topic.contract);
    out.max_participants = topic.slot_count;
    out.capacity = topic.capacity_bytes;
    out.epoch = topic.epoch;
    out.next_sequence = topic.next_sequence;
    out.persist = topic.persist;
    Seen seen{topic.schema, {}};
    for (const ParticipantInfo& each : topic.participants)
        if (!(each.joining && each.alive)) seen.participants.push_back(participant(each, topic));
    list.all.push_back(out);
    list.seen.push_back(std::move(seen));
}

// Once nothing is added any more, and so nothing moves.
ringmain_topic_list* finished(std::unique_ptr<List> list) {
    for (size_t i = 0; i < list->all.size(); ++i) {
        const Seen& seen = list->seen[i];
        list->all[i].schema = seen.schema.c_str();
        list->all[i].schema_size = seen.schema.size();
        list->all[i].participants = seen.participants.data();
        list->all[i].participant_count = seen.participants.size();
    }
    list->topics = list->all.data();
    list->count = list->all.size();
    return list.release();
}

}  // namespace

}  // namespace ringmain::face

using namespace ringmain;
using namespace ringmain::face;

extern "C" {

RINGMAIN_API ringmain_status ringmain_info(const char* topic, const char* directory,
                                           ringmain_topic_list** found) {
    *found = nullptr;
    return guarded([&] {
        std::string name = checked_topic(topic);
        auto opened = Directory::at(runtime_directory(directory), false);
        auto list = std::make_unique<List>();
        add(*list, name, inspect_topic(opened, name));
        *found = finished(std::move(list));
        return RINGMAIN_OK;
    });
}

RINGMAIN_API ringmain_status ringmain_topics(const char* directory, ringmain_topic_list** found) {
    *found = nullptr;
    return guarded([&] {
        auto list = std::make_unique<List>();
        try {
            auto opened = Directory::at(runtime_directory(directory), false);
            for (const std::string& name : names_in(*opened, FileKind::ring)) {
                try {
                    add(*list, name, inspect_topic(opened, name));
                } catch (const Failure&) {
                    // Not a topic that this version can read, or removed since it was listed.
                }
            }
        } catch (const Failure& failure) {
            if (failure.fault != Fault::not_found) throw;
        }
        *found = finished(std::move(list));
        return RINGMAIN_OK;
    });
}

RINGMAIN_API void ringmain_topics_free(ringmain_topic_list* list) { delete static_cast<List*>(list); }

RINGMAIN_API ringmain_status ringmain_unlink(const char* topic, const char* directory, int force) {
    return guarded([&] {
        std::string name = checked_topic(topic), path = runtime_directory(directory);
        auto opened = Directory::at(path, false);
        bool gone = unlink_topic(opened, name, force != 0);
        // A frame topic's buffers go with it; those that a reader still holds stay until it releases them.
        gone |= force ? unlink_topic(opened, name, true, FileKind::pool)
                      : unlink_if_dead(opened, name, FileKind::pool);
        if (!gone) throw Refusal{RINGMAIN_NOT_FOUND, "there is no topic '" + name + "' in " + path, ENOENT};
        return RINGMAIN_OK;
    });
}

RINGMAIN_API const char* ringmain_version(void) { return RINGMAIN_VERSION; }
}
