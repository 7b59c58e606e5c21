"""`ringmain top`: live view of all topics. Does not join them."""

from __future__ import annotations

import argparse
import sys

from ringmain._cli.arguments import add_interval
from ringmain._cli.exit_codes import CommandError, Exit, needs
from ringmain._cli.live.model import SORTS

EXAMPLES = [
    ("all topics, once a second (q quits, s sorts, / filters, Enter opens a topic)", "ringmain top"),
    ("twice a second, the busiest first", "ringmain top --interval 0.5 --sort rate"),
    ("topics below camera/", "ringmain top --filter camera/"),
    ("and what a flight recorder keeps", "ringmain top --recording flight"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    add_interval(parser, 1.0, "seconds between updates")
    parser.add_argument("--sort", choices=SORTS, default="name", help="what to sort by (default: name)")
    parser.add_argument("--filter", default="", metavar="TEXT", help="only topics whose name contains this")
    parser.add_argument(
        "--recording", action="append", default=[], metavar="DIR", help="of a flight recorder: show its incidents too"
    )


def run(args: argparse.Namespace) -> int:
    if not sys.stdout.isatty():
        raise CommandError("this needs a terminal; ringmain list --json and ringmain hz are for scripts")
    with needs("top"):
        from ringmain._cli.live.app import LiveView
    from ringmain._cli.live.source import Topics

    if args.recording:
        with needs("record"):
            import ringmain.recording  # noqa: F401
    app = LiveView(Topics(args.recording), args.interval)
    app.model.sort = args.sort
    app.model.filter = args.filter
    app.run()
    return app.return_code or Exit.OK
