"""`ringmain query`: SQL over the tables of a lake, by DuckDB."""

from __future__ import annotations

import argparse

from ringmain._cli.commands.pipeline import add_storage_option, storage_options
from ringmain._cli.exit_codes import CommandError, Exit, missing_part
from ringmain._cli.topic_summary import dump_json

EXAMPLES = [
    ("which tables there are, and their columns", "ringmain query lake"),
    ("loss by topic", 'ringmain query lake "select topic, sum(lost) from gold.topic_health group by 1"'),
]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lake", metavar="LAKE", help="where `ringmain pipeline run` put the tables")
    parser.add_argument(
        "sql", nargs="?", help="a query; the tables are silver.TOPIC, gold.topic_health, ops.batches, ..."
    )
    parser.add_argument("--json", action="store_true", help="print each row as a JSON object")
    add_storage_option(parser)


def run(args: argparse.Namespace) -> int:
    try:
        import duckdb

        from ringmain.pipeline import Lake
    except ImportError as error:
        raise missing_part("spark", error) from None
    lake = Lake(args.lake, storage_options(args))
    lake.check()
    names = lake.tables()
    if not names:
        raise CommandError(f"no lake at {args.lake}: run the pipeline first (ringmain pipeline run)", Exit.NOT_FOUND)
    if args.sql is None:
        for name in names:
            print(f"{name}: {', '.join(lake.table(name).schema().to_arrow().names)}")
        return Exit.OK
    try:
        found = lake.to_duckdb().sql(args.sql)
    except duckdb.Error as error:
        raise CommandError(str(error)) from None
    if found is None:
        return Exit.OK
    if args.json:
        for row in found.fetchall():
            print(dump_json(dict(zip(found.columns, row, strict=True))))
    else:
        print(found)
    return Exit.OK
