"""The loop that `hz` and `bw` share: read the counters, wait for the interval, print the difference."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from ringmain import _names, _native
from ringmain._cli.exit_codes import CommandError, Exit
from ringmain._cli.missing_topic import no_topic
from ringmain._cli.observe import Flow, Reading, flow, read_counters
from ringmain._cli.text_format import table


def follow(
    args: argparse.Namespace,
    heads: Sequence[str],
    cells: Callable[[Flow], list[object]],
    facts: Callable[[Flow], dict[str, object]],
) -> int:
    """Prints one line for each topic every interval, until the count is reached or Ctrl-C."""
    for name in args.topic:
        if read_counters(name) is None:
            raise no_topic(name)
    before = _read_all(args.topic)
    left = args.count or -1
    due = time.monotonic()
    with suppress(KeyboardInterrupt):
        while left != 0:
            due += args.interval
            time.sleep(max(0.0, due - time.monotonic()))
            now = _read_all(args.topic)
            if args.topic and not now:
                raise CommandError(f"topic {', '.join(args.topic)} is gone", Exit.NOT_FOUND)
            _print({name: flow(before.get(name), now[name]) for name in now}, heads, cells, facts, args.json)
            before = now
            left -= 1
    return Exit.OK


def _read_all(topics: list[str]) -> dict[str, Reading]:
    wanted = topics or _native.topics(_names.runtime_directory())
    return {name: seen for name in wanted if (seen := read_counters(name)) is not None}


def _print(
    flows: dict[str, Flow | None],
    heads: Sequence[str],
    cells: Callable[[Flow], list[object]],
    facts: Callable[[Flow], dict[str, object]],
    as_json: bool,
) -> None:
    known = {name: passed for name, passed in flows.items() if passed is not None}
    if as_json:
        for name, passed in known.items():
            print(json.dumps({"topic": name, "seconds": passed.seconds, **facts(passed)}), flush=True)
    elif known:
        rows = [[name, *cells(passed)] for name, passed in known.items()]
        print(table(("TOPIC", *heads), rows), flush=True)
    else:
        print("no topics", flush=True)
