"""`ringmain bench`: measure ringmain on this machine, in a few seconds. The project's own benchmarks are in bench/."""

from __future__ import annotations

import argparse

from ringmain._cli.arguments import positive_seconds
from ringmain._cli.benchmark import measure
from ringmain._cli.exit_codes import Exit
from ringmain._cli.text_format import Right, bytes_text, duration_text, rate_text, table
from ringmain._cli.topic_summary import dump_json

EXAMPLES = [
    ("a table", "ringmain bench"),
    ("longer, for scripts", "ringmain bench --seconds 2 --json"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", type=positive_seconds, default=0.5, metavar="S", help="for each figure (default: 0.5)"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON array")


def run(args: argparse.Namespace) -> int:
    cells = measure(args.seconds)
    if args.json:
        print(dump_json(cells))
        return Exit.OK
    rows = [
        [
            bytes_text(cell["size_bytes"]),
            Right(duration_text(cell["send_recv_ns"])),
            Right(rate_text(cell["messages_per_s"])),
            Right(f"{bytes_text(cell['messages_per_s'] * cell['size_bytes'])}/s"),
            Right(duration_text(cell["round_trip_p50_ns"])),
            Right(duration_text(cell["round_trip_p99_ns"])),
        ]
        for cell in cells
    ]
    heads = ("SIZE", "SEND+RECV", "BETWEEN PROCESSES", "BANDWIDTH", "ROUND TRIP P50", "P99")
    print(table(heads, rows))
    print("SEND+RECV: in one process. The rest: two processes, a reliable topic. Other load slows both.")
    return Exit.OK
