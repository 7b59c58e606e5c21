// What needs the roster lock, for a user that waits for it. A process that has stopped may have the lock.
#pragma once

#include "python/host.hpp"
#include "waiting/roster_wait.hpp"

namespace ringmain::py {

// A participant, as the errors have it: errors.WaitedFor.
inline Ref waited_for(const ParticipantInfo& participant) {
    Ref pid(participant.same_namespace ? PyLong_FromUnsignedLong(participant.pid) : Py_NewRef(Py_None));
    Ref name(PyUnicode_DecodeUTF8(participant.name.data(), static_cast<Py_ssize_t>(participant.name.size()),
                                  "replace"));
    return Ref(pid && name ? Py_BuildValue("(sOO)", role_name(participant.role), name.get(), pid.get())
                           : nullptr);
}

// Calls `call(patience_ns)` without the GIL, and hears signals while it waits for the roster lock. False: raised.
template <class Call>
bool with_roster(const std::string& topic, Call call) {
    SignalHost host;
    try {
        return ringmain::with_roster(host, call) == Outcome::ready;
    } catch (const Failure& failure) {
        raise(failure, topic);
        return false;
    }
}

}  // namespace ringmain::py
