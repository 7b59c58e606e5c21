// A Python module that passes messages of 32 bytes on and does nothing that could be left out: what Python and the processor ask
// of any library that stamps and numbers its messages, copies them into memory that processes share, and gives them as `bytes`.
// No roster, no deaths, no other sizes, contracts, kinds or observers, no GIL to give up, and nothing of a queue is ever in
// another state than its users think.
//
//   make()                             the queues, which processes forked from now on share
//   sends(lane), receives(lane), works(number)    what this process does, before its first call
//   send(data), recv()                 from one process to one other; recv looks until there is one
//   send_waking(data), recv_asleep()   the same, where the reader sleeps
//   send_many(list), recv_many(most)   a few in one call; recv_many looks until there is one
//   put_many(list), take_many(most)    several writers, of which one has the turn, and workers, each message for one of them; none
//                                      for 50 ms: an empty list
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <cstring>

#include "base/clock.hpp"
#include "processes.hpp"

namespace {

constexpr size_t kSize = 32;
constexpr uint64_t kSlots = 1 << 14;
constexpr int kLanes = 2, kWorkers = 3;

using Number = std::atomic<uint64_t>;

struct Slot {
    int64_t time_ns;
    char data[kSize];
};
struct Queue {
    alignas(128) Number written{0};
    alignas(128) Number read{0};
    alignas(128) std::atomic<uint32_t> bell{0};
    std::atomic<uint32_t> sleeps{0};
    alignas(128) Slot slots[kSlots];
};
struct alignas(128) Held {
    Number from{UINT64_MAX};
};
struct Work {
    alignas(128) std::atomic<uint32_t> turn{0};
    alignas(128) Number written{0};
    alignas(128) Number taken{0};
    Held held[kWorkers];  // what a worker is about to take, and has not copied yet
    alignas(128) Slot slots[kSlots];
};
struct Shared {
    Queue lanes[kLanes];
    Work work;
};

Shared* shared;
Queue *out, *in;
Held* held;
uint64_t written, read_seen;      // the writer's: its own number, and what it knows of the reader's
uint64_t read_own, written_seen;  // the reader's
ringmain::Clock<CLOCK_REALTIME> clock_;

PyObject* make(PyObject*, PyObject*) {
    if (shared) munmap(shared, sizeof *shared);
    shared = bench::shared<Shared>();
    out = in = shared->lanes;
    written = read_seen = read_own = written_seen = 0;
    Py_RETURN_NONE;
}

using Given = PyObject* const*;

// A child's first touch of a page that it shares is a fault, which a hundred messages later is the next.
void populate() {
    constexpr int kPopulateWrite =
        23;  // MADV_POPULATE_WRITE; where the kernel has none, they come as they are touched
    (void)madvise(shared, sizeof *shared, kPopulateWrite);
}
PyObject* sends(PyObject*, Given given, Py_ssize_t, PyObject*) {
    populate();
    out = shared->lanes + PyLong_AsLong(given[0]) % kLanes;
    Py_RETURN_NONE;
}
PyObject* receives(PyObject*, Given given, Py_ssize_t, PyObject*) {
    populate();
    in = shared->lanes + PyLong_AsLong(given[0]) % kLanes;
    Py_RETURN_NONE;
}
PyObject* works(PyObject*, Given given, Py_ssize_t, PyObject*) {
    populate();
    held = shared->work.held + PyLong_AsLong(given[0]) % kWorkers;
    Py_RETURN_NONE;
}

const char* data_of(PyObject* message) {
    char* data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(message, &data, &size) != 0) return nullptr;
    if (size == Py_ssize_t{kSize}) return data;
    PyErr_SetString(PyExc_ValueError, "a message has 32 bytes here");
    return nullptr;
}
void copy_in(Slot& slot, const char* data, int64_t time_ns) {
    slot.time_ns = time_ns;
    std::memcpy(slot.data, data, kSize);
}
PyObject* copy_out(const Slot& slot) { return PyBytes_FromStringAndSize(slot.data, kSize); }

// ---------------------------------------------------------------------------------------- one writer, one reader

template <typename Condition>
void look_until(Condition done) {
    bench::spin_until([&] {
        if (done()) return true;
        ringmain::pause();  // the other side may be on the same core
        return false;
    });
}
void wait_for_room() {
    if (written - read_seen == kSlots)
        look_until(
            [] { return (read_seen = out->read.load(std::memory_order_acquire)) + kSlots != written; });
}
void wait_for_message() {
    if (read_own == written_seen)
        look_until([] { return (written_seen = in->written.load(std::memory_order_acquire)) != read_own; });
}
PyObject* next() { return copy_out(in->slots[read_own++ % kSlots]); }

PyObject* send(PyObject*, Given given, Py_ssize_t, PyObject*) {
    const char* data = data_of(given[0]);
    if (!data) return nullptr;
    wait_for_room();
    copy_in(out->slots[written % kSlots], data, clock_.now_ns());
    out->written.store(++written, std::memory_order_release);
    return PyLong_FromLong(static_cast<long>(written));
}
PyObject* recv(PyObject*, Given, Py_ssize_t, PyObject*) {
    wait_for_message();
    PyObject* message = next();
    in->read.store(read_own, std::memory_order_release);
    return message;
}

