// What topics there are, and who takes part in them. These allocate, and throw.
#pragma once

#include <ringmain/result.hpp>
#include <ringmain/types.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ringmain {

struct ParticipantInfo {
    enum class Role { writer = RINGMAIN_WRITER, reader = RINGMAIN_READER, observer = RINGMAIN_OBSERVER };
    Role role;
    std::string name;
    uint32_t pid, user;
    bool alive, same_namespace;  // is the pid one of this pid namespace?
    uint64_t messages, bytes;    // sent or received since it joined
    uint64_t lost;
    uint64_t lag_messages, lag_bytes;  // how far a reader is behind
};

struct TopicInfo {
    std::string name;
    Contract contract;
    uint64_t capacity, epoch, next_sequence;
    uint32_t max_participants;
    bool persist;
    std::string schema;  // JSON; empty: the topic is not typed
    std::vector<ParticipantInfo> participants;
};

namespace detail {
inline TopicInfo info_of(const ringmain_topic& there) {
    TopicInfo info{there.name,
                   static_cast<Contract>(there.contract),
                   there.capacity,
                   there.epoch,
                   there.next_sequence,
                   there.max_participants,
                   there.persist != 0,
                   {there.schema, there.schema_size},
                   {}};
    for (size_t i = 0; i < there.participant_count; ++i) {
        const ringmain_participant& each = there.participants[i];
        info.participants.push_back({static_cast<ParticipantInfo::Role>(each.role), each.name, each.pid,
                                     each.user, each.alive != 0, each.same_namespace != 0, each.messages,
                                     each.bytes, each.lost, each.lag_messages, each.lag_bytes});
    }
    return info;
}

using List = std::unique_ptr<ringmain_topic_list, decltype(&ringmain_topics_free)>;
}  // namespace detail

// Throws Code::not_found if there is no such topic.
inline TopicInfo info(std::string_view topic, const std::string& directory = {}) {
    ringmain_topic_list* found = nullptr;
    throw_if_failed(ringmain_info(std::string(topic).c_str(), directory.c_str(), &found));
    detail::List list(found, &ringmain_topics_free);
    return detail::info_of(list->topics[0]);
}

inline std::vector<TopicInfo> topics(const std::string& directory = {}) {
    ringmain_topic_list* found = nullptr;
    throw_if_failed(ringmain_topics(directory.c_str(), &found));
    detail::List list(found, &ringmain_topics_free);
    std::vector<TopicInfo> all;
    for (size_t i = 0; i < list->count; ++i) all.push_back(detail::info_of(list->topics[i]));
    return all;
}

// Removes a topic; unless forced, only one that has no living participants.
inline void unlink(std::string_view topic, bool force = false, const std::string& directory = {}) {
    throw_if_failed(ringmain_unlink(std::string(topic).c_str(), directory.c_str(), force));
}

}  // namespace ringmain
