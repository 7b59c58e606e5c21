"""`ringmain pipeline run`: turns recordings into tables, with Spark."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ringmain._cli.exit_codes import Exit, missing_part
from ringmain._cli.topic_summary import dump_json

EXAMPLES = [
    ("all recordings below a directory, once", "ringmain pipeline run recordings --lake lake"),
    ("while it is being recorded, every 5 seconds", "ringmain pipeline run drive --lake lake --follow --interval 5"),
    (
        "each frame with the newest imu, at most 0.1 s old",
        "ringmain pipeline run drive --lake lake --align camera:imu@0.1",
    ),
]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["run"], help="run: recordings to a lake of Parquet tables")
    parser.add_argument("recordings", nargs="+", metavar="RECORDING", help="recordings, directories, patterns")
    parser.add_argument("--lake", required=True, metavar="DIR", help="where the tables go; created if missing")
    parser.add_argument("--follow", action="store_true", help="continue while it is being recorded, until Ctrl-C")
    parser.add_argument("--interval", type=float, default=10.0, metavar="S", help="with --follow: s per batch (10)")
    parser.add_argument("--window", type=float, default=10.0, metavar="S", help="of topic_health, in seconds (10)")
    parser.add_argument("--align", action="append", default=[], metavar="LEAD:TOPIC,...@S", help="as-of join")
    parser.add_argument("--format", choices=("parquet", "delta"), default="parquet", help="of the tables (parquet)")
    parser.add_argument("--master", metavar="URL", help="of a Spark cluster; by default all cores of this machine")
    parser.add_argument("--json", action="store_true", help="print the totals as a JSON object")
    parser.add_argument("--skip-damage", action="store_true", help="skip rows that cannot be read, as gaps")
    parser.add_argument("--batch-bytes", default="1GiB", metavar="SIZE", help="the most that a batch reads (1GiB)")


def run(args: argparse.Namespace) -> int:
    try:
        from ringmain.pipeline import Align, Pipeline
    except ImportError as error:
        raise missing_part("spark", error) from None
    aligns = [Align.parse(text) for text in args.align]
    summary = Pipeline(window_s=args.window, aligns=aligns, format=args.format).run(
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
