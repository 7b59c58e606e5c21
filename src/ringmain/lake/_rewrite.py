"""Files of a table, written again: small ones joined, or one without some of its rows.

The invariants owned here: *a file that is written again looks like the first*. It goes through the same writer, with
the types, encodings and bounds of all others: Delta's own writer leaves `string_view` in files, which readers refuse.
And *a robot and a time are found without reading the others*: joined files are each a stretch of time, and within them
the rows are in the order of hosts and times, a row group being of one host where it has enough rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.lake._column_types import fitted
from ringmain.lake._files import FileSet, Written, is_apart
from ringmain.lake._log import TableFile
from ringmain.lake._tables import Tables, latest, micros
from ringmain.recording._format import decoded_name

TIME, HOST = decoded_name("publish_time"), decoded_name("host")
HOST_COLUMNS = (HOST, "host")
_SORTED_BYTES = 256 << 20  # in memory: so many rows are put in order at a time
_LEAST_ROWS, _MOST_ROWS = 1 << 12, 1 << 15  # of a row group: more than one host where it would have fewer


def compact(tables: Tables, name: str, small_bytes: int, target_bytes: int) -> int:
    """Join the files that are smaller than `small_bytes`, up to about `target_bytes`. Returns how many were joined."""
    table = tables.existing(name)
    schema = table.schema
    in_order = TIME in schema.names and HOST in schema.names
    small = [one for one in table.files() if one.size < small_bytes]
    removed: list[TableFile] = []
    made = FileSet(tables, None)
    for pack in _packs(small, target_bytes):
        waiting = list[pa.Table]()
        apart = is_apart(pack[0].name)
        for rows in tables.read_files(name, [one.name for one in pack]):
            waiting.append(fitted(rows, schema))
            if not in_order or sum(one.nbytes for one in waiting) >= _SORTED_BYTES:
                _put(made, name, waiting, in_order, apart)
        _put(made, name, waiting, in_order, apart)
        made.cut()
        removed += pack
    if removed:
        tables.exchange(name, "small files joined", made.close(), removed, data_change=False)
    return len(removed)


def _packs(files: list[TableFile], target_bytes: int) -> Iterator[list[TableFile]]:
    """Files to join, those of neighbouring times; those apart remain so. Files of tables without times come in the
    order of their names, which begin with their batches."""

    def order(one: TableFile) -> tuple[bool, int, str]:
        first = one.least.get(TIME)
        return is_apart(one.name), 0 if first is None else micros(first), one.name

    pack, size = list[TableFile](), 0
    for one in sorted(files, key=order):
        if pack and (size + one.size > target_bytes or is_apart(pack[0].name) != is_apart(one.name)):
            yield from [pack] if len(pack) > 1 else []
            pack, size = [], 0
        pack.append(one)
        size += one.size
    yield from [pack] if len(pack) > 1 else []


def _put(made: FileSet, name: str, waiting: list[pa.Table], in_order: bool, apart: bool) -> None:
    """Write the rows that are waiting, of a decoded table by host and time."""
    if not waiting:
        return
    rows = pa.concat_tables(waiting).combine_chunks()
    waiting.clear()
    if not in_order:
        for part in rows.to_batches():
            made.put(name, part, apart=apart)
        return
    rows = rows.take(pc.sort_indices(rows, [(HOST, "ascending"), (TIME, "ascending")])).combine_chunks()
    for first, end in _groups(rows.column(HOST)):
        for part in rows.slice(first, end - first).to_batches():
            made.put(name, part, apart=apart)
        made.end_group()


def _groups(hosts: pa.ChunkedArray) -> Iterator[tuple[int, int]]:
    """[first, end) of the row groups, of rows in the order of their hosts."""
    codes = hosts.combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    first = 0
    for begin, end in pairwise(edges):
        if begin - first >= _LEAST_ROWS or end - begin >= _LEAST_ROWS:
            yield from [(first, begin)] if first < begin else []
            first = begin
        while end - first > _MOST_ROWS:
            yield first, first + _MOST_ROWS
            first += _MOST_ROWS
    if first < len(codes):
        yield first, len(codes)


def delete_before(tables: Tables, name: str, column: str, before_us: int) -> int:
    """Delete the rows whose time in `column` is before that. Returns how many."""

    def all_or_none(one: TableFile) -> bool | None:
        least = one.least.get(column)
        if least is None:
            return None
        return False if micros(least) >= before_us else latest(one, column) < before_us or None

    def old(rows: pa.Table) -> pa.ChunkedArray:
        return pc.less(rows.column(column).cast(pa.int64()), before_us)

    return _delete(tables, name, "old rows deleted", all_or_none, old)


def delete_host(tables: Tables, name: str, column: str, host: str) -> int:
    """Delete the rows of a host, which `column` has. Returns how many."""

    def all_or_none(one: TableFile) -> bool | None:
        least, most = one.least.get(column), one.most.get(column)
        if least is None or most is None:
            return None
        return least == most or None if least <= host <= most else False

    return _delete(tables, name, "a host deleted", all_or_none, lambda rows: pc.equal(rows.column(column), host))


def _delete(
    tables: Tables,
    name: str,
    why: str,
    all_or_none: Callable[[TableFile], bool | None],
    which: Callable[[pa.Table], pa.ChunkedArray],
) -> int:
    """`all_or_none`: what a file's bounds say of its rows; None: some, perhaps, and then the rows are asked."""
    table = tables.existing(name)
    deleted, removed, kept = 0, list[TableFile](), list[Written]()
    for one in table.files():
        known = all_or_none(one)
        if known is False:
            continue
        if known:
            removed.append(one)
            deleted += one.rows
            continue
        (rows,) = tables.read_files(name, [one.name])
        rest = rows.filter(pc.invert(pc.fill_null(which(rows), False)))
        if len(rest) < len(rows):
            removed.append(one)
            deleted += len(rows) - len(rest)
            kept += [tables.write(name, None, rest, apart=is_apart(one.name))] if len(rest) else []
    if removed:
        tables.exchange(name, why, kept, removed, data_change=True)
    return deleted
