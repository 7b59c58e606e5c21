// What can go wrong outside the hot path. The text is what the user reads; the binding picks the exception's class.
#pragma once

#include <cstdint>
#include <string>

namespace ringmain {

enum class Fault {
    not_found,    // no such topic
    not_allowed,  // wrong owner, a link, no permission
    corrupt,      // not a topic, another version, sizes that do not fit, impossible words
    busy,         // a living participant has the slot or the turn
    roster_full,
    mismatch,  // the topic is not what was asked for
    timed_out,
    roster_locked,  // for too long, by a process that has stopped
    system,         // errno says
};

struct Failure {
    Fault fault;
    std::string text;
    int error = 0;  // errno where there is one
};

inline std::string corrupt_text(const std::string& topic) {
    return "the ring of topic '" + topic +
           "' is corrupt: some process wrote where it must not. Unlink the topic (force=True) and open it "
           "again";
}

}  // namespace ringmain
