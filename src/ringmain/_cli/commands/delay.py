"""`ringmain delay`: the delay of messages, from `send` to a reader that waits for them."""

from __future__ import annotations

import argparse
import json
import time
from contextlib import suppress

from ringmain._cli.arguments import add_sampling, add_timeout, add_topic
from ringmain._cli.exit_codes import CommandError, Exit
from ringmain._cli.observe import watch
from ringmain._cli.text_format import Right, duration_text, table
from ringmain._subscriber import Subscriber
from ringmain.errors import Timeout

EXAMPLES = [
    ("one line each second", "ringmain delay imu"),
    ("one measurement over ten seconds, in nanoseconds", "ringmain delay imu --interval 10 --count 1 --json"),
]
PERCENTILES = (50, 90, 99, 100)
_NOISE_NS = 10_000
"""Two processes read the same clock a little apart, and a publisher follows one that is slewed a little later: a delay
below zero by less than this is none."""


def configure(parser: argparse.ArgumentParser) -> None:
    add_topic(parser)
    add_sampling(parser)
    add_timeout(parser, "give up (exit code 4) when no message arrives for S seconds")


def run(args: argparse.Namespace) -> int:
    left = args.count or -1
    # Conflating: only the newest message counts, so our own slowness is not measured as the topic's.
    with suppress(KeyboardInterrupt), watch(args.topic, "delay", timeout=args.timeout, conflate=True) as sub:
        while left != 0:
            _print(args, collect(sub, args.interval, args.timeout))
            left -= 1
    return Exit.OK


def collect(sub: Subscriber, interval_s: float, timeout_s: float | None) -> list[int]:
    """The delays of the messages that arrive in the interval, in nanoseconds, sorted. At least one."""
    delays: list[int] = []
    end = time.monotonic() + interval_s
    while not delays or time.monotonic() < end:
        wait = max(0.0, end - time.monotonic()) if delays else timeout_s
        try:
            message = sub.recv_message(wait)
        except Timeout as error:
            if delays:
                break
            raise CommandError(str(error), Exit.TIMEOUT) from None
        delays.append(delay_ns(message.time_ns, time.time_ns()))
    return sorted(delays)


def delay_ns(sent_ns: int, received_ns: int) -> int:
    passed_ns = received_ns - sent_ns
    return 0 if -_NOISE_NS < passed_ns < 0 else passed_ns


def percentile(ordered: list[int], percent: float) -> int:
    """The smallest value that `percent` of all do not exceed."""
    return ordered[max(0, -(-len(ordered) * percent // 100).__int__() - 1)]


def _print(args: argparse.Namespace, delays: list[int]) -> None:
    found = {f"p{p}" if p < 100 else "max": percentile(delays, p) for p in PERCENTILES}
    if args.json:
        shown = {f"{name}_ns": value for name, value in found.items()}
        print(json.dumps({"topic": args.topic, "messages": len(delays), **shown}), flush=True)
    else:
        cells = [Right(duration_text(value)) for value in found.values()]
        print(table(("TOPIC", "MEASURED", *map(str.upper, found)), [[args.topic, len(delays), *cells]]), flush=True)
    if delays[0] < 0:
        raise CommandError("messages come from the future: their times are from another clock, or replayed")
