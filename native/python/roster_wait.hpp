// What needs the roster lock, for a user that waits for it. A process that has stopped may have the lock.
#pragma once

#include "python/py.hpp"
#include "topic/roster.hpp"

namespace ringmain::py {

// A participant, as the errors have it: errors.WaitedFor.
inline Ref waited_for(const ParticipantInfo& participant) {
    Ref pid(participant.same_namespace ? PyLong_FromUnsignedLong(participant.pid) : Py_NewRef(Py_None));
    Ref name(PyUnicode_DecodeUTF8(participant.name.data(), static_cast<Py_ssize_t>(participant.name.size()),
                                  "replace"));
    return Ref(pid && name ? Py_BuildValue("(sOO)", role_name(participant.role), name.get(), pid.get())
                           : nullptr);
}

// Calls `call(patience_ns)` without the GIL; while it finds the roster locked, again and again for RosterLock::kPatience_ns, and
// hears signals in between. False: raised.
template <class Call>
bool with_roster(const std::string& topic, Call call) {
    for (int64_t end_ns = monotonic_ns() + RosterLock::kPatience_ns;;) {
        try {
            WithoutGil unlocked;
            call(RosterLock::kSlice_ns);
            return true;
        } catch (const Failure& failure) {
            if (failure.fault != Fault::roster_locked || monotonic_ns() > end_ns) {
                raise(failure, topic);
                return false;
            }
        }
        if (PyErr_CheckSignals() != 0) return false;
    }
}

}  // namespace ringmain::py
