"""`ringmain hz`: the rate of topics, from their counters. Does not join the topic."""

from __future__ import annotations

import argparse

from ringmain._cli.arguments import add_sampling, add_topic
from ringmain._cli.observe import Flow
from ringmain._cli.rates import follow
from ringmain._cli.text_format import Right, count_text, rate_text

EXAMPLES = [
    ("one line each second", "ringmain hz imu"),
    ("several, or all", "ringmain hz imu gps"),
    ("one measurement over five seconds, for scripts", "ringmain hz imu --interval 5 --count 1 --json"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    add_topic(parser, many=True)
    add_sampling(parser)


def run(args: argparse.Namespace) -> int:
    return follow(args, ("HZ", "MESSAGES"), cells, facts)


def cells(flow: Flow) -> list[object]:
    return [Right(rate_text(flow.rate_hz)), Right(count_text(flow.messages))]


def facts(flow: Flow) -> dict[str, object]:
    return {"rate_hz": flow.rate_hz, "messages": flow.messages}
