// The module: its functions, types and constants, and the helpers declared in py.hpp.
#include <cmath>
#include <cstring>

#include "python/frame_types.hpp"
#include "topic/endpoint.hpp"

namespace ringmain::py {

PyTypeObject *publisher_type, *subscriber_type, *reservation_type, *lease_type, *batch_type, *event_type;
PyObject *message_class, *empty_str;
size_t bytes_data_offset;

PyObject* raise(const char* error_class, const std::string& text, int error, const std::string& topic) {
    Ref errors(PyImport_ImportModule("ringmain.errors"));
    Ref type(errors ? PyObject_GetAttrString(errors.get(), error_class) : nullptr);
    Ref instance(type ? PyObject_CallFunction(type.get(), "s", text.c_str()) : nullptr);
    if (!instance) return nullptr;
    Ref number(error ? PyLong_FromLong(error) : nullptr);
    if (number && PyObject_SetAttrString(instance.get(), "errno", number.get()) != 0) return nullptr;
    Ref name(topic.empty() ? nullptr : PyUnicode_FromString(topic.c_str()));
    if (name && PyObject_SetAttrString(instance.get(), "topic", name.get()) != 0) return nullptr;
    PyErr_SetObject(type.get(), instance.get());
    return nullptr;
}

PyObject* raise_made(const char* function, const char* format, ...) {
    va_list given;
    va_start(given, format);
    Ref arguments(Py_VaBuildValue(format, given));
    va_end(given);
    Ref errors(arguments ? PyImport_ImportModule("ringmain.errors") : nullptr);
    Ref make(errors ? PyObject_GetAttrString(errors.get(), function) : nullptr);
    Ref error(make ? PyObject_CallObject(make.get(), arguments.get()) : nullptr);
    if (error) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
    return nullptr;
}

bool raised(const char* error_class) {
    SavedError error;  // what looks for the class must not run while an exception is being raised
    Ref errors(PyImport_ImportModule("ringmain.errors"));
    Ref type(errors ? PyObject_GetAttrString(errors.get(), error_class) : nullptr);
    if (!type) PyErr_Clear();
    return type && error.type && PyErr_GivenExceptionMatches(error.type, type.get());
}

void raise_caught() noexcept {
    try {
        throw;
    } catch (const Failure& failure) {
        if (!PyErr_Occurred()) raise(failure);
    } catch (const std::exception& thrown) {
        raise_standard(thrown);
    }
}

static int raise_now(void* owned) {
    Ref exception(static_cast<PyObject*>(owned));
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.get())), exception.get());
    return -1;
}

void clear_or_raise_later() {
    if (!interrupted()) return PyErr_Clear();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Ref owned_type(type), exception(value), owned_traceback(traceback);
    if (Py_AddPendingCall(raise_now, exception.get()) == 0)
        exception.release();
    else  // more than Python keeps: at least the program is interrupted
        PyErr_SetInterrupt();
}

PyObject* raise_corrupt(const std::string& topic) { return raise("Corrupt", corrupt_text(topic), 0, topic); }

PyObject* raise(const Failure& failure, const std::string& topic) {
    switch (failure.fault) {
        case Fault::not_found:
            return raise("TopicNotFound", failure.text, ENOENT, topic);
        case Fault::not_allowed:
            return raise("NotAllowed", failure.text, failure.error ? failure.error : EACCES, topic);
        case Fault::corrupt:
            return raise("Corrupt", failure.text, 0, topic);
        case Fault::busy:
            return raise("TopicBusy", failure.text, EBUSY, topic);
        case Fault::roster_full:
            return raise("RosterFull", failure.text, EUSERS, topic);
        case Fault::mismatch:
            return raise("TopicMismatch", failure.text, 0, topic);
        case Fault::timed_out:
        case Fault::roster_locked:
            return raise("Timeout", failure.text, 0, topic);
        case Fault::system:
            return raise("SystemFailure", failure.text, failure.error, topic);
    }
    return nullptr;
}

PyTypeObject* add_type(PyObject* module, PyType_Spec& spec) {
    Ref type(PyType_FromSpec(&spec));
    bool added = type && PyModule_AddObjectRef(module, std::strrchr(spec.name, '.') + 1, type.get()) == 0;
    return added ? reinterpret_cast<PyTypeObject*>(type.release()) : nullptr;
}

