"""`ringmain top`: live view of all topics. Watches from outside and takes no place in any of them."""

from __future__ import annotations

import argparse
import sys

from ringmain._cli.arguments import positive_seconds
from ringmain._cli.exit_codes import CommandError, Exit, missing_part

EXAMPLES = [
    ("all topics, once a second (q quits, s sorts, / filters, Enter opens a topic)", "ringmain top"),
    ("twice a second, the busiest first", "ringmain top --interval 0.5 --sort rate"),
    ("those under camera/", "ringmain top --filter camera/"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    sorts = ("name", "rate", "bandwidth", "full", "lost", "behind")
    parser.add_argument(
        "--interval", type=positive_seconds, default=1.0, metavar="S", help="between looks (default: 1)"
    )
    parser.add_argument("--sort", choices=sorts, default="name", help="what to sort by (default: name)")
    parser.add_argument("--filter", default="", metavar="TEXT", help="only topics whose name has this in it")


def run(args: argparse.Namespace) -> int:
    if not sys.stdout.isatty():
        raise CommandError("this needs a terminal; ringmain list --json and ringmain hz are for scripts")
    try:
        from ringmain._cli.live.app import LiveView
    except ImportError as error:
        raise missing_part("top", error) from None
    from ringmain._cli.live.source import Topics

    app = LiveView(Topics(), args.interval)
    app.model.sort = args.sort
    app.model.filter = args.filter
    app.run()
    return app.return_code or Exit.OK
