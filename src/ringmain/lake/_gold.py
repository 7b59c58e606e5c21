"""Tables of gold as tables of columns: what each column is called, its type, how it is measured of messages, how rows
of one key come to one, and how the report and the rules show it.

A task measures the messages that it reads: one row for each window and key. Such a row is a row of the table already;
rows of the same key are merged: those of all tasks with one another, and with those that the table has. All of it is
done column by column, for all rows at once. The tables themselves are in _health.py and _fields.py.

The invariant owned here: *how messages were cut into tasks and batches does not show*. Counts and sums are whole
numbers, sketches are histograms whose buckets add up (_sketch.py), and what lies between two messages that were cut
apart is made up from the edges, which a row keeps (_edges.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.lake._column_types import fitted

TIME = pa.timestamp("us", "UTC")
MINUTE_US = 60_000_000
if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
Values: TypeAlias = "np.ndarray | pa.Array"
State: TypeAlias = "Mapping[str, Values]"  # a row's columns, for all rows


class Groups:
    """Rows in an order in which those of one group stand together: messages to measure, or rows to merge."""

    def __init__(self, columns: State, starts: np.ndarray, rows: int) -> None:
        self._columns, self.starts, self.rows = columns, starts, rows
        self._made: dict[Callable[[Groups], Any], Any] = {}

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    @cached_property
    def ends(self) -> np.ndarray:
        """The row after the last of each group."""
        return np.asarray(np.append(self.starts[1:], self.rows))

    @cached_property
    def sizes(self) -> np.ndarray:
        """How many rows each group has."""
        return np.asarray(self.ends - self.starts)

    @cached_property
    def of_row(self) -> np.ndarray:
        """Which group each row is in."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def sum(self, values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(values, self.starts)

    def count(self, mask: np.ndarray) -> np.ndarray:
        """How many are true."""
        return np.add.reduceat(mask, self.starts, dtype=np.int64)

    def least(self, values: np.ndarray) -> np.ndarray:
        return np.minimum.reduceat(values, self.starts)

    def most(self, values: np.ndarray) -> np.ndarray:
        return np.maximum.reduceat(values, self.starts)

    def once(self, make: Callable[[Groups], T]) -> T:
        """What several columns need, made once."""
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made


Of: TypeAlias = Callable[[Groups], Values]


def sums(name: str) -> Of:
    """Merged by adding up."""
    return lambda rows: rows.sum(as_numbers(rows[name]))


def least(name: str) -> Of:
    """Merged to the least; null where all are null."""
    return lambda rows: _bound(rows[name], math.inf, rows.least)


def most(name: str) -> Of:
    """Merged to the greatest; null where all are null."""
    return lambda rows: _bound(rows[name], -math.inf, rows.most)


def _bound(column: pa.Array, none: float, reduce: Callable[[np.ndarray], np.ndarray]) -> Values:
    if not column.null_count:
        return reduce(as_numbers(column))
    found = reduce(as_floats(column, none))
    return pa.array(found, mask=found == none)


class Column(NamedTuple):
    """One column. A key has none of the three functions; a column that is made of others has `derive` alone."""

    name: str
    type: pa.DataType
    measure: Of | None = None
    """Its value for each group of messages."""
    merge: Of | None = None
    """Its value for each group of rows of the table."""
    derive: Callable[[Any, float], Values] | None = None
    """Its value, of the other columns and the length of a window in seconds."""
    total: str = "sum"
    """How many windows, and lives, come to one number: `sum`, `max`, `min`, or `mean` by messages. The recorders of one
    life see the same messages: the greatest of their numbers counts (with `min` the least)."""
    head: str = ""
    """Its heading in the report's table of topics; without one it is not there."""
    mark: str = ""
    """How the report marks a number above 0: `bad` or `warn`."""
    limit: str = ""
    """The limit of a rule, a field of `Rule`, that its number may not be above."""
    text: str = ""
    """What is said of a topic then: `{value}` is filled in."""


@dataclass(frozen=True)
class GoldTable:
    """One table: the columns of its key, `window_start` first, and all others."""

    name: str
    columns: tuple[Column, ...]

    @property
    def keys(self) -> list[str]:
        return [c.name for c in self.columns if c.measure is None and c.merge is None and c.derive is None]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(c.name, c.type) for c in self.columns])

    def measured(self, keys: State, messages: Groups) -> pa.Table:
        """A row for each group of messages. What is made of other columns is null."""
        return self._table({**keys, **{c.name: c.measure(messages) for c in self.columns if c.measure is not None}})

    def merged(self, parts: Iterable[pa.Table], window_s: float | None = None) -> pa.Table:
        """One row for each key, in their order; with a window's length also what is made of other columns."""
        rows = pa.concat_tables([self.schema.empty_table(), *parts]).combine_chunks()
        if not len(rows):
            return rows
        order, starts = grouped([key_of(one_array(rows.column(name))) for name in self.keys])
        rows = rows.take(pa.array(order))
        groups = Groups({name: one_array(rows.column(name)) for name in rows.schema.names}, starts, len(rows))
        found: dict[str, Values] = {name: groups[name].take(pa.array(starts)) for name in self.keys}
        together = len(groups) < len(rows)
        for c in self.columns:
            if c.merge is not None:
                found[c.name] = c.merge(groups) if together else groups[c.name]
        if window_s is not None:
            made = {
                name: one_array(column)
                for name, column in zip(rows.schema.names, self._table(found).columns, strict=True)
            }
            found |= {c.name: c.derive(made, window_s) for c in self.columns if c.derive is not None}
        return self._table(found)

    def of(self, rows: pa.Table) -> pa.Table:
        """Rows as the table has them now, also those that were written with fewer columns."""
        return fitted(rows, self.schema)

    def _table(self, columns: State) -> pa.Table:
        rows = len(next(iter(columns.values())))
        return pa.Table.from_arrays(
            [_array(columns.get(f.name), f.type, rows) for f in self.schema], schema=self.schema
        )


