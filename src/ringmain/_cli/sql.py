"""SQL on tables that are read when a query names them, and the result as text. Needs DuckDB and pyarrow.

A source is a mapping from a table's name to a function that gives its columns and an iterator of its batches.
`recording_tables` makes one of a recording. A lake brings a connection of its own, in which its tables are views.
"""

from __future__ import annotations

import base64
import csv
import functools
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import duckdb
import msgspec
import pyarrow as pa

from ringmain._cli.text_format import Right, table
from ringmain.recording import Recording

Tables = Mapping[str, Callable[[], tuple[pa.Schema, Iterator[pa.RecordBatch]]]]


class BadQuery(Exception):
    """DuckDB refuses the query. The text is its own, in one line."""


def recording_tables(location: str, storage_options: Mapping[str, str], incident: str | None = None) -> Tables:
    """Each topic as a table with the fields of its messages as columns, beside those of ours."""
    recording = Recording(location, storage_options=storage_options, incident=incident)
    return {topic: functools.partial(recording.decoded_batches, topic) for topic in recording.topics()}


def run_query(sql: str, source: Tables | duckdb.DuckDBPyConnection) -> pa.Table:
    """The result of a query on a recording's tables, or on a connection that has its tables already.

    A table whose name is in the text is read whole, since the query may scan it more than once; the others are only
    known with their columns. A query on a recording cannot read or write files."""
    tables = {} if isinstance(source, duckdb.DuckDBPyConnection) else source
    connection = (
        source
        if isinstance(source, duckdb.DuckDBPyConnection)
        else duckdb.connect(":memory:", config={"enable_external_access": False})
    )
    try:
        for name, read in tables.items():
            batches = pa.RecordBatchReader.from_batches(*read())
            connection.register(name, batches.read_all() if name.lower() in sql.lower() else batches)
        found = connection.sql(sql)
        return pa.table({}) if found is None else found.to_arrow_table()
    except duckdb.Error as error:
        raise BadQuery(f"{_one_line(error)}{_hint(error, tables) if tables else ''}") from error
    finally:
        connection.close()


def columns_text(columns: Mapping[str, list[str]]) -> str:
    """Each table with its columns, a line each."""
    return "".join(f"{name}: {', '.join(names)}\n" for name, names in columns.items())


def _hint(error: duckdb.Error, tables: Tables) -> str:
    if not isinstance(error, duckdb.CatalogException | duckdb.ParserException):
        return ""
    shown = ", ".join(f'"{name}"' for name in tables)
    return f' (the tables are {shown or "none"}; quote a name that has a "/", "." or "-")'


def _one_line(error: duckdb.Error) -> str:
    return str(error).split("\n\nLINE ")[0].replace("\n", " ")


def table_text(result: pa.Table) -> str:
    """A table for a terminal: numbers to the right, NULL as nothing."""
    rows = [[_cell(value) for value in row] for row in _rows(result)]
    count = f"{len(rows)} row{'s' * (len(rows) != 1)}"
    return f"{table(result.column_names, rows)}\n{count}\n" if result.num_columns else "done\n"


def json_text(result: pa.Table) -> str:
    """A JSON array of objects. Bytes are base64, as everywhere in JSON from ringmain."""
    rows = [dict(zip(result.column_names, row, strict=True)) for row in _rows(result)]
    return msgspec.json.format(msgspec.json.encode(rows, enc_hook=str), indent=2).decode() + "\n"


def csv_text(result: pa.Table) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(result.column_names)
    writer.writerows([_plain(value) for value in row] for row in _rows(result))
    return out.getvalue()


def _rows(result: pa.Table) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in result.columns]
    return list(zip(*columns, strict=True))


def _cell(value: Any) -> object:
    text = _plain(value)
    return Right(str(text)) if isinstance(value, int | float) and not isinstance(value, bool) else str(text)


def _plain(value: Any) -> Any:
    """A value as a cell of text."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | dict | tuple):
        return msgspec.json.encode(value, enc_hook=str).decode()
    return value
