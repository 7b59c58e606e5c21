"""`ringmain query`: SQL on a recording or a lake, with DuckDB."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from ringmain._cli.arguments import add_incident, add_storage_option
from ringmain._cli.exit_codes import CommandError, Exit, needs
from ringmain.errors import RecordingNotFound

if TYPE_CHECKING:
    import pyarrow as pa

EXAMPLES = [
    (
        "a topic is a table, a field of its messages a column; other columns begin with rm_",
        'ringmain query drive "select count(*), max(rm_publish_time) from imu"',
    ),
    (
        "double quotes around a name with / . or -",
        "ringmain query drive 'select rm_seq, rm_size from \"camera/front\" order by 2 desc'",
    ),
    ("which tables, with which columns?", "ringmain query drive"),
    ("for a spreadsheet", 'ringmain query drive "select * from imu" --format csv > imu.csv'),
    ("loss by topic, of a lake", 'ringmain query lake "select topic, sum(lost) from gold.topic_health group by 1"'),
]
FORMATS = ("table", "json", "csv")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="a recording, or the lake of `ringmain pipeline run`: a directory or URI")
    parser.add_argument(
        "sql",
        nargs="?",
        help="the query; tables are the topics of a recording, silver.TOPIC, gold.topic_health, ... of a lake",
    )
    parser.add_argument("--format", choices=FORMATS, default="table", help="of the output (default: table)")
    add_incident(parser)
    add_storage_option(parser)


def run(args: argparse.Namespace) -> None:
    with needs("query"):
        from ringmain._cli.sql import BadQuery, columns_text, recording_tables, run_query
    try:
        tables = recording_tables(args.path, dict(args.storage_option), args.incident)
    except RecordingNotFound as error:
        connection, columns = _open_lake(args, error)
    else:
        connection, columns = None, {name: read()[0].names for name, read in tables.items()}
    if args.sql is None:
        sys.stdout.write(columns_text(columns))
        return
    try:
        result = run_query(args.sql, tables if connection is None else connection)
    except BadQuery as error:
        raise CommandError(str(error)) from None
    _print(result, args.format)


def _open_lake(args: argparse.Namespace, no_recording: RecordingNotFound) -> tuple[Any, dict[str, list[str]]]:
    """The lake's tables in DuckDB, and the columns of each."""
    try:
        from ringmain.lake import Lake
    except ImportError:
        raise no_recording from None
    lake = Lake(args.path, dict(args.storage_option))
    names = lake.tables()
    if args.incident is not None and names:
        raise CommandError("--incident is for a recording: in SQL on a lake, join gold.incidents by host and time")
    if args.incident is not None:
        raise no_recording
    if not names:
        raise CommandError(
            f"neither a recording nor a lake at {args.path}: make one with ringmain record or ringmain pipeline run",
            Exit.NOT_FOUND,
        )
    return lake.to_duckdb(), {name: lake.table(name).schema().to_arrow().names for name in names}


def _print(result: pa.Table, form: str) -> None:
    from ringmain._cli.sql import csv_text, json_text, table_text

    writers: dict[str, Any] = {"table": table_text, "json": json_text, "csv": csv_text}
    sys.stdout.write(writers[form](result))
