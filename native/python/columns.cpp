// ringmain._recording.decode_messages: columns.hpp for Python. Buffers come from pyarrow and go to it.
// Invariant: offsets are checked before a byte of a message is read.
#include "recorder/columns.hpp"

#include <new>

#include "python/recording.hpp"
#include "python/restore_thread.hpp"

namespace {

using ringmain::Column;
using ringmain::Packed;

// [kind, nullable, optional, key, [child, ...]], as MessagePack
bool parse_column(Packed& in, Column& out, int depth = 0) {
    uint32_t fields, children;
    std::string_view kind, key;
    if (depth > 32 || !in.array(fields) || fields != 5 || !in.text(kind) || kind.size() != 1 ||
        std::string_view("bifsyltr").find(kind[0]) == std::string_view::npos || !in.boolean(out.nullable) ||
        !in.boolean(out.optional) || !in.text(key) || !in.array(children) || children > Column::kMaxFields)
        return false;
    out.kind = static_cast<Column::Kind>(kind[0]);
    out.key = key;
    out.children.resize(children);
    for (Column& child : out.children)
        if (!parse_column(in, child, depth + 1)) return false;
    return out.kind != Column::list || children == 1;
}

PyObject* bytes_of(const void* data, size_t size) {
    return PyBytes_FromStringAndSize(static_cast<const char*>(data), static_cast<Py_ssize_t>(size));
}

// One bit for each row, the lowest first.
template <class IsSet>
PyObject* bits(int64_t rows, IsSet is_set) {
    std::string packed(static_cast<size_t>((rows + 7) / 8), '\0');
    for (int64_t row = 0; row < rows; ++row)
        if (is_set(row)) packed[static_cast<size_t>(row / 8)] |= static_cast<char>(1 << row % 8);
    return bytes_of(packed.data(), packed.size());
}

PyObject* validity(const Column& column) {
    if (column.nulls.empty()) return Py_NewRef(Py_None);
    auto next = column.nulls.begin();
    return bits(column.rows, [&](int64_t row) {
        bool null = next != column.nulls.end() && *next == row;
        next += null;
        return !null;
    });
}

// The buffers of a column as Arrow lays them out, and then those of its children. False: raised.
bool append_buffers(PyObject* list, const Column& column) {
    PyObject *rest = nullptr, *offsets = nullptr;
    const std::vector<int32_t>& ends = column.offsets;
    switch (column.kind) {
        case Column::boolean:
            rest = bits(column.rows, [&](int64_t row) { return column.data[static_cast<size_t>(row)] != 0; });
            break;
        case Column::integer:
        case Column::real:
            rest = bytes_of(column.data.data(), column.data.size());
            break;
        case Column::text:
        case Column::bytes:
            rest = bytes_of(column.data.data(), column.data.size());
            [[fallthrough]];
        case Column::list:
            offsets = bytes_of(ends.data(), ends.size() * sizeof(int32_t));
            break;
        case Column::tuple:
        case Column::record:
            break;
    }
    PyObject* there = validity(column);
    PyObject* buffers = PyList_New(0);
    bool good = there && buffers && !PyErr_Occurred() && PyList_Append(buffers, there) == 0 &&
                (!offsets || PyList_Append(buffers, offsets) == 0) &&
                (!rest || PyList_Append(buffers, rest) == 0);
    PyObject* pair = good ? Py_BuildValue("LO", static_cast<long long>(column.rows), buffers) : nullptr;
    good = pair && PyList_Append(list, pair) == 0;
    for (PyObject* object : {rest, offsets, there, buffers, pair}) Py_XDECREF(object);
    for (const Column& child : column.children) good = good && append_buffers(list, child);
    return good;
}

bool offsets_fit(const int32_t* offsets, Py_ssize_t rows, Py_ssize_t bytes) {
    if (offsets[0] < 0 || offsets[rows] > bytes) return false;
    for (Py_ssize_t row = 0; row < rows; ++row)
        if (offsets[row] > offsets[row + 1]) return false;
    return true;
}

// Appends every message to the columns, without the GIL. Returns the rows that were refused.
std::vector<int64_t> take_all(Column& root, const int32_t* ends, const uint8_t* bytes, Py_ssize_t rows) {
    struct WithoutGil {
        PyThreadState* state = PyEval_SaveThread();
        ~WithoutGil() { ringmain::py::restore_thread(state); }
    } unlocked;
    std::vector<int64_t> refused;
    for (Py_ssize_t row = 0; row < rows; ++row)
        if (!root.take(bytes + ends[row], bytes + ends[row + 1])) refused.push_back(row);
    return refused;
}

PyObject* list_of(const std::vector<int64_t>& numbers) {
    PyObject* list = PyList_New(0);
    for (size_t i = 0; list && i < numbers.size(); ++i) {
        PyObject* number = PyLong_FromLongLong(numbers[i]);
        if (!number || PyList_Append(list, number) != 0) Py_CLEAR(list);
        Py_XDECREF(number);
    }
    return list;
}

}  // namespace

PyObject* decode_messages(PyObject*, PyObject* args) {
    View plan, offsets, data;
    Py_ssize_t first, rows;
    if (!PyArg_ParseTuple(args, "y*y*y*nn:decode_messages", &plan.view, &offsets.view, &data.view, &first,
                          &rows))
        return nullptr;
    Column root;
    Packed in{plan.as<uint8_t>(), plan.as<uint8_t>() + plan.view.len};
    if (rows < 0 || first < 0 || rows > kMaxRows || first > kMaxRows ||
        !offsets.has<int32_t>(first + rows + 1) ||
        !offsets_fit(offsets.as<int32_t>() + first, rows, data.view.len) || !parse_column(in, root)) {
        PyErr_SetString(PyExc_ValueError,
                        "decode_messages: needs a plan, and aligned offsets that lie within the data");
        return nullptr;
    }
    std::vector<int64_t> refused = take_all(root, offsets.as<int32_t>() + first, data.as<uint8_t>(), rows);
    PyObject* columns = PyList_New(0);
    PyObject* left = columns && append_buffers(columns, root) ? list_of(refused) : nullptr;
    PyObject* result = left ? PyTuple_Pack(2, columns, left) : nullptr;
    Py_XDECREF(columns);
    Py_XDECREF(left);
    return result;
}
