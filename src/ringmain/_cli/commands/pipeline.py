"""`ringmain pipeline`: turns recordings into a lake of tables, with Spark, and keeps it in order."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from ringmain._cli.arguments import add_incident, add_storage_option, natural, positive_seconds, size
from ringmain._cli.exit_codes import CommandError, Exit, UsageError, needs
from ringmain._cli.topic_summary import dump_json

if TYPE_CHECKING:
    from ringmain.lake import Lake

EXAMPLES = [
    ("all recordings below a directory, once", "ringmain pipeline run recordings --lake lake"),
    ("while it is being recorded, every 5 seconds", "ringmain pipeline run drive --lake lake --follow --interval 5"),
    (
        "each frame with the newest imu, at most 0.1 s old",
        "ringmain pipeline run drive --lake lake --align camera:imu@0.1",
    ),
    ("of flight recordings, what they kept", "ringmain pipeline run flights --lake lake --incident '*'"),
    ("on a robot, without Spark", "ringmain pipeline run drive --lake lake --engine local"),
    ("join small files, delete those of old versions", "ringmain pipeline maintain lake"),
    ("delete all that is known of a robot", "ringmain pipeline forget robot-07 --lake lake"),
    ("and rows of more than 30 days ago", "ringmain pipeline maintain lake --retain 'silver/*=30'"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=["run", "maintain", "forget"],
        help="run: recordings to a lake; maintain: compact it; forget: delete hosts from it",
    )  # fmt: skip
    parser.add_argument(
        "recordings", nargs="+", metavar="RECORDING", help="recordings, patterns; maintain: the lake; forget: the hosts"
    )
    parser.add_argument("--lake", metavar="URI", help="where the tables go: a directory, s3://, gs://, az://")
    parser.add_argument("--follow", action="store_true", help="continue while it is being recorded, until Ctrl-C")
    parser.add_argument(
        "--interval", type=positive_seconds, default=10.0, metavar="S", help="with --follow: s per batch (10)"
    )
    parser.add_argument(
        "--window", type=_window, default=10.0, metavar="S", help="of topic_health, in seconds; it divides 60 (10)"
    )
    parser.add_argument("--align", action="append", default=[], metavar="LEAD:TOPIC,...@S", help="as-of join")
    parser.add_argument(
        "--bronze", choices=("recordings", "copy"), default="recordings", help="copy: a table of all messages, too"
    )
    parser.add_argument(
        "--engine", choices=("spark", "local"), default="spark", help="what runs the tasks; local: this process, no JVM"
    )
    parser.add_argument("--master", metavar="URL", help="of a Spark cluster; by default all cores of this machine")
    parser.add_argument("--json", action="store_true", help="print the totals as a JSON object")
    parser.add_argument("--skip-damage", action="store_true", help="skip rows that cannot be read, as gaps")
    parser.add_argument(
        "--batch-bytes", type=size, default="1GiB", metavar="SIZE", help="the most that a batch reads (1GiB)"
    )
    parser.add_argument("--keep-hours", type=natural, default=168, metavar="H", help="maintain: of old versions (168)")
    parser.add_argument(
        "--retain", action="append", default=[], type=_retain, metavar="TABLE=DAYS",
        help="maintain: delete rows that are older; a table's name or a pattern, like silver/*",
    )  # fmt: skip
    add_incident(parser)
    add_storage_option(parser)


def _window(text: str) -> float:
    window_s = positive_seconds(text)
    if (60 / window_s) % 1:
        raise argparse.ArgumentTypeError(f"seconds that divide 60 are wanted, such as 1, 10 or 30, not {text!r}")
    return window_s


def _retain(text: str) -> tuple[str, float]:
    table, found, days = text.partition("=")
    try:
        if found and table and (kept := float(days)) > 0:
            return table, kept
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"TABLE=DAYS is wanted, as in silver/imu=30, not {text!r}")


def run(args: argparse.Namespace) -> int:
    with needs("lake" if args.engine == "local" or args.action != "run" else "spark"):
        from ringmain.lake import Lake
        from ringmain.pipeline import Align, Pipeline
    options = dict(args.storage_option)
    if args.action == "maintain":
        for uri in args.recordings:
            for line in Lake(uri, options).maintain(args.keep_hours, dict(args.retain)):
                print(line)
        return Exit.OK
    if args.lake is None:
        raise UsageError("where are the tables? Say --lake DIR")
    if args.action == "forget":
        return _forget(Lake(args.lake, options), args.recordings)
    if args.engine == "local" and (args.master or args.align):
        raise UsageError("--engine local runs without Spark, so it takes no --master, and --align needs Spark")
    aligns = [Align.parse(text) for text in args.align]
    summary = Pipeline(window_s=args.window, aligns=aligns, bronze=args.bronze, storage_options=options).run(
        args.recordings,
        args.lake,
        engine=args.engine,
        master=args.master,
        follow=args.follow,
        interval_s=args.interval,
        max_bytes_per_batch=str(args.batch_bytes),
        fail_on_data_loss=not args.skip_damage,
        incident=args.incident,
    )
    print(dump_json(asdict(summary)) if args.json else summary)
    return Exit.OK


def _forget(lake: Lake, hosts: list[str]) -> int:
    from ringmain.lake._ledger import LEDGER

    for host in hosts:
        deleted = lake.delete_host(host)
        if not any(deleted.values()):
            raise CommandError(f"{lake.uri} has nothing of a host {host}", Exit.NOT_FOUND)
        for name, count in deleted.items():
            print(f"{name}: {count} {'recordings' if name == LEDGER else 'rows'} of {host} deleted")
        for name in sorted(set(lake.tables()) - deleted.keys()):
            print(f"{name}: has no column of hosts, and stays")
    print(
        "Older versions of the tables still have these rows: ringmain pipeline maintain LAKE --keep-hours 0 deletes "
        "them. Recordings that are still there are read again by the next run"
    )
    return Exit.OK
