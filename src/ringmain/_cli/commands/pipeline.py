"""`ringmain pipeline`: turns recordings into a lake of tables, with Spark, and keeps it in order."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ringmain._cli.arguments import add_storage_option
from ringmain._cli.exit_codes import Exit, UsageError, missing_part
from ringmain._cli.topic_summary import dump_json

EXAMPLES = [
    ("all recordings below a directory, once", "ringmain pipeline run recordings --lake lake"),
    ("while it is being recorded, every 5 seconds", "ringmain pipeline run drive --lake lake --follow --interval 5"),
    (
        "each frame with the newest imu, at most 0.1 s old",
        "ringmain pipeline run drive --lake lake --align camera:imu@0.1",
    ),
    ("join small files, delete those of old versions", "ringmain pipeline maintain lake"),
    ("and rows of more than 30 days ago", "ringmain pipeline maintain lake --retain 'silver/*=30'"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["run", "maintain"], help="run: recordings to a lake; maintain: compact it")
    parser.add_argument("recordings", nargs="+", metavar="RECORDING", help="recordings, patterns; maintain: the lake")
    parser.add_argument("--lake", metavar="URI", help="where the tables go: a directory, s3://, gs://, az://")
    parser.add_argument("--follow", action="store_true", help="continue while it is being recorded, until Ctrl-C")
    parser.add_argument("--interval", type=float, default=10.0, metavar="S", help="with --follow: s per batch (10)")
    parser.add_argument("--window", type=float, default=10.0, metavar="S", help="of topic_health, in seconds (10)")
    parser.add_argument("--align", action="append", default=[], metavar="LEAD:TOPIC,...@S", help="as-of join")
    parser.add_argument(
        "--bronze", choices=("recordings", "copy"), default="recordings", help="copy: a table of all messages, too"
    )
    parser.add_argument("--master", metavar="URL", help="of a Spark cluster; by default all cores of this machine")
    parser.add_argument("--json", action="store_true", help="print the totals as a JSON object")
    parser.add_argument("--skip-damage", action="store_true", help="skip rows that cannot be read, as gaps")
    parser.add_argument("--batch-bytes", default="1GiB", metavar="SIZE", help="the most that a batch reads (1GiB)")
    parser.add_argument("--keep-hours", type=int, default=168, metavar="H", help="maintain: of old versions (168)")
    parser.add_argument(
        "--retain", action="append", default=[], type=_retain, metavar="TABLE=DAYS",
        help="maintain: delete rows that are older; a table's name or a pattern, like silver/*",
    )  # fmt: skip
    add_storage_option(parser)


def _retain(text: str) -> tuple[str, float]:
    table, found, days = text.partition("=")
    try:
        if found and table and (kept := float(days)) > 0:
            return table, kept
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"TABLE=DAYS is wanted, as in silver/imu=30, not {text!r}")


def run(args: argparse.Namespace) -> int:
    try:
        from ringmain.pipeline import Align, Lake, Pipeline
    except ImportError as error:
        raise missing_part("spark", error) from None
    options = dict(args.storage_option)
    if args.action == "maintain":
        for uri in args.recordings:
            for line in Lake(uri, options).maintain(args.keep_hours, dict(args.retain)):
                print(line)
        return Exit.OK
    if args.lake is None:
        raise UsageError("where do the tables go? Say --lake DIR")
    aligns = [Align.parse(text) for text in args.align]
    summary = Pipeline(window_s=args.window, aligns=aligns, bronze=args.bronze, storage_options=options).run(
        args.recordings,
        args.lake,
        master=args.master,
        follow=args.follow,
        interval_s=args.interval,
        max_bytes_per_batch=args.batch_bytes,
        fail_on_data_loss=not args.skip_damage,
    )
    print(dump_json(asdict(summary)) if args.json else summary)
    return Exit.OK
