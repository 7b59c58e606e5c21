"""Can a reader's type decode everything that a writer's type may send?

Invariant: two types are compatible if and only if msgspec, in strict mode, decodes every value of the writer's type as
the reader's. So what is compared is the encoding, not names: a dict can read a Struct, an `array_like` Struct
can read a list if the lengths allow, a float can read an int, and a field may be added if it has a default.

It is assumed that the writer sends values of its type (msgspec does not check values when it encodes) within its own
constraints. Where a writer does not, the reader notices with each such message. For the same reason a type is always
compatible with itself, though a bare `dict` could be sent with keys that cannot be decoded again (a frozen Struct).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ringmain.errors import SchemaMismatch
from ringmain.typed import _model
from ringmain.typed._model import Array, Choice, Map, Record, Ref, Scalar, Tuple, Type, Union, show
from ringmain.typed._schema import Schema
from ringmain.typed._struct_layout import layout_differences, layout_of

# What each scalar of a reader accepts, besides its own. A naive datetime is encoded as a string: see _scalar().
_ACCEPTS: dict[str, frozenset[str]] = {
    "float": frozenset({"float", "int"}),
    "decimal": frozenset({"decimal", "float", "int"}),
    "str": frozenset({"str", "date", "time", "timedelta", "uuid", "decimal"}),
}
_LOWER, _UPPER = ("gt", "ge"), ("lt", "le")


def compatible(writer: Schema, reader: Schema, *, topic: str | None = None) -> None:
    """Return if `reader` can read what `writer` sends; otherwise raise `SchemaMismatch` with the differences."""
    found = differences(writer, reader)
    if found:
        raise SchemaMismatch(
            f"{writer.type_name} ({writer.codec})", f"{reader.type_name} ({reader.codec})", found, topic=topic
        )


def differences(writer: Schema, reader: Schema) -> list[str]:
    """Why `reader` cannot read what `writer` sends, one line per field; empty if it can."""
    if reader.codec == "bytes" or writer == reader or writer.without_abouts() == reader.without_abouts():
        return []
    if (writer.codec, writer.version) != (reader.codec, reader.version):
        return [
            f"codec: written with {writer.codec} version {writer.version}, "
            f"read with {reader.codec} version {reader.version}"
        ]
    if writer.codec == "msgpack":
        return list(dict.fromkeys(_Comparison(writer, reader).differences(writer.root, reader.root, "")))
    if writer.codec == "struct":
        return list(layout_differences(layout_of(writer), layout_of(reader)))
    if writer.codec in ("ndarray", "arrow"):
        wanted = [(name, value) for name, value in reader.params.items() if writer.params.get(name) != value]
        return [f"{name}: written as {writer.params.get(name, 'any')}, read as {value}" for name, value in wanted]
    # A user's codec: it is only known whether it is the same.
    if (writer.type_name, writer.params, writer.root) != (reader.type_name, reader.params, reader.root):
        return [f"type: written as {writer.type_name}, read as {reader.type_name}, and this codec compares names"]
    return []


@dataclass(frozen=True)
class _Sequence:
    """An encoded array: `head` has the positions with a type of their own, `rest` is the type of all others."""

    head: tuple[tuple[str, Type], ...]
    rest: Type | None
    least: int
    most: int | None


class _Comparison:
    def __init__(self, writer: Schema, reader: Schema) -> None:
        self._writer = writer.records
        self._reader = reader.records
        self._assumed: set[tuple[str, str, bool]] = set()  # pairs of records being compared: types may be recursive

    def differences(self, w: Type, r: Type, path: str, *, tag_needed: bool = False) -> Iterator[str]:
        if r == _model.ANY:
            return
        if isinstance(w, Union):
            for branch in w.of:
                yield from self.differences(branch, r, path)
        elif isinstance(w, Choice) and len(w.values) > 1:
            for value in w.values:
                yield from self.differences(Choice((value,), w.name), r, path)
        elif isinstance(r, Union):
            yield from self._into_union(w, r, path)
        elif isinstance(w, Choice):
            yield from self._value(w, r, path)
        elif w == _model.NULL and isinstance(r, Choice):
            yield from self._value(Choice((None,), "None"), r, path)
        elif isinstance(w, Scalar) and isinstance(r, Scalar):
            yield from self._scalar(w, r, path)
        elif (left := self._sequence(w, self._writer, writing=True)) and (
            right := self._sequence(r, self._reader, writing=False)
        ):
            yield from self._guarded(w, r, tag_needed, self._sequences(left, right, r, path))
        elif self._is_map(w, self._writer) and self._is_map(r, self._reader):
            yield from self._guarded(w, r, tag_needed, self._maps(w, r, path, tag_needed))
        else:
            yield _differs(w, r, path)

    def _guarded(self, w: Type, r: Type, tag_needed: bool, steps: Iterator[str]) -> Iterator[str]:
        if isinstance(w, Ref) and isinstance(r, Ref):
            pair = (w.record, r.record, tag_needed)
            if pair in self._assumed:
                return
            self._assumed.add(pair)
        yield from steps

    def _into_union(self, w: Type, r: Union, path: str) -> Iterator[str]:
        """msgspec chooses the branch by the encoded value; there is at most one branch of each kind."""
        branches = list(r.of)
        numeric = w.name if isinstance(w, Scalar) else "int" if _is_int_value(w) else ""
        if numeric in ("int", "float"):
            # An int goes to the int-like branch if there is one, even if only the float branch would accept it.
            for name in ("int", "float", "decimal"):
                exact = [b for b in branches if _takes(b, name)]
                if exact and not (name == "int" and numeric == "float"):
                    branches = exact
                    break
        tag_needed = sum(isinstance(b, Ref) for b in branches) > 1
        attempts = [self._attempt(w, b, path, tag_needed) for b in branches]
        if not all(attempts):
            return
        if (
            isinstance(w, Ref)
            and len(records := [a for b, a in zip(branches, attempts, strict=True) if isinstance(b, Ref)]) == 1
        ):
            yield from records[0]
        else:
            yield _differs(w, r, path)

    def _attempt(self, w: Type, r: Type, path: str, tag_needed: bool) -> list[str]:
        assumed = set(self._assumed)
        found = list(self.differences(w, r, path, tag_needed=tag_needed))
        if found:
            self._assumed = assumed  # what a failed branch assumed was not proved
        return found

    def _value(self, w: Choice, r: Type, path: str) -> Iterator[str]:
        value = w.values[0]
        if isinstance(r, Choice):
            if not any(value == v and type(value) is type(v) for v in r.values):
                yield f"{_at(path)}: {value!r} may be written, which is not one of {show(r)}"
            return
        scalar = Scalar("null" if value is None else "int" if isinstance(value, int) else "str")
        if not isinstance(r, Scalar):
            yield _differs(w, r, path)
        elif not _satisfies(value, r.limits):
            yield f"{_at(path)}: {value!r} may be written, read as {show(r)}"
        else:
            yield from self._scalar(scalar, Scalar(r.name), path)

    def _scalar(self, w: Scalar, r: Scalar, path: str) -> Iterator[str]:
        takes = _ACCEPTS.get(r.name, frozenset({r.name}))
        naive = w.name == "datetime" and w.limits.get("tz") is False
        taken = w.name in takes or (naive and r.name == "str")
        if not taken or not _implied(w.limits, r.limits):
            yield _differs(w, r, path)

    def _sequence(self, word: Type, records: dict[str, Record], *, writing: bool) -> _Sequence | None:
        match word:
            case Array(of=of, limits=limits):
                return _Sequence((), of, *_lengths(limits))
            case Tuple(of=of):
                return _Sequence(tuple((f"[{i}]", t) for i, t in enumerate(of)), None, len(of), len(of))
            case Ref(record=name) if records[name].positional:
                record = records[name]
                head = tuple((f".{field.name}", field.type) for field in record.fields)
                least = max((i + 1 for i, field in enumerate(record.fields) if field.required), default=0)
                if record.tag is not None:
                    head = ((f".{record.tag_field}", Choice((record.tag,), "tag")), *head)
                    least += 1
                if writing:
                    return _Sequence(head, None, len(head), len(head))
                return _Sequence(
                    head, None if record.closed else _model.ANY, least, len(head) if record.closed else None
                )
        return None

    def _sequences(self, w: _Sequence, r: _Sequence, reader: Type, path: str) -> Iterator[str]:
        if w.least < r.least or (r.most is not None and (w.most is None or w.most > r.most)):
            yield (
                f"{_at(path)}: {_count(w.least, w.most)} written, {_count(r.least, r.most)} read"
                " (new fields need a default, and go at the end)"
            )
        for i in range(max(len(w.head), len(r.head))):
            # Beyond the end of `head`, `rest` is the type; where there is none, the lengths were compared above.
            if w.most is not None and i >= w.most:
                break
            name = r.head[i][0] if i < len(r.head) else w.head[i][0] if i < len(w.head) else "[]"
            left = w.head[i][1] if i < len(w.head) else w.rest
            right = r.head[i][1] if i < len(r.head) else r.rest
            if left is not None and right is not None:
                yield from self.differences(left, right, path + name)
        if w.rest is not None and r.rest is not None and (w.most is None or w.most > len(r.head)):
            yield from self.differences(w.rest, r.rest, f"{path}[]")
        if isinstance(reader, Array) and reader.unique:
            for item in {show(t): t for t in (*(t for _, t in w.head), w.rest) if t is not None}.values():
                yield from self._hashable(item, reader.of, f"{path}[]")

    def _is_map(self, word: Type, records: dict[str, Record]) -> bool:
        return isinstance(word, Map) or (isinstance(word, Ref) and not records[word.record].positional)

    def _maps(self, w: Type, r: Type, path: str, tag_needed: bool) -> Iterator[str]:
        if isinstance(r, Ref):
            reader = self._reader[r.record]
            if isinstance(w, Ref):
                yield from self._records(self._writer[w.record], reader, path, tag_needed)
            elif isinstance(w, Map):
                yield from self._map_into_record(w, reader, path, tag_needed)
        elif isinstance(r, Map) and isinstance(w, Ref):
            written = _written(self._writer[w.record])
            least = sum(always for _, _, always in written.values())
            wanted = _lengths(r.limits)
            if not _lengths_fit((least, len(written)), wanted):
                yield f"{_at(path)}: {_count(least, len(written))} written, {_count(*wanted)} read"
            for key, (name, word, _) in written.items():
                yield from self.differences(Choice((key,), "key"), r.key, f"{path}.{name} (its key)")
                yield from self.differences(word, r.value, f"{path}.{name}")
        elif isinstance(r, Map) and isinstance(w, Map):
            given, wanted = _lengths(w.limits), _lengths(r.limits)
            if not _lengths_fit(given, wanted):
                yield f"{_at(path)}: {_count(*given)} written, {_count(*wanted)} read"
            yield from self.differences(w.key, r.key, f"{path}{{key}}")
            yield from self._hashable(w.key, r.key, f"{path}{{key}}")
            yield from self.differences(w.value, r.value, f"{path}{{}}")

    def _records(self, writer: Record, reader: Record, path: str, tag_needed: bool) -> Iterator[str]:
        written = _written(writer)
        known = {field.key for field in reader.fields} | ({reader.tag_field} - {None})
        if reader.tag is not None and reader.tag_field is not None:
            if reader.tag_field in written:
                name, word, always = written[reader.tag_field]
                yield from self.differences(word, Choice((reader.tag,), "tag"), f"{path}.{name}")
                if tag_needed and not always:
                    yield f"{_at(f'{path}.{name}')}: the tag that tells the types apart may be left out"
            elif tag_needed:
                yield f"{_at(f'{path}.{reader.tag_field}')}: the tag that tells types apart is not written"
        for field in reader.fields:
            here = f"{path}.{field.name}"
            if field.key in written:
                _, word, always = written[field.key]
                yield from self.differences(word, field.type, here)
                if field.required and not always:
                    yield f"{_at(here)}: may be left out, and the reader requires it (give it a default)"
            elif field.required:
                yield f"{_at(here)}: not written, and the reader requires it (give it a default)"
        if reader.closed:
            for key, (name, _, _) in written.items():
                if key not in known:
                    yield f"{_at(f'{path}.{name}')}: written, and the reader forbids fields it does not know"

    def _map_into_record(self, w: Map, reader: Record, path: str, tag_needed: bool) -> Iterator[str]:
        """A dict may have any keys or none, so only a record without required fields can read it."""
        yield from self.differences(w.key, _model.STR, f"{path}{{key}}")
        names = _finite_keys(w.key)
        for field in reader.fields:
            if field.required:
                yield f"{_at(f'{path}.{field.name}')}: a dict need not have it, the reader requires it"
            if names is None or field.key in names:
                yield from self.differences(w.value, field.type, f"{path}.{field.name}")
        if reader.tag is not None:
            if tag_needed:
                yield f"{_at(f'{path}.{reader.tag_field}')}: a dict need not have the tag of its type"
            if names is None or reader.tag_field in names:
                yield from self.differences(w.value, Choice((reader.tag,), "tag"), f"{path}.{reader.tag_field}")
        known = {field.key for field in reader.fields} | {reader.tag_field}
        if reader.closed and (names is None or not names <= known):
            yield f"{_at(path)}: a dict may have any keys, the reader forbids those it does not know"

    def _hashable(self, w: Type, r: Type, path: str) -> Iterator[str]:
        """A value read as `any` into a set or a key must not be a map, which Python cannot hash."""
        if r == _model.ANY and self._may_hold_map(w):
            yield f"{_at(path)}: {show(w)} may be a dict, which can be neither in a set nor a key"

    def _may_hold_map(self, word: Type) -> bool:
        match word:
            case Map() | Scalar(name="any"):
                return True
            case Array(of=of):
                return self._may_hold_map(of)
            case Tuple(of=items) | Union(of=items):
                return any(map(self._may_hold_map, items))
            case Ref(record=name):
                record = self._writer[name]
                return not record.positional or any(self._may_hold_map(f.type) for f in record.fields)
        return False


def _written(record: Record) -> dict[str, tuple[str, Type, bool]]:
    """Encoded key → name, type, and whether it is always written."""
    written: dict[str, tuple[str, Type, bool]] = {}
    if record.tag is not None and record.tag_field is not None:
        written[record.tag_field] = (record.tag_field, Choice((record.tag,), "tag"), True)
    written |= {field.key: (field.name, field.type, not field.omittable) for field in record.fields}
    return written


def _finite_keys(key: Type) -> set[str | None] | None:
    return {v for v in key.values if isinstance(v, str)} if isinstance(key, Choice) else None


def _is_int_value(word: Type) -> bool:
    return isinstance(word, Choice) and isinstance(word.values[0], int)


def _takes(branch: Type, name: str) -> bool:
    if isinstance(branch, Scalar):
        return branch.name == name
    return name == "int" and isinstance(branch, Choice) and any(isinstance(v, int) for v in branch.values)


def _satisfies(value: str | int | None, limits: dict[str, _model.Limit]) -> bool:
    """Is one known value within the limits? A pattern is not tried: it would run a regex from another process."""
    if not limits or value is None:
        return True
    if isinstance(value, str):
        least, most = _lengths(limits)
        return "pattern" not in limits and least <= len(value) and (most is None or len(value) <= most)
    point: dict[str, _model.Limit] = {"ge": value, "le": value}
    multiple = limits.get("multiple_of")
    divides = not isinstance(multiple, int | float) or value % multiple == 0
    return divides and _implied(point, {k: v for k, v in limits.items() if k != "multiple_of"})


def _implied(w: dict[str, _model.Limit], r: dict[str, _model.Limit]) -> bool:
    """Is every value within the writer's limits also within the reader's?"""
    return all(_one_implied(w, name, limit) for name, limit in r.items())


def _one_implied(w: dict[str, _model.Limit], name: str, limit: _model.Limit) -> bool:
    if w.get(name) == limit:
        return True
    if isinstance(limit, str | bool):
        return False
    if name in _LOWER:
        return any(isinstance(v := w.get(n), int | float) and (v > limit or (v == limit and n == "gt")) for n in _LOWER)
    if name in _UPPER:
        return any(isinstance(v := w.get(n), int | float) and (v < limit or (v == limit and n == "lt")) for n in _UPPER)
    other = w.get(name)
    if not isinstance(other, int | float):
        return name == "min_length" and limit == 0
    return {
        "min_length": other >= limit,
        "max_length": other <= limit,
        "multiple_of": isinstance(other, int) and isinstance(limit, int) and other % limit == 0,
    }.get(name, False)


def _lengths(limits: dict[str, _model.Limit]) -> tuple[int, int | None]:
    least, most = limits.get("min_length", 0), limits.get("max_length")
    return int(least), None if most is None else int(most)


def _lengths_fit(w: tuple[int, int | None], r: tuple[int, int | None]) -> bool:
    return w[0] >= r[0] and (r[1] is None or (w[1] is not None and w[1] <= r[1]))


def _count(least: int, most: int | None) -> str:
    if least == most:
        return f"{least} items"
    return f"{least} to {most} items" if most is not None else f"{least} or more items"


def _at(path: str) -> str:
    return f"field {path.lstrip('.')!r}" if path else "message"


def _differs(w: Type, r: Type, path: str) -> str:
    return f"{_at(path)}: written as {show(w)}, read as {show(r)}"
