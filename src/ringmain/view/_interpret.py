"""From the messages of a topic to things to show, by the topic's type alone.

`Interpreter` takes rows as Arrow has them. Records of plain types are decoded a column at a time (`decode_column`),
which costs little; what has no columns (dicts, arrays, unions, a user's codec) is decoded message by message.
Invariant: what a message holds is shown, or counted: one that does not decode is an event with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import numpy
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.errors import CodecNotFound, SchemaError
from ringmain.recording import RecordedFrame
from ringmain.typed import Schema, codec_from_schema, decode_column
from ringmain.view._pictures import encoded, of_array, of_frame
from ringmain.view._shown import Event, Image, Path, Series, Shown, Tensor, Texts, Times
from ringmain.view._usual_names import spatial

MOST_SERIES = 16
"""Of a list or an array without names: as many numbers are plotted, one series each; what is longer is a tensor."""
_NO_COLUMNS = {"any", "ext", "ndarray"}
_ARRAYS = ({"dtype", "shape", "data"}, {"dtype", "shape", "values"})
"""The columns that an array has in tables."""
_MISREADS = (ValueError, TypeError, KeyError, RecursionError)


class Rows(NamedTuple):
    """Messages of one life of a topic."""

    times_ns: Times
    lost: Times
    """How many messages were lost before each."""
    payloads: pa.Array


class Interpreter:
    """For the messages of one life of a topic. `frames`: rows of a recorded frame topic.   reader: who lost what was
    lost before them."""

    def __init__(self, schema: Schema | None, *, frames: bool = False, reader: str = "this view") -> None:
        self._schema, self._reader = schema, reader
        self._texts: dict[Path, str] = {}
        self._decode: Callable[[Any], Any] | None = None
        self.why_bytes = ""
        self._by_column = False
        if frames:
            self._decode = RecordedFrame
        elif schema is not None:
            try:
                self._decode = codec_from_schema(schema).decode
            except (CodecNotFound, SchemaError, ImportError) as error:
                self.why_bytes = str(error)
            else:
                of_records = schema.codec == "msgpack" and bool(schema.fields)
                self._by_column = schema.codec == "struct" or (of_records and not schema.scalars & _NO_COLUMNS)

    def shown(self, rows: Rows) -> Iterator[Shown]:
        """Things in the order of their paths; those of one path in the order sent."""
        if not len(rows.payloads):
            return
        yield from self.losses(rows.times_ns, rows.lost)
        if self._by_column:
            yield from self._columns(rows)
        elif self._decode is None:
            yield from self._bytes((), rows.times_ns, rows.payloads)
        else:
            yield from self._objects(rows)

    def decoded(self, times_ns: Times, lost: Times, columns: pa.RecordBatch) -> Iterator[Shown]:
        """Of messages that are columns already, as a lake has them: what is no record is in the column `value`, as JSON
        if it has no columns."""
        yield from self.losses(times_ns, lost)
        if columns.schema.names != ["value"]:
            yield from self._record((), times_ns, columns.to_struct_array())
        elif pa.types.is_string(columns.schema.types[0]):
            yield from self._walked((), times_ns, map(_from_json, columns.column(0).to_pylist()))
        else:
            yield from self._column((), times_ns, columns.column(0))

    def losses(self, times_ns: Times, lost: Times) -> Iterator[Event]:
        """What was lost before messages of these times."""
        for at in numpy.flatnonzero(lost):
            yield Event(int(times_ns[at]), f"{self._reader} lost {lost[at]:,} messages", "WARN")

    # -------------------------------------------------------------------------------------------- by column

    def _columns(self, rows: Rows) -> Iterator[Shown]:
        assert self._schema is not None
        values, reasons = decode_column(rows.payloads, self._schema)
        if reasons.null_count < len(reasons):
            bad = pc.is_valid(reasons)
            yield from misread(rows.times_ns[_array(bad)], reasons.filter(bad).to_pylist(), self._schema.type_name)
            good = pc.invert(bad)
            rows = rows._replace(times_ns=rows.times_ns[_array(good)])
            values = values.filter(good)
        yield from self._record((), rows.times_ns, values)

    def _record(self, path: Path, times_ns: Times, record: pa.StructArray) -> Iterator[Shown]:
        names = [field.name for field in record.type]
        if set(names) in _ARRAYS:
            yield from self._walked(path, times_ns, map(_numpy_array, record.to_pylist()))
            return
        columns = dict(zip(names, record.flatten(), strict=True))

        def numbers(below: Path) -> Any:
            array: Any = columns.get(below[0])
            for name in below[1:]:
                if array is None or not pa.types.is_struct(array.type) or array.type.get_field_index(name) < 0:
                    return None
                array = array.flatten()[array.type.get_field_index(name)]
            return _floats(array) if array is not None and _is_number(array.type) and not array.null_count else None

        yield from spatial(path, times_ns, names, numbers)
        positional = all(name == f"_{at}" for at, name in enumerate(names, 1))
        for at, (name, column) in enumerate(columns.items()):
            yield from self._column((*path, str(at) if positional else name), times_ns, column)

    def _column(self, path: Path, times_ns: Times, column: pa.Array) -> Iterator[Shown]:
        if column.null_count:
            there = column.is_valid()
            times_ns, column = times_ns[_array(there)], column.filter(there)
        kind = column.type
        if not len(column):
            return
        if _is_number(kind):
            yield Series(path, times_ns, _floats(column))
        elif pa.types.is_struct(kind):
            yield from self._record(path, times_ns, column)
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            yield from self._text(path, times_ns, column.to_pylist())
        elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            yield from self._bytes(path, times_ns, column)
        elif _is_list(kind):
            yield from self._list(path, times_ns, column)
        elif pa.types.is_map(kind):
            yield from self._walked(path, times_ns, map(dict, column.to_pylist()))

    def _list(self, path: Path, times_ns: Times, column: pa.Array) -> Iterator[Shown]:
        lengths = _array(pc.list_value_length(column))
        longest = int(lengths.max())
        if not _is_number(column.type.value_type) or longest > MOST_SERIES:
            yield from self._walked(path, times_ns, column.to_pylist())
            return
        for at in range(longest):
            long_enough = lengths > at
            items = pc.list_element(column.filter(pa.array(long_enough)), at)
            yield from self._column((*path, str(at)), times_ns[long_enough], items)

    # ---------------------------------------------------------------------------------------- by message

    def _objects(self, rows: Rows) -> Iterator[Shown]:
        assert self._decode is not None
        values, times, reasons, bad = [], [], [], []
        for time_ns, payload in zip(rows.times_ns.tolist(), rows.payloads, strict=True):
            try:
                values.append(self._decode(payload.as_buffer() if self._decode is RecordedFrame else payload.as_py()))
                times.append(time_ns)
            except _MISREADS as error:
                bad.append(time_ns)
                reasons.append(str(error))
        yield from misread(numpy.array(bad, "i8"), reasons, self._schema.type_name if self._schema else "frame")
        yield from self._walked((), numpy.array(times, "i8"), values)

    def _walked(self, path: Path, times_ns: Times, values: Any) -> Iterator[Shown]:
        """Python's objects, sorted by path."""
        numbers: dict[Path, tuple[list[int], list[float]]] = {}
        texts: dict[Path, tuple[list[int], list[str]]] = {}
        spaces: dict[Path, list[tuple[int, Mapping[str, Any]]]] = {}
        pictures: list[Shown] = []

        def walk(path: Path, time_ns: int, value: Any) -> None:
            if isinstance(value, bool | int | float) or _is_numpy_number(value):
                times, found = numbers.setdefault(path, ([], []))
                times.append(time_ns)
                found.append(float(value))
            elif isinstance(value, str):
                when, said = texts.setdefault(path, ([], []))
                when.append(time_ns)
                said.append(value)
            elif isinstance(value, RecordedFrame):
                pictures.append(of_frame(path, time_ns, value))
            elif isinstance(value, numpy.ndarray):
                if (thing := of_array(path, time_ns, value)) is not None:
                    pictures.append(thing)
                elif value.ndim == 1 and len(value) <= MOST_SERIES and value.dtype.kind in "biuf":
                    for at, item in enumerate(value.tolist()):
                        walk((*path, str(at)), time_ns, item)
                elif value.dtype.kind in "biuf" and value.size:
                    pictures.append(Tensor(path, time_ns, value))
            elif isinstance(value, bytes | bytearray | memoryview):
                if (picture := encoded(bytes(value))) is not None:
                    pictures.append(Image(path, time_ns, picture))
                else:
                    walk((*path, "size_bytes"), time_ns, len(value))
            elif isinstance(value, Mapping):
                spaces.setdefault(path, []).append((time_ns, value))
                for name, item in value.items():
                    walk((*path, str(name)), time_ns, item)
            elif isinstance(value, msgspec.Struct):
                walk(path, time_ns, {name: getattr(value, name) for name in value.__struct_fields__})
            elif isinstance(value, list | tuple | set | frozenset):
                listed = list(value)
                if len(listed) <= MOST_SERIES:
                    for at, item in enumerate(listed):
                        walk((*path, str(at)), time_ns, item)
                elif all(isinstance(item, int | float) for item in listed):
                    pictures.append(Tensor(path, time_ns, numpy.array(listed, "f8")))
                else:
                    walk((*path, "length"), time_ns, len(listed))
            elif isinstance(value, pa.RecordBatch | pa.Table):
                walk((*path, "num_rows"), time_ns, value.num_rows)

        for time_ns, value in zip(times_ns.tolist(), values, strict=True):
            walk(path, time_ns, value)
        for at, (times, found) in numbers.items():
            yield Series(at, numpy.array(times, "i8"), numpy.array(found, "f8"))
        for at, (times, said) in texts.items():
            yield from self._text(at, numpy.array(times, "i8"), said)
        for at, seen in spaces.items():
            yield from _spatial_of_mappings(at, seen)
        yield from pictures

    # ------------------------------------------------------------------------------------------ texts, bytes

    def _text(self, path: Path, times_ns: Times, texts: list[str]) -> Iterator[Shown]:
        """A topic of texts is a log. A field of a record that is text is said when it changes."""
        if not path:
            yield Texts(path, times_ns, texts)
            return
        kept = []
        for at, text in enumerate(texts):
            if self._texts.get(path) != text:
                self._texts[path] = text
                kept.append(at)
        if kept:
            yield Texts(path, times_ns[kept], [texts[at] for at in kept])

    def _bytes(self, path: Path, times_ns: Times, column: pa.Array) -> Iterator[Shown]:
        """Pictures are shown. Of other bytes the size, and those that a person can read, as text."""
        texts: dict[int, str] = {}
        for at, item in enumerate(column):
            payload = item.as_buffer()
            head = bytes(memoryview(payload)[:16])
            if (picture := encoded(head)) is not None:
                yield Image(path, int(times_ns[at]), type(picture)(payload.to_pybytes(), picture.media_type))
            elif not path and (text := _readable(payload)):
                texts[at] = text
        if texts:
            yield from self._text(path, times_ns[list(texts)], list(texts.values()))
        yield Series((*path, "size_bytes"), times_ns, _floats(pc.binary_length(column)))


