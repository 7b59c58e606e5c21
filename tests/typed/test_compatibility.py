"""`compatible` says yes exactly when msgspec decodes.

Pairs of types are generated, often one an edit of the other. For the writer's type, `witnesses` is a finite
set of values that shows every wire form its parts can take, one at a time. If `compatible` says yes, each of
them decodes as the reader's type; if it says no, at least one does not. A yes that is wrong and a no that is
wrong both fail the test.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import os
import pickle
import uuid
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict, Union

import msgspec
import msgspec.inspect
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Meta, Struct, UnsetType, defstruct

from ringmain.errors import RingmainError, SchemaMismatch
from ringmain.typed import codec_for, compatible, differences

UTC = datetime.UTC
Naive = Annotated[datetime.datetime, Meta(tz=False)]
Aware = Annotated[datetime.datetime, Meta(tz=True)]
Percent = Annotated[int, Meta(ge=0, le=100)]
Natural = Annotated[int, Meta(ge=0)]
Short = Annotated[str, Meta(max_length=3)]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


# Every scalar with values that show each of its wire forms and the edges of its constraints.
SCALARS: dict[Any, list[Any]] = {
    bool: [True],
    int: [0, -1, 101, 2**63 - 1],
    float: [0.5, -2.0],
    str: ["", "some text", "red"],
    bytes: [b"", b"abc"],
    None: [None],
    datetime.datetime: [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, tzinfo=UTC)],
    Naive: [datetime.datetime(2024, 1, 1)],
    Aware: [datetime.datetime(2024, 1, 1, tzinfo=UTC)],
    datetime.date: [datetime.date(2024, 1, 1)],
    datetime.time: [datetime.time(1, 2, 3)],
    datetime.timedelta: [datetime.timedelta(seconds=1)],
    uuid.UUID: [uuid.UUID(int=1)],
    decimal.Decimal: [decimal.Decimal("1.5"), decimal.Decimal("1234.5")],
    Colour: list(Colour),
    Level: list(Level),
    Literal["red"]: ["red"],
    Literal["red", "green"]: ["red", "green"],
    Literal[1, "red", None]: [1, "red", None],
    Literal[1, 2, 3]: [1, 2, 3],
    Percent: [0, 100],
    Natural: [0, 2**63 - 1],
    Short: ["", "abc"],
    Any: [None, True, 1, 0.5, "x", b"x", [], {}, {"a": 1}, datetime.datetime(2024, 1, 1, tzinfo=UTC)],
}


try:
    msgspec.inspect.type_info(Literal[1, "red", None])
except TypeError:  # before 0.22, msgspec cannot inspect a Literal of mixed types, so such a type has no codec
    del SCALARS[Literal[1, "red", None]]


class Shape(Struct):
    """A generated type and the values that witness it."""

    type: Any
    witnesses: list[Any]
    hashable: bool = True


def make_scalar(type_: Any) -> Shape:
    return Shape(type_, SCALARS[type_], type_ is not Any)


def make_list(item: Shape) -> Shape:
    return Shape(list[item.type], [[], *([w] * n for w in item.witnesses for n in (1, 4))], False)


def make_set(item: Shape) -> Shape:
    """A set of few possible values is never long, which `compatible` does not count: those become lists."""
    values = list(dict.fromkeys(item.witnesses)) if item.hashable else []
    if len(values) < 4:
        return make_list(item)
    # As tuples, which look the same on the wire: a set's own order would hide what may come at each place.
    orders = [tuple(values[i:] + values[:i]) for i in range(len(values))]
    return Shape(frozenset[item.type], [(), *((value,) for value in values), *orders], False)


def one_at_a_time(shapes: list[Shape]) -> list[list[Any]]:
    """Rows of values: all at their first witness, then each in turn at each of its others."""
    base = [shape.witnesses[0] for shape in shapes]
    rows = [base]
    for i, shape in enumerate(shapes):
        rows += [[*base[:i], witness, *base[i + 1 :]] for witness in shape.witnesses[1:]]
    return rows


def make_tuple(items: list[Shape]) -> Shape:
    type_ = tuple[tuple(item.type for item in items)] if items else tuple[()]
    return Shape(type_, [tuple(row) for row in one_at_a_time(items)], all(i.hashable for i in items))


def make_dict(key: Any, value: Shape) -> Shape:
    keys = [k for k in SCALARS[key] if k is not None]
    filled = [{k: value.witnesses[0]} for k in [*keys, *(NAMES if key is str else [])]]
    filled += [{name: w} for name in (NAMES if key is str else keys[:1]) for w in value.witnesses]
    return Shape(dict[key, value.type], [{}, *filled], False)


def make_optional(item: Shape) -> Shape:
    return Shape(Union[item.type, None], [*item.witnesses, None], item.hashable)  # noqa: UP007


def make_number_union(pair: Any) -> Shape:
    return Shape(Union[pair], [w for t in pair for w in SCALARS[t]])  # noqa: UP007


NAMES = ("a", "b", "c", "type")
DEFAULTED, OMITTABLE, REQUIRED = "defaulted", "omittable", "required"


def make_struct(fields: list[tuple[str, Shape, str]], options: dict[str, Any]) -> Shape:
    """A Struct. `omittable` fields may be UNSET, which leaves them off the wire (not if array_like)."""
    array_like = options.get("array_like", False)
    if options.get("tag") is not None:
        fields = [field for field in fields if field[0] != "type"]
    spec, shapes = [], []
    for name, shape, presence in fields:
        if presence == REQUIRED:
            spec.append((name, shape.type))
        elif presence == OMITTABLE and not array_like:
            spec.append((name, Union[shape.type, UnsetType], UNSET))  # noqa: UP007
            shape = Shape(shape.type, [*shape.witnesses, UNSET], shape.hashable)
        else:
            default = shape.witnesses[0]
            mutable = isinstance(default, list | dict) or (isinstance(default, Struct) and not shape.hashable)
            spec.append((name, shape.type, msgspec.field(default_factory=lambda d=default: d) if mutable else default))
        shapes.append(shape)
    made = defstruct("Made", spec, kw_only=True, frozen=True, **options)
    # A default left out is not on the wire and would witness nothing; a twin that omits nothing sends it.
    # (`compatible` counts it as sent: whether msgspec omits a value depends on more than its type.)
    twin = defstruct("Made", spec, kw_only=True, frozen=True, **{**options, "omit_defaults": False})
    names = [field[0] for field in fields]
    rows = [dict(zip(names, row, strict=True)) for row in one_at_a_time(shapes)]
    values = [class_(**row) for class_ in (made, twin) for row in rows]
    return Shape(made, values, all(shape.hashable for shape in shapes))


def make_named_tuple(items: list[Shape], defaults: int) -> Shape:
    names = [f"f{i}" for i in range(len(items))]
    made = NamedTuple("Made", [(name, item.type) for name, item in zip(names, items, strict=True)])  # type: ignore[misc]
    first = max(0, len(items) - defaults)
    made.__new__.__defaults__ = tuple(item.witnesses[0] for item in items[first:])
    made._field_defaults = dict(zip(names[first:], made.__new__.__defaults__, strict=True))
    return Shape(made, [made(*row) for row in one_at_a_time(items)], all(i.hashable for i in items))


def make_dataclass(fields: list[tuple[str, Shape, str]]) -> Shape:
    spec = []
    for name, shape, presence in fields:
        default = shape.witnesses[0]
        default_field = dataclasses.field(default_factory=lambda d=default: d)
        spec.append((name, shape.type) if presence == REQUIRED else (name, shape.type, default_field))
    made = dataclasses.make_dataclass("Made", spec, kw_only=True)
    names = [field[0] for field in fields]
    rows = one_at_a_time([field[1] for field in fields])
    return Shape(made, [made(**dict(zip(names, row, strict=True))) for row in rows], False)


def make_typed_dict(fields: list[tuple[str, Shape, str]]) -> Shape:
    hints = {n: s.type if presence == REQUIRED else NotRequired[s.type] for n, s, presence in fields}
    made = TypedDict("Made", hints)  # type: ignore[operator]
    names = [field[0] for field in fields]
    rows = [dict(zip(names, row, strict=True)) for row in one_at_a_time([field[1] for field in fields])]
    required = {name for name, _, presence in fields if presence == REQUIRED}
    fewer = [{k: v for k, v in rows[0].items() if k in required}] if rows else []
    return Shape(made, rows + fewer, False)


def make_tagged_union(bodies: list[list[tuple[str, Shape, str]]], tags: list[Any], array_like: bool) -> Shape:
    members = [
        make_struct(body, {"tag": tag, "array_like": array_like}) for body, tag in zip(bodies, tags, strict=False)
    ]
    type_ = Union[tuple(member.type for member in members)]  # noqa: UP007
    return Shape(type_, [w for member in members for w in member.witnesses], all(m.hashable for m in members))


scalars = st.sampled_from(list(SCALARS)).map(make_scalar)
number_unions = st.sampled_from(
    [(int, float), (Level, float), (int, str), (float, Colour), (Level, decimal.Decimal)]
).map(make_number_union)
options = st.fixed_dictionaries(
    {},
    optional={
        "array_like": st.booleans(),
        "forbid_unknown_fields": st.booleans(),
        "omit_defaults": st.booleans(),
        "tag": st.sampled_from(["red", "x", None]),
    },
)


def takes_null(type_: Any) -> bool:
    return bool({None, type(None)} & {*getattr(type_, "__args__", ())})


def containers(inner: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    plain = inner.filter(lambda s: s.type not in (None, Any) and not takes_null(s.type))
    return st.one_of(
        inner.map(make_list),
        inner.map(make_set),
        st.lists(inner, max_size=3).map(make_tuple),
        st.builds(make_dict, st.sampled_from([str, int, Colour, Literal["red", "green"]]), inner),
        plain.map(make_optional),
        structs(inner),
        st.builds(make_named_tuple, st.lists(inner, min_size=1, max_size=3), st.integers(0, 3)),
        field_lists(inner).map(make_dataclass),
        field_lists(inner).map(make_typed_dict),
        st.builds(
            make_tagged_union,
            st.lists(field_lists(inner), min_size=2, max_size=2),
            st.permutations(["red", "x", "y"]),
            st.booleans(),
        ),
    )


def structs(inner: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    return st.builds(make_struct, field_lists(inner), options)


def field_lists(inner: st.SearchStrategy[Shape]) -> st.SearchStrategy[list[tuple[str, Shape, str]]]:
    field = st.tuples(st.sampled_from(NAMES), inner, st.sampled_from([REQUIRED, DEFAULTED, OMITTABLE]))
    return st.lists(field, max_size=4, unique_by=lambda f: f[0])


shapes = st.recursive(scalars | number_unions, containers, max_leaves=5)


@st.composite
def edited_structs(draw: st.DrawFn) -> tuple[Shape, Shape]:
    """A Struct and the same with fields added, dropped, retyped or made optional: how schemas change."""
    inner = scalars | scalars.map(make_list)
    fields = draw(field_lists(inner))
    edited = list(fields)
    for _ in range(draw(st.integers(0, 2))):
        names = {f[0] for f in edited}
        match draw(st.sampled_from(["add", "drop", "retype", "presence", "swap"])):
            case "add" if set(NAMES) - names:
                name = draw(st.sampled_from(sorted(set(NAMES) - names)))
                edited.append((name, draw(inner), draw(st.sampled_from([REQUIRED, DEFAULTED]))))
            case "drop" if edited:
                edited.pop(draw(st.integers(0, len(edited) - 1)))
            case "retype" if edited:
                i = draw(st.integers(0, len(edited) - 1))
                edited[i] = (edited[i][0], draw(inner), edited[i][2])
            case "presence" if edited:
                i = draw(st.integers(0, len(edited) - 1))
                edited[i] = (*edited[i][:2], draw(st.sampled_from([REQUIRED, DEFAULTED, OMITTABLE])))
            case "swap" if len(edited) > 1:
                edited[0], edited[1] = edited[1], edited[0]
    common = draw(options)
    return make_struct(fields, common), make_struct(
        edited, {**common, **draw(options)} if draw(st.booleans()) else common
    )


def decodes(value: Any, type_: Any) -> bool:
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type_)
    except (msgspec.ValidationError, TypeError):
        return False
    return True


def check_agreement(writer: Shape, reader: Shape) -> None:
    found = differences(schema_of(writer.type), schema_of(reader.type))
    refused = [w for w in writer.witnesses if not decodes(w, reader.type)]
    assert bool(found) == bool(refused), (writer.type, reader.type, found, refused)


def schema_of(type_: Any) -> Any:
    """The schema of a field of this type: str and bytes alone would have codecs of their own."""
    return codec_for(defstruct("Message", [("value", type_)])).schema


relaxed = settings(
    max_examples=int(os.environ.get("RINGMAIN_EXAMPLES", "150")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@relaxed
@given(edited_structs())
def test_an_edited_struct_fits_exactly_when_it_decodes(pair: tuple[Shape, Shape]) -> None:
    check_agreement(*pair)


@relaxed
@given(shapes, shapes)
def test_any_two_types_fit_exactly_when_they_decode(writer: Shape, reader: Shape) -> None:
    check_agreement(writer, reader)


@pytest.mark.parametrize("writer", SCALARS, ids=str)
def test_every_scalar_against_every_other(writer: Any) -> None:
    for reader in SCALARS:
        check_agreement(make_scalar(writer), make_scalar(reader))


@relaxed
@given(shapes)
def test_a_type_fits_itself(shape: Shape) -> None:
    assert differences(schema_of(shape.type), schema_of(shape.type)) == []


class Inner(Struct):
    n: int


class Other(Struct):
    n: str


class Sent(Struct, tag="x"):
    inner: Inner


class ReadX(Struct, tag="x"):
    inner: Inner


class ReadY(Struct, tag="y"):
    inner: Other


class Outer(Struct):
    first: Sent
    second: Inner


class ReadOuter(Struct):
    first: ReadX | ReadY
    second: Other


class Sparing(Struct, omit_defaults=True):
    a: int = 5


class Demanding(Struct):
    a: int


class LoneTagged(Struct, tag="lone"):
    a: int


# Corners that chance seldom finds: writer's type, witnesses, reader's type, whether it fits.
CORNERS = {
    "an int goes to the int-like branch, though float would take it": (int, [5], Level | float, False),
    "an int goes to float if nothing int-like is there": (int, [5], float | str, True),
    "a dict cannot be in a set": (list[dict[str, int]], [[{"a": 1}]], set[Any], False),
    "a list in a set is read as a tuple": (list[list[int]], [[[1]]], set[Any], True),
    "a default that is left out does not reach who requires it": (Sparing, [Sparing()], Demanding, False),
    "what a refused branch took for granted is not granted": (
        Outer, [Outer(Sent(Inner(1)), Inner(1))], ReadOuter, False,
    ),
    "a lone tagged Struct does without its tag": (Demanding, [Demanding(1)], LoneTagged | None, True),
    "a dict fits a Struct that requires nothing": (dict[str, int], [{}, {"a": 1}, {"b": 2}], Sparing, True),
    "a tuple fits a list": (tuple[int, int], [(1, 2)], list[float], True),
}  # fmt: skip


@pytest.mark.parametrize("corner", CORNERS)
def test_corners(corner: str) -> None:
    writer, witnesses, reader, fits = CORNERS[corner]
    check_agreement(Shape(writer, witnesses), Shape(reader, []))
    assert (differences(schema_of(writer), schema_of(reader)) == []) == fits


class Point(Struct):
    x: float
    y: float = 0.0


class Moved(Struct):
    x: int
    z: str


class Chain(Struct):
    value: int
    next: Chain | None = None


class LooserChain(Struct):
    value: float
    next: LooserChain | None = None
    note: str = ""


def test_the_error_names_the_topic_the_types_and_each_field() -> None:
    with pytest.raises(SchemaMismatch) as caught:
        compatible(codec_for(Point).schema, codec_for(Moved).schema, topic="imu")
    assert str(caught.value) == (
        "topic 'imu' is written as Point (msgpack), which does not read as Moved (msgpack):\n"
        "  - field 'x': written as float, read as int\n"
        "  - field 'z': not written, and the reader requires it (give it a default)"
    )
    assert isinstance(caught.value, RingmainError)
    assert isinstance(caught.value, TypeError)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.differences) == (str(caught.value), caught.value.differences)


def test_recursive_types_are_compared_without_end() -> None:
    narrow, loose = codec_for(Chain).schema, codec_for(LooserChain).schema
    assert differences(narrow, loose) == []
    assert differences(loose, narrow) == ["field 'value': written as float, read as int"]


def test_bytes_read_everything_and_other_codecs_do_not_mix() -> None:
    assert differences(codec_for(Point).schema, codec_for(bytes).schema) == []
    assert "codec: written with msgpack" in differences(codec_for(Point).schema, codec_for(str).schema)[0]
    assert "codec: written with bytes" in differences(codec_for(bytes).schema, codec_for(Point).schema)[0]


@pytest.mark.parametrize("type_", [dict, list, set, frozenset, dict[str, Any], str, bytes])
def test_a_plain_type_fits_itself(type_: Any) -> None:
    """Also where it says less than msgspec would need to know: a bare dict's keys may be anything."""
    compatible(codec_for(type_).schema, codec_for(type_).schema)