PyObject* schema_of(const TopicFile& topic_file) {
    try {
        std::string schema = topic_file.schema();
        return PyBytes_FromStringAndSize(schema.data(), static_cast<Py_ssize_t>(schema.size()));
    } catch (const Failure& failure) {
        return raise(failure);
    }
}

bool parse_timeout(PyObject* object, int64_t& timeout_ns) {
    if (!object || object == Py_None) {
        timeout_ns = kForever;
        return true;
    }
    double value = PyFloat_AsDouble(object);
    if (value == -1.0 && PyErr_Occurred()) return false;
    if (std::isnan(value) || value < 0) {
        PyErr_SetString(PyExc_ValueError, "timeout is a number of seconds, 0 or more, or None for no limit");
        return false;
    }
    timeout_ns = value > 9e9 ? kForever : static_cast<int64_t>(value * 1e9);
    return true;
}

Ref seconds(int64_t timeout_ns) {
    return timeout_ns == kForever ? Ref::to(Py_None)
                                  : Ref(PyFloat_FromDouble(static_cast<double>(timeout_ns) / 1e9));
}

bool parse_count(const char* name, PyObject* object, uint64_t& count) {
    Ref number(PyNumber_Index(object));
    Ref zero(number ? PyLong_FromLong(0) : nullptr);
    if (!zero) return false;
    int negative = PyObject_RichCompareBool(number.get(), zero.get(), Py_LT);
    if (negative == 0) {
        count = PyLong_AsUnsignedLongLong(number.get());
        if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Clear();
            count = UINT64_MAX;
        }
    }
    if (negative == 1) PyErr_Format(PyExc_ValueError, "%s must be 0 or more, not %S", name, number.get());
    return !PyErr_Occurred();
}

bool text_of(PyObject* str, std::string_view& out) {
    if (!PyUnicode_Check(str)) {
        PyErr_Format(PyExc_TypeError, "expected a str, not %R", str);
        return false;
    }
    Py_ssize_t size;
    const char* utf8 = PyUnicode_AsUTF8AndSize(str, &size);
    if (!utf8) return false;
    out = {utf8, static_cast<size_t>(size)};
    return true;
}

bool said_of(PyObject* kind, std::string_view& out) {
    if (PyBytes_Check(kind) && !PyBytes_CheckExact(kind))
        out = view_of_bytes(kind);
    else if (!text_of(kind, out))
        return false;
    if (out.size() <= kMaxEnvelopeNameBytes) return true;
    PyErr_Format(PyExc_ValueError, "kind is at most %zu bytes of UTF-8, this one has %zu",
                 kMaxEnvelopeNameBytes, out.size());
    return false;
}

bool parse_arguments(const char* function, PyObject* const* args, Py_ssize_t count, PyObject* names,
                     const char* const* expected, int required, PyObject** out, int out_count) {
    if (count > out_count) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d arguments (%zd given)", function, out_count,
                     count);
        return false;
    }
    for (Py_ssize_t i = 0; i < count; ++i) out[i] = args[i];
    Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t n = 0; n < named; ++n) {
        PyObject* name = PyTuple_GetItem(names, n);
        int at = 0;
        while (at < out_count && PyUnicode_CompareWithASCIIString(name, expected[at]) != 0) ++at;
        if (at == out_count || out[at]) {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected or repeated argument '%U'", function, name);
            return false;
        }
        out[at] = args[count + n];
    }
    for (int i = 0; i < required; ++i) {
        if (out[i]) continue;
        PyErr_Format(PyExc_TypeError, "%s() is missing its argument '%s'", function, expected[i]);
        return false;
    }
    return true;
}