class Key(NamedTuple):
    """A column by which rows are grouped: small numbers that sort like its values, and how many values there are."""

    codes: np.ndarray
    values: int


def key_of(values: Values) -> Key:
    if len(values) and _is_constant(values):
        return Key(np.zeros(len(values), np.int64), 1)
    encoded = (values if isinstance(values, pa.Array) else pa.array(values)).dictionary_encode()
    ranks = pc.rank(encoded.dictionary, sort_keys="ascending").to_numpy().astype(np.int64) - 1
    return Key(ranks[encoded.indices.to_numpy()], len(ranks))


def _is_constant(values: Values) -> bool:
    """Most columns by which messages are grouped have one value. To see that takes a fifth of what numbering takes."""
    if isinstance(values, np.ndarray):
        return bool(values[0] == values[-1] and (values == values[0]).all())
    if values.null_count or not values[0].equals(values[len(values) - 1]):
        return False
    if isinstance(values, pa.DictionaryArray):
        return len(values.dictionary) == 1
    return bool(pc.all(pc.equal(values, values[0])).as_py())


def grouped(keys: Sequence[Key]) -> tuple[np.ndarray, np.ndarray]:
    """(an order by these keys, in which rows of one key stay in theirs; where each key begins in it)."""
    together, room = np.zeros(len(keys[0].codes), np.int64), 1
    for key in keys:
        if key.values <= 1:
            continue
        if room > 2**62 // key.values:  # one number has no room for so many keys: number those that there are
            _, together = np.unique(together, return_inverse=True)
            room = int(together.max()) + 1
        together = key.codes if room == 1 else together * key.values + key.codes
        room *= key.values
    steps = np.diff(together)
    if (steps >= 0).all():
        return np.arange(len(together)), np.flatnonzero(np.append(True, steps > 0))
    order = np.argsort(together, kind="stable")
    return order, np.flatnonzero(np.append(True, np.diff(together[order]) > 0))


def as_numbers(values: Values) -> np.ndarray:
    """As numpy has them; times are microseconds."""
    if isinstance(values, np.ndarray):
        return values
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return np.asarray(values.to_numpy(zero_copy_only=False))


def as_floats(values: pa.Array, null: float = math.nan) -> np.ndarray:
    found = values.cast(pa.float64(), safe=False)
    if found.null_count:
        found = pc.fill_null(found, null)
    return np.asarray(found.to_numpy(zero_copy_only=False))


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column of a table as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def list_array(values: pa.Array, sizes: np.ndarray) -> pa.Array:
    """Lists of so many values each."""
    return pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(sizes)), pa.int32()), values)


def flat(lists: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """(all values of all lists, how many each has)."""
    return lists.flatten(), np.asarray(pc.fill_null(pc.list_value_length(lists), 0))


def _array(values: Values | None, type_: pa.DataType, rows: int) -> pa.Array:
    if values is None:
        return pa.nulls(rows, type_)
    array = pa.array(values) if isinstance(values, np.ndarray) else values
    return array if array.type.equals(type_) else array.cast(type_)


def encode(rows: pa.Table) -> bytes:
    """Rows as a task sends them to the driver."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def decode(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def totals(table: GoldTable, rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """One row for each value of `by`, of the numbers that the frame has: of each life the most that any recorder saw,
    and all lives and windows together as each column says. What tells lives apart is their topic and epoch."""
    numbers = pa.types.is_integer, pa.types.is_floating
    wanted = [c for c in table.columns if c.name in rows.columns and c.name not in table.keys]
    wanted = [c for c in wanted if any(is_number(c.type) for is_number in numbers)]
    lives = rows.groupby([*by, *(k for k in ("window_start", "topic", "epoch") if k not in by)], sort=False)
    seen = lives.agg(**{c.name: (c.name, "min" if c.total == "min" else "max") for c in wanted})
    means = [c.name for c in wanted if c.total == "mean"]
    for name in means:
        seen[name] *= seen["messages"]
    found = seen.groupby(by).agg({c.name: "sum" if c.total == "mean" else c.total for c in wanted})
    for name in means:
        found[name] /= found["messages"].clip(lower=1)
    return found