PyObject* send_waking(PyObject* self, Given given, Py_ssize_t count, PyObject* names) {
    PyObject* number = send(self, given, count, names);
    out->bell.fetch_add(1, std::memory_order_seq_cst);
    if (out->sleeps.load(std::memory_order_seq_cst))
        ringmain::wake(reinterpret_cast<const uint32_t*>(&out->bell), 1);
    return number;
}
PyObject* recv_asleep(PyObject* self, Given given, Py_ssize_t count, PyObject* names) {
    while (in->written.load(std::memory_order_acquire) == read_own) {
        uint32_t rung = in->bell.load(std::memory_order_seq_cst);
        in->sleeps.store(1, std::memory_order_seq_cst);
        if (in->written.load(std::memory_order_seq_cst) == read_own)
            ringmain::sleep_on({reinterpret_cast<const uint32_t*>(&in->bell), rung}, 1'000'000'000);
        in->sleeps.store(0, std::memory_order_relaxed);
        if (PyErr_CheckSignals() != 0) return nullptr;
    }
    return recv(self, given, count, names);
}

PyObject* send_many(PyObject*, Given given, Py_ssize_t, PyObject*) {
    Py_ssize_t count = PyList_Size(given[0]);
    int64_t now_ns = clock_.now_ns();
    for (Py_ssize_t i = 0; i < count; ++i) {
        const char* data = data_of(PyList_GetItem(given[0], i));
        if (!data) return nullptr;
        wait_for_room();
        copy_in(out->slots[written++ % kSlots], data, now_ns);
    }
    out->written.store(written, std::memory_order_release);
    return PyLong_FromSsize_t(count);
}
PyObject* recv_many(PyObject*, Given given, Py_ssize_t, PyObject*) {
    Py_ssize_t most = PyLong_AsSsize_t(given[0]);
    wait_for_message();
    Py_ssize_t count = std::min(most, static_cast<Py_ssize_t>(written_seen - read_own));
    PyObject* list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; ++i) PyList_SetItem(list, i, next());
    in->read.store(read_own, std::memory_order_release);
    return list;
}

// ------------------------------------------------------------------------------------- several writers, workers

// Looks for a microsecond, and then lets others run between two looks, who may have to do what is awaited. False: not in time.
template <typename Condition>
bool yield_until(Condition done, int64_t for_ns) {
    int64_t end_ns = 0;
    for (int turns = 1; !done(); ++turns) {
        ringmain::pause();
        if (turns % 40 != 0) continue;
        sched_yield();
        int64_t now_ns = bench::now_ns();
        if (end_ns == 0) end_ns = now_ns + for_ns;
        if (now_ns > end_ns) return false;
    }
    return true;
}
constexpr int64_t kPatience_ns = 20'000'000'000, kMoment_ns = 50'000'000;

PyObject* put_many(PyObject*, Given given, Py_ssize_t, PyObject*) {
    Work& work = shared->work;
    auto count = static_cast<uint64_t>(PyList_Size(given[0]));
    int64_t now_ns = clock_.now_ns();
    if (!yield_until([&] { return work.turn.exchange(1, std::memory_order_acquire) == 0; }, kPatience_ns))
        bench::wrong("nobody gives the turn back");
    uint64_t at = work.written.load(std::memory_order_relaxed);
    auto has_room = [&] {
        uint64_t first =
            work.taken.load(std::memory_order_seq_cst);  // before the workers': they say first what they take
        for (const Held& one : work.held) first = std::min(first, one.from.load(std::memory_order_seq_cst));
        return at + count <= first + kSlots;
    };
    if (!yield_until(has_room, kPatience_ns)) bench::wrong("nobody takes the messages");
    for (uint64_t i = 0; i < count; ++i) {
        const char* data = data_of(PyList_GetItem(given[0], static_cast<Py_ssize_t>(i)));
        if (!data) bench::wrong("not messages of 32 bytes");
        copy_in(work.slots[(at + i) % kSlots], data, now_ns);
    }
    work.written.store(at + count, std::memory_order_release);
    work.turn.store(0, std::memory_order_release);
    return PyLong_FromLong(static_cast<long>(count));
}
PyObject* take_many(PyObject*, Given given, Py_ssize_t, PyObject*) {
    Work& work = shared->work;
    auto most = static_cast<uint64_t>(PyLong_AsSsize_t(given[0]));
    uint64_t at = 0, end = 0;
    auto takes = [&] {
        at = work.taken.load(std::memory_order_seq_cst);
        end = std::min(at + most, work.written.load(std::memory_order_acquire));
        if (at == end) return false;
        held->from.store(at, std::memory_order_seq_cst);
        return work.taken.compare_exchange_strong(at, end, std::memory_order_seq_cst);
    };
    if (!yield_until(takes, kMoment_ns)) at = end;
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(end - at));
    for (uint64_t i = at; list && i < end; ++i)
        PyList_SetItem(list, static_cast<Py_ssize_t>(i - at), copy_out(work.slots[i % kSlots]));
    held->from.store(UINT64_MAX, std::memory_order_release);
    return PyErr_CheckSignals() == 0 ? list : nullptr;
}

PyMethodDef method(const char* name, PyObject* (*call)(PyObject*, Given, Py_ssize_t, PyObject*)) {
    auto plain = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call));
    return {name, plain, METH_FASTCALL | METH_KEYWORDS, nullptr};
}

}  // namespace

PyMODINIT_FUNC PyInit_least() {
    static PyMethodDef methods[] = {{"make", make, METH_NOARGS, nullptr},
                                    method("sends", sends),
                                    method("receives", receives),
                                    method("works", works),
                                    method("send", send),
                                    method("recv", recv),
                                    method("send_waking", send_waking),
                                    method("recv_asleep", recv_asleep),
                                    method("send_many", send_many),
                                    method("recv_many", recv_many),
                                    method("put_many", put_many),
                                    method("take_many", take_many),
                                    {}};
    static PyModuleDef definition{
        PyModuleDef_HEAD_INIT, "least", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};
    return PyModule_Create(&definition);
}