namespace {

#if defined(RINGMAIN_LAB)
PyObject* crash_points(PyObject*, PyObject*) {
    Ref labels(PyTuple_New(kCrashPointCount));
    for (size_t i = 0; labels && i < kCrashPointCount; ++i) {
        PyObject* label = PyUnicode_FromString(kCrashPoints[i]);
        if (!label || PyTuple_SetItem(labels.get(), static_cast<Py_ssize_t>(i), label) != 0) return nullptr;
    }
    return labels.release();
}
#endif

// An empty call, to measure what a call costs by itself.
PyObject* nothing(PyObject*, PyObject*) { Py_RETURN_NONE; }

PyMethodDef functions[] = {
    {"nothing", entry<nothing>, METH_NOARGS, "Do nothing: the cost of a call, for benchmarks."},
#if defined(RINGMAIN_LAB)
    {"crash_points", entry<crash_points>, METH_NOARGS, "The labels of the crash points, as CRASH_POINTS."},
#endif
    {nullptr, nullptr, 0, nullptr}};

// In the lab module alone: the labels at which a process can die.
bool add_crash_points([[maybe_unused]] PyObject* module) {
#if defined(RINGMAIN_LAB)
    Ref labels(crash_points(nullptr, nullptr));
    return labels && PyModule_AddObjectRef(module, "CRASH_POINTS", labels.get()) == 0;
#else
    return true;
#endif
}

// The table of topics' contracts, a dict a row; ringmain/_contracts.py gives it names and types.
bool add_contracts(PyObject* module) {
    constexpr const char* kHolds[] = {"never", "while borrowed", "always"};
    Ref rows(PyList_New(0));
    for (const ContractTraits& contract : kContracts) {
        Ref row(Py_BuildValue(
            "{sssOsOsssOsO}", "name", contract.name, "one_writer", contract.one_writer ? Py_True : Py_False,
            "one_reader", contract.one_reader ? Py_True : Py_False, "holds",
            kHolds[static_cast<size_t>(contract.holds)], "keeps_unread",
            contract.keeps_unread ? Py_True : Py_False, "shared", contract.shared ? Py_True : Py_False));
        if (!append(rows, std::move(row))) return false;
    }
    return rows && PyModule_AddObjectRef(module, "CONTRACTS", rows.get()) == 0;
}

bool add_constants(PyObject* module) {
    Ref offsets(PyDict_New());
    if (!offsets) return false;
    auto put = [&](const char* name, uint64_t value) {
        Ref number(PyLong_FromUnsignedLongLong(value));
        return number && PyDict_SetItemString(offsets.get(), name, number.get()) == 0;
    };
#define FIELD(type, field) put(#type "." #field, offsetof(type, field))
    bool done =
        FIELD(Header, magic) && FIELD(Header, version) && FIELD(Header, contract) &&
        FIELD(Header, capacity_bytes) && FIELD(Header, data_offset) && FIELD(Header, schema_offset) &&
        FIELD(Header, schema_capacity_bytes) && FIELD(Header, slot_count) && FIELD(Header, flags) &&
        FIELD(Header, epoch) && FIELD(Header, name) && FIELD(Header, kept_kinds) &&
        FIELD(Header, kept_entry_bytes) && FIELD(Header, not_kept) && FIELD(KeptEntry, version) &&
        FIELD(KeptEntry, position) && FIELD(Header, claim) && FIELD(Header, tail) && FIELD(Header, commit) &&
        FIELD(Header, newest) && FIELD(Header, turn) && FIELD(Header, last_ticket) &&
        FIELD(Header, retired) && FIELD(Header, slots_used) && FIELD(Header, membership) &&
        FIELD(Header, schema_version) && FIELD(Header, schema_bytes) && FIELD(Header, roster_pid) &&
        FIELD(Header, roster_pid_namespace) && FIELD(Header, bell) && FIELD(Header, borrowing) &&
        FIELD(Header, work_bell) && FIELD(Header, work_idle) && FIELD(Header, returned) &&
        FIELD(Slot, state) && FIELD(Slot, role) && FIELD(Slot, pid) && FIELD(Slot, uid) &&
        FIELD(Slot, generation) && FIELD(Slot, joined_ns) && FIELD(Slot, name) &&
        FIELD(Slot, waits_in_epoch) && FIELD(Slot, waits_in_slot) && FIELD(Slot, waits_in_generation) &&
        FIELD(Slot, hold) && FIELD(Slot, position) && FIELD(Slot, sequence) && FIELD(Slot, messages) &&
        FIELD(Slot, bytes) && FIELD(Slot, lost) && FIELD(Slot, busy) && FIELD(Slot, waits_for) &&
        FIELD(Slot, awaited) && FIELD(Slot, pid_namespace) && FIELD(Slot, started_ticks) &&
        FIELD(Slot, blocked_ns) && FIELD(Slot, taken_from) && FIELD(Slot, taken_until) &&
        FIELD(Slot, taken_ns) && FIELD(Slot, redelivered) && FIELD(MessageHeader, seq) &&
        FIELD(MessageHeader, time_ns) && FIELD(MessageHeader, size) && FIELD(MessageHeader, sender_size) &&
        FIELD(MessageHeader, kind_size) && FIELD(MessageHeader, flags) && put("Header", sizeof(Header)) &&
        put("Slot", sizeof(Slot)) && put("MessageHeader", sizeof(MessageHeader)) &&
        put("roster_offset", kRosterOffset) && put("schema_offset", schema_offset(kDefaultSlotCount)) &&
        put("slot_count", kDefaultSlotCount) && put("version", kVersion);
#undef FIELD
    return done && PyModule_AddObjectRef(module, "LAYOUT", offsets.get()) == 0 && add_contracts(module) &&
           add_crash_points(module) &&
           PyModule_AddIntConstant(module, "DEFAULT_CAPACITY", kDefaultCapacityBytes) == 0 &&
           PyModule_AddIntConstant(module, "SLOT_COUNT", kDefaultSlotCount) == 0 &&
           PyModule_AddIntConstant(module, "MAX_SLOT_COUNT", kMaxSlotCount) == 0 &&
           PyModule_AddIntConstant(module, "KEPT_KINDS", kDefaultKeptKinds) == 0 &&
           PyModule_AddIntConstant(module, "MAX_KEPT_KINDS", kMaxKeptKinds) == 0;
}

// The module, once it is complete. The types and the classes they use are variables of this library, one for the whole
// process. Made a second time, for another interpreter or after `del sys.modules[...]`, they would replace the first ones,
// and objects of the first would not be recognised any more. So each import gives the same module.
PyObject* loaded;

bool is_main_interpreter() {
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0) return true;
    PyErr_SetString(
        PyExc_ImportError,
        "ringmain cannot be imported in a subinterpreter: its native module has one state for the "
        "whole process. Import it in the main interpreter, or use another process");
    return false;
}