def misread(times_ns: Times, reasons: list[str], type_name: str = "") -> Iterator[Event]:
    if reasons:
        many = f"{len(reasons):,} messages do" if len(reasons) > 1 else "a message does"
        known = f" as {type_name}" if type_name else ""
        yield Event(int(times_ns[-1]), f"{many} not decode{known}: {reasons[-1]}", "ERROR")


def _numpy_array(columns: Mapping[str, Any]) -> Any:
    dtype = numpy.dtype(columns["dtype"])
    flat = numpy.frombuffer(columns["data"], dtype) if "data" in columns else numpy.array(columns["values"], dtype)
    return flat.reshape(columns["shape"])


def _from_json(text: str) -> Any:
    """A record or a list that is written as JSON; otherwise the text."""
    with suppress(msgspec.DecodeError):
        if text.startswith(("{", "[")):
            return msgspec.json.decode(text)
    return text


def _spatial_of_mappings(path: Path, seen: list[tuple[int, Mapping[str, Any]]]) -> Iterator[Shown]:
    records = [record for _, record in seen]

    def numbers(below: Path) -> Any:
        found = []
        for record in records:
            value: Any = record
            for name in below:
                value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
            if not isinstance(value, int | float) or isinstance(value, bool):
                return None
            found.append(float(value))
        return numpy.array(found, "f8")

    yield from spatial(path, numpy.array([time_ns for time_ns, _ in seen], "i8"), records[0].keys(), numbers)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_duration(kind)
        or pa.types.is_decimal(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_numpy_number(value: Any) -> bool:
    return isinstance(value, numpy.generic) and value.dtype.kind in "biuf"


def _floats(column: pa.Array) -> Any:
    if pa.types.is_duration(column.type):  # in seconds
        return column.cast(pa.duration("ns"), safe=False).cast(pa.int64()).to_numpy(zero_copy_only=False) / 1e9
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    return column.to_numpy(zero_copy_only=False).astype("f8")


def _array(column: Any) -> Any:
    return column.to_numpy(zero_copy_only=False)


def _readable(payload: pa.Buffer) -> str:
    """The bytes as text, if that is what they are."""
    if not 0 < payload.size <= 4096:
        return ""
    try:
        text = payload.to_pybytes().decode()
    except UnicodeDecodeError:
        return ""
    return text if all(sign.isprintable() or sign in "\r\n\t" for sign in text) else ""
