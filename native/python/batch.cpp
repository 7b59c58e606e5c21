// ringmain._ring.Batch: many messages received into Arrow columns, with no Python object for each. pyarrow, polars and
// DuckDB import it through __arrow_c_array__ without a copy; this module needs none of them.
#include <cstdlib>
#include <mutex>
#include <optional>

#include "base/text.hpp"
#include "python/arrow.hpp"
#include "python/subscriber.hpp"

namespace ringmain::py {

namespace {

// Memory that grows without being cleared first, and is moved cheaply when it is large.
class Buffer {
    char* at_ = nullptr;
    size_t size_ = 0, room_ = 0;

    [[gnu::noinline]] bool grow_to(size_t size) {
        size_t room = std::max<size_t>({size, room_ * 2, 256});
        char* moved = static_cast<char*>(std::realloc(at_, room));
        if (!moved) return false;
        at_ = moved;
        room_ = room;
        return true;
    }

  public:
    Buffer() = default;
    ~Buffer() { std::free(at_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    // Makes room for `more` bytes after the last; false if there is no memory.
    bool make_room(size_t more) { return size_ + more <= room_ || grow_to(size_ + more); }
    char* end() const { return at_ + size_; }  // where make_room() has made some
    void grew(size_t by) { size_ += by; }
    void clear() { size_ = 0; }
    const char* data() const { return at_; }
    size_t size() const { return size_; }
    size_t room() const { return room_; }
};

// A column of numbers. Room is made for many rows at once, and put() writes by row number: updating six sizes for each
// message would cost as much as copying it.
template <class T>
class Numbers {
    Buffer buffer_;

  public:
    bool make_room(int64_t rows) {
        buffer_.clear();
        return buffer_.make_room(static_cast<size_t>(rows) * sizeof(T));
    }
    void put(int64_t row, T value) { reinterpret_cast<T*>(buffer_.end())[row] = value; }
    const void* data() const { return buffer_.data(); }
};

// A column of texts or payloads: where each ends, and the bytes of all, concatenated.
struct TextColumn {
    static constexpr size_t kShort = 16;

    Numbers<int32_t> offsets;
    Buffer bytes;
    size_t last = 0;  // the size of the row before

    bool start() {
        bytes.clear();
        last = 0;
        if (!offsets.make_room(1) || !bytes.make_room(1)) return false;
        offsets.put(0, 0);
        return true;
    }
    void close_row(int64_t row) { offsets.put(row + 1, static_cast<int32_t>(bytes.size())); }

    // Copies the bytes after the last row, as part of none yet. Senders and kinds are short or empty: those are copied
    // without a call.
    bool push(const std::byte* from, size_t size) {
        if (size == 0) return true;
        if (!bytes.make_room(size)) return false;
        char* to = bytes.end();
        if (size > kShort || size < 4) {
            copy_out(to, from, size);
        } else if (size >= 8) {
            copy_out(to, from, 8);
            copy_out(to + size - 8, from + size - 8, 8);
        } else {
            copy_out(to, from, 4);
            copy_out(to + size - 4, from + size - 4, 4);
        }
        return true;
    }
    // Keeps the `size` bytes just pushed, as valid UTF-8, since a peer may send anything. Mostly the text is the same as
    // in the row before.
    [[gnu::always_inline]] bool keep_text(size_t size) {
        if (size != last || !is_as_before(bytes.end(), size)) [[unlikely]]
            return keep_new_text(size);
        bytes.grew(size);
        return true;
    }

  private:
    // Are the `size` bytes here the same as those before them? Without a call if they are few.
    static bool is_as_before(const char* here, size_t size) {
        const char* before = here - size;
        if (size < 8 || size > kShort) return size == 0 || std::memcmp(before, here, size) == 0;
        auto word = [](const char* at) {
            uint64_t value;
            std::memcpy(&value, at, sizeof value);
            return value;
        };
        return word(before) == word(here) && word(before + size - 8) == word(here + size - 8);
    }
    [[gnu::noinline]] bool keep_new_text(size_t size) {
        std::string_view pushed(bytes.end(), size);
        if (!is_utf8(pushed)) {
            std::string valid = valid_utf8(pushed);
            size = valid.size();
            if (!bytes.make_room(size)) return false;
            std::memcpy(bytes.end(), valid.data(), size);
        }
        last = size;
        bytes.grew(size);
        return true;
    }
};

struct Columns {
    int64_t rows = 0, room = 0;
    uint64_t epoch = 0;       // all rows are of one life of the topic
    uint64_t lost_total = 0;  // the sum of `lost`
    Numbers<uint64_t> seq, lost;
    Numbers<int64_t> time_ns;
    TextColumn sender, kind, data;
    // Few messages have one, and few batches any: the offsets of the others are filled in when the batch is complete.
    TextColumn extension;
    int64_t extended = 0;  // rows whose offsets are there

    bool start() {
        rows = room = extended = 0;
        epoch = lost_total = 0;
        return sender.start() && kind.start() && data.start() && extension.start();
    }
    bool make_room() { return rows < room || grow(); }
    size_t bytes() const {  // three columns of eight bytes, and four of offsets
        return sender.bytes.room() + kind.bytes.room() + data.bytes.room() + extension.bytes.room() +
               static_cast<size_t>(room) * 40;
    }
    // Extension and kind were pushed as the kind of the row that comes: sorts them, and says how long the kind is; none: there is
    // no memory.
    [[gnu::noinline]] std::optional<size_t> sort_out(size_t size) {
        Said said = parts_of({kind.bytes.end(), size});
        size_t extension_size = said.extension.size();
        if (extension_size != 0) {
            if (!extension.bytes.make_room(extension_size)) return {};
            std::memcpy(extension.bytes.end(), said.extension.data(), extension_size);
            fill(rows);
            extension.bytes.grew(extension_size);
        }
        std::memmove(kind.bytes.end(), said.kind.data(), said.kind.size());
        return said.kind.size();
    }
    // Rows up to this one, which is about to come, or is the end.
    void fill(int64_t end) {
        for (; extended < end; ++extended) extension.close_row(extended);
    }

  private:
    [[gnu::noinline]] bool grow() {
        int64_t more = std::max<int64_t>(512, room * 2);
        bool made = seq.make_room(more) && lost.make_room(more) && time_ns.make_room(more);
        for (TextColumn* column : {&sender, &kind, &data, &extension})
            made = made && column->offsets.make_room(more + 1);
        if (made) room = more;
        return made;
    }
};

// The memory of freed batches, for reuse. A program that drains a topic needs the same few megabytes again and again; the
// allocator would return them to the kernel each time, and have every page cleared and mapped again, which costs more than
// the copy. Only a few batches are kept, and none that is very large.
class Spare {
    static constexpr size_t kMaxSpares = 4, kMaxSpareBytes = size_t{16} << 20;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Columns>> spare_;

    // Never destroyed: Arrow may free a batch while the program exits.
    static Spare& all() {
        static Spare& spare = *new Spare;
        return spare;
    }
    Spare() { spare_.reserve(kMaxSpares); }  // what is freed cannot say that there is no memory

    static void give_back(Columns* gone) {
        std::unique_ptr<Columns> columns(gone);
        if (columns->bytes() > kMaxSpareBytes) return;
        // try_to_lock: in a forked child the lock may be held by a thread of the parent.
        std::unique_lock lock(all().mutex_, std::try_to_lock);
        if (lock && all().spare_.size() < kMaxSpares) all().spare_.push_back(std::move(columns));
    }

  public:
    static std::shared_ptr<Columns> take() {
        std::unique_lock lock(all().mutex_, std::try_to_lock);
        if (!lock || all().spare_.empty()) return {new Columns, give_back};
        std::unique_ptr<Columns> columns = std::move(all().spare_.back());
        all().spare_.pop_back();
        lock.unlock();
        return {columns.release(), give_back};
    }
};

struct Column {
    const char *name, *format;
};
constexpr Column kColumns[] = {{"seq", "L"},  {"time_ns", "l"},   {"sender", "u"}, {"kind", "u"},
                               {"lost", "L"}, {"extension", "z"}, {"data", "z"}};
constexpr int64_t kColumnCount = std::size(kColumns);

// What one exported array owns: all columns, shared with the other arrays of the batch.
struct Exported {
    std::shared_ptr<Columns> columns;
    const void* buffers[3] = {};
    std::vector<ArrowArray*> children;
};

void release_array(ArrowArray* array) {
    auto* exported = static_cast<Exported*>(array->private_data);
    for (ArrowArray* child : exported->children) {
        if (child->release) child->release(child);
        delete child;
    }
    delete exported;
    array->release = nullptr;
}

void fill_array(ArrowArray* array, const std::shared_ptr<Columns>& columns, int64_t buffers) {
    auto* exported = new Exported{columns};  // all that can throw
    *array = {columns->rows, 0, 0, buffers, 0, exported->buffers, nullptr, nullptr, release_array, exported};
}

void export_array(ArrowArray* array, const std::shared_ptr<Columns>& columns) {
    fill_array(array, columns, 1);
    auto* exported = static_cast<Exported*>(array->private_data);
    exported->children.reserve(kColumnCount);
    for (const Column& column : kColumns) {
        auto* child = exported->children.emplace_back(new ArrowArray{});
        bool text = *column.format == 'u' || *column.format == 'z';
        fill_array(child, columns, text ? 3 : 2);
        const void** buffers = child->buffers;
        std::string_view name = column.name;
        auto put_text = [&](const TextColumn& c) {
            buffers[1] = c.offsets.data();
            buffers[2] = c.bytes.data();
        };
        if (name == "seq") buffers[1] = columns->seq.data();
        if (name == "time_ns") buffers[1] = columns->time_ns.data();
        if (name == "lost") buffers[1] = columns->lost.data();
        if (name == "sender") put_text(columns->sender);
        if (name == "kind") put_text(columns->kind);
        if (name == "extension") put_text(columns->extension);
        if (name == "data") put_text(columns->data);
    }
    array->n_children = kColumnCount;
    array->children = exported->children.data();
}

void release_schema(ArrowSchema* schema) {
    for (int64_t i = 0; i < schema->n_children; ++i) {
        if (schema->children[i]->release) schema->children[i]->release(schema->children[i]);
        delete schema->children[i];
    }
    delete[] schema->children;
    schema->release = nullptr;
}

void export_schema(ArrowSchema* schema) {
    *schema = {"+s", "", nullptr, 0, 0, new ArrowSchema*[kColumnCount], nullptr, release_schema, nullptr};
    for (const Column& column : kColumns) {
        auto* child = new ArrowSchema{column.format, column.name, nullptr,        0,      0,
                                      nullptr,       nullptr,     release_schema, nullptr};
        schema->children[schema->n_children++] = child;
    }
}

template <class T>
struct Drop {
    void operator()(T* thing) const {
        if (thing->release) thing->release(thing);
        delete thing;
    }
};
constexpr const char* kArraySays = "arrow_array";
constexpr const char* kSchemaSays = "arrow_schema";

// A capsule that no consumer has imported still owns its struct.
template <class T, auto fill, const auto& name, class... Given>
PyObject* capsule_of(const Given&... given) {
    std::unique_ptr<T, Drop<T>> thing(new T{});
    fill(thing.get(), given...);
    PyObject* capsule = PyCapsule_New(thing.get(), name, [](PyObject* self) {
        Drop<T>()(static_cast<T*>(PyCapsule_GetPointer(self, name)));
    });
    if (capsule) (void)thing.release();
    return capsule;
}

PyObject* schema_capsule() { return capsule_of<ArrowSchema, export_schema, kSchemaSays>(); }

struct BatchObject {
    PyObject_HEAD std::shared_ptr<Columns>* columns;
};

const std::shared_ptr<Columns>& columns_of(PyObject* self) {
    return *reinterpret_cast<BatchObject*>(self)->columns;
}

PyObject* arrow_c_array(PyObject* self, PyObject*, PyObject*) {
    Ref schema(schema_capsule());
    Ref array(schema ? capsule_of<ArrowArray, export_array, kArraySays>(columns_of(self)) : nullptr);
    return array ? Py_BuildValue("OO", schema.get(), array.get()) : nullptr;
}

PyObject* arrow_c_schema(PyObject*, PyObject*) { return schema_capsule(); }

Py_ssize_t length(PyObject* self) { return static_cast<Py_ssize_t>(columns_of(self)->rows); }

PyObject* get_nbytes(PyObject* self, void*) { return PyLong_FromSize_t(columns_of(self)->data.bytes.size()); }

PyObject* get_epoch(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(columns_of(self)->epoch); }

PyObject* get_lost(PyObject* self, void*) {
    return PyLong_FromUnsignedLongLong(columns_of(self)->lost_total);
}

void destroy(PyObject* self) {
    delete reinterpret_cast<BatchObject*>(self)->columns;
    deallocate(self);
}

// Copies one message after the others. 1: done; 0: it was overwritten meanwhile, try again; -1: no memory.
[[gnu::always_inline]] inline int append_row(Reader& reader, Columns& c, const View& view) {
    bool room = c.make_room() && c.sender.push(view.sender(), view.sender_size) &&
                c.kind.push(view.sender() + view.sender_size, view.kind_size) &&
                c.data.bytes.make_room(view.size);
    if (!room) [[unlikely]]
        return -1;
    if (view.size < kLargeCopyBytes) [[likely]] {
        copy_out(c.data.bytes.end(), view.payload(), view.size);
    } else {
        WithoutGil unlocked;
        copy_out(c.data.bytes.end(), view.payload(), view.size);
    }
    if (!reader.still_whole(view)) return 0;
    size_t kind_size = view.kind_size;
    if (kind_size != 0 && static_cast<uint8_t>(*c.kind.bytes.end()) == kExtensionMark) [[unlikely]] {
        auto sorted = c.sort_out(kind_size);
        if (!sorted) return -1;
        kind_size = *sorted;
    }
    if (!c.sender.keep_text(view.sender_size) || !c.kind.keep_text(kind_size)) return -1;
    c.data.bytes.grew(view.size);
    uint64_t lost = reader.take(view);
    c.lost_total += lost;
    c.seq.put(c.rows, view.seq);
    c.time_ns.put(c.rows, view.time_ns);
    c.lost.put(c.rows, lost);
    c.sender.close_row(c.rows);  // not in a loop: building its list costs as much as everything else
    c.kind.close_row(c.rows);
    c.data.close_row(c.rows);
    ++c.rows;
    return 1;
}

Ref new_batch(const std::shared_ptr<Columns>& columns) {
    Ref batch(allocate(batch_type));
    if (batch) reinterpret_cast<BatchObject*>(batch.get())->columns = new std::shared_ptr<Columns>(columns);
    return batch;
}

// recv_batch(subscriber, max_messages, timeout, max_bytes): the module's function behind Subscriber.recv_batch.
PyObject* recv_batch(PyObject*, PyObject* args) {
    PyObject *self, *timeout;
    long long max_messages, max_bytes;
    int64_t timeout_ns;
    if (!PyArg_ParseTuple(args, "O!LOL", subscriber_type, &self, &max_messages, &timeout, &max_bytes) ||
        !parse_timeout(timeout, timeout_ns))
        return nullptr;
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    if (max_messages < 0 || max_bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "max_messages and max_bytes must be 0 or more");
        return nullptr;
    }
    constexpr size_t kMaxColumnBytes = 0x7fffffff;  // offsets are 32 bits
    std::shared_ptr<Columns> columns = Spare::take();
    Columns& c = *columns;
    if (!c.start()) return PyErr_NoMemory();
    Ref batch = new_batch(columns);  // first: what was taken is not discarded for want of it
    if (!batch) return nullptr;
    Deadline deadline(timeout_ns);
    Receiving turn(self, *s, &deadline);
    if (turn.late()) return batch.release();
    if (!turn.entered() || !usable_subscriber(self)) return nullptr;
    View view;
    int laps = 0;
    int found = max_messages > 0 ? wait_for_message(self, *s, deadline, view) : 0;
    while (found == 1) {
        c.epoch = s->participant->topic_file().epoch;
        size_t bytes = c.data.bytes.size() + view.size;
        if (c.rows > 0 && (bytes > static_cast<size_t>(max_bytes) || bytes > kMaxColumnBytes)) break;
        if (std::max({c.sender.bytes.size(), c.kind.bytes.size(), c.extension.bytes.size()}) >
            kMaxColumnBytes - 3 * UINT8_MAX)
            break;
        if (bytes > kMaxColumnBytes) {
            PyErr_Format(PyExc_ValueError,
                         "the next message of topic '%s' has %u bytes, more than an Arrow batch holds: "
                         "receive it with "
                         "recv()",
                         s->topic.c_str(), view.size);
            found = -1;
            break;
        }
        int done = guarded([&] { return append_row(*s->reader, c, view); });
        if (done < 0) {
            PyErr_NoMemory();
            found = -1;
            break;
        }
        if (c.rows >= max_messages || (done == 0 && c.rows > 0)) break;
        if (done == 0 && !try_again(deadline, laps)) {
            found = PyErr_Occurred() ? -1 : 0;
            break;
        }
        // Of this life alone: if the topic was created again, its numbers begin again, in the next batch.
        found = next_of_many(*s, view);
    }
    if (s->reader && !s->reader->release(s->keep()) && !PyErr_Occurred()) return raise_evicted(*s);
    if (found < 0) {
        if (c.rows == 0) return nullptr;
        PyErr_Clear();  // what was taken is not discarded: the next call meets the same error first
    }
    c.fill(c.rows);
    return batch.release();
}

PyMethodDef methods[] = {{"__arrow_c_array__", method(entry<arrow_c_array>), METH_VARARGS | METH_KEYWORDS,
                          "The batch through the Arrow C data interface."},
                         {"__arrow_c_schema__", entry<arrow_c_schema>, METH_NOARGS,
                          "Its schema through the Arrow C data interface."},
                         {nullptr, nullptr, 0, nullptr}};

PyGetSetDef attributes[] = {
    {"nbytes", entry<get_nbytes>, nullptr, "Bytes of payload in it.", nullptr},
    {"lost", entry<get_lost>, nullptr, "Messages lost before those in it.", nullptr},
    {"epoch", entry<get_epoch>, nullptr, "The epoch of the topic's life it is from; 0 if empty.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, attributes},
                       {Py_sq_length, reinterpret_cast<void*>(entry<length>)},
                       {Py_tp_doc, const_cast<char*>("Messages as Arrow columns.")},
                       {0, nullptr}};
PyType_Spec spec = {"ringmain._ring.Batch", sizeof(BatchObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

PyMethodDef functions[] = {
    {"recv_batch", entry<recv_batch>, METH_VARARGS, "The messages that are there, as Arrow columns."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool add_batch(PyObject* module) {
    return (batch_type = add_type(module, spec)) && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace ringmain::py