PyObject* create_module(PyObject* spec, PyModuleDef*) {
    if (!is_main_interpreter()) return nullptr;
    if (loaded) return Py_NewRef(loaded);
    Ref name(PyObject_GetAttrString(spec, "name"));
    return name ? PyModule_NewObject(name.get()) : nullptr;
}

int execute(PyObject* module) {
    if (module == loaded) return 0;
    Ref message_module(PyImport_ImportModule("ringmain._message"));
    if (!message_module) return -1;
    message_class = PyObject_GetAttrString(message_module.get(), "Message");
    empty_str = PyUnicode_InternFromString("");
    Ref bytes(PyBytes_FromStringAndSize("ringmain", 8));
    if (!bytes) return -1;
    bytes_data_offset =
        static_cast<size_t>(PyBytes_AsString(bytes.get()) - reinterpret_cast<char*>(bytes.get()));
    bool done = message_class && empty_str && add_constants(module) &&
                PyModule_AddFunctions(module, inspect_methods) == 0 && add_publisher(module) &&
                add_reservation(module) && add_subscriber(module) && add_lease(module) &&
                add_heap_buffer(module) && add_batch(module) && add_replay(module) && add_event(module) &&
                add_wait(module) && add_server(module) && add_client(module) && add_frame_publisher(module) &&
                add_frame_subscriber(module) && add_frame_inspection(module);
    if (done) loaded = Py_NewRef(module);
    return done ? 0 : -1;
}

}  // namespace

}  // namespace ringmain::py

#define RINGMAIN_GLUE2(a, b) a##b
#define RINGMAIN_GLUE(a, b) RINGMAIN_GLUE2(a, b)
#define RINGMAIN_TEXT2(a) #a
#define RINGMAIN_TEXT(a) RINGMAIN_TEXT2(a)

PyMODINIT_FUNC RINGMAIN_GLUE(PyInit_, RINGMAIN_MODULE)() {
    static PyModuleDef_Slot slots[] = {
        {Py_mod_create, reinterpret_cast<void*>(ringmain::py::entry<ringmain::py::create_module>)},
        {Py_mod_exec, reinterpret_cast<void*>(ringmain::py::entry<ringmain::py::execute>)},
        {0, nullptr}};
    static PyModuleDef definition = {
        PyModuleDef_HEAD_INIT,
        RINGMAIN_TEXT(RINGMAIN_MODULE),
        "The native module of the package `ringmain`. Import from the package instead.",
        0,
        ringmain::py::functions,
        slots,
        nullptr,
        nullptr,
        nullptr};
    return PyModuleDef_Init(&definition);
}
