"""`ringmain query`: SQL on a recording, with DuckDB."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from ringmain._cli.exit_codes import CommandError, missing_part

if TYPE_CHECKING:
    import pyarrow as pa

EXAMPLES = [
    (
        "a topic is a table, a field of its messages a column",
        'ringmain query drive "select count(*), max(time) from imu"',
    ),
    (
        "double quotes around a name with / . or -",
        "ringmain query drive 'select seq, size from \"camera/front\" order by size desc limit 3'",
    ),
    ("which tables, with which columns?", 'ringmain query drive "show tables" --format json'),
    ("for a spreadsheet", 'ringmain query drive "select * from imu" --format csv > imu.csv'),
]
FORMATS = ("table", "json", "csv")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="the recording's directory or URI")
    parser.add_argument("sql", help="the query; topics are tables")
    parser.add_argument("--format", choices=FORMATS, default="table", help="of the output (default: table)")


def run(args: argparse.Namespace) -> None:
    try:
        from ringmain._cli.sql import BadQuery, query, recording_tables
    except ImportError as error:
        raise missing_part("query", error) from None
    try:
        # Another source of tables, such as a lake, is another function here that returns the same mapping.
        result = query(args.sql, recording_tables(args.path))
    except BadQuery as error:
        raise CommandError(str(error)) from None
    _print(result, args.format)


def _print(result: pa.Table, form: str) -> None:
    from ringmain._cli.sql import csv_text, json_text, table_text

    writers: dict[str, Any] = {"table": table_text, "json": json_text, "csv": csv_text}
    sys.stdout.write(writers[form](result))
