#include "face/sentences.hpp"

namespace ringmain::face {

std::string describe_writers(const TopicFile& file) {
    std::string writers;
    for (uint32_t i : taken_slots(file)) {
        if (!slot_has_role(file, i, Role::writer)) continue;
        ParticipantInfo writer = look_at(file, i, slot_alive(file, i));
        writers +=
            (writers.empty() ? "" : ", ") + writer.describe() + (writer.alive ? "" : ", which has died");
    }
    return writers.empty() ? "it has no writer" : "waiting for " + writers;
}

}  // namespace ringmain::face
