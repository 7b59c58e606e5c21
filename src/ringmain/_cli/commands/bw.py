"""`ringmain bw`: the bandwidth of topics, from their counters. Does not join the topic."""

from __future__ import annotations

import argparse

from ringmain._cli.arguments import add_sampling, add_topic
from ringmain._cli.observe import Flow
from ringmain._cli.rates import follow
from ringmain._cli.text_format import Right, bytes_text

EXAMPLES = [
    ("one line each second", "ringmain bw camera"),
    ("all topics, for scripts", "ringmain bw --count 1 --json"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    add_topic(parser, many=True)
    add_sampling(parser)


def run(args: argparse.Namespace) -> int:
    return follow(args, ("BANDWIDTH", "A MESSAGE"), cells, facts)


def cells(flow: Flow) -> list[object]:
    mean = bytes_text(flow.payload_bytes / flow.messages) if flow.messages else "-"
    return [Right(f"{bytes_text(flow.bytes_per_s)}/s"), Right(mean)]


def facts(flow: Flow) -> dict[str, object]:
    mean = flow.payload_bytes / flow.messages if flow.messages else None
    return {"bytes_per_s": flow.bytes_per_s, "mean_bytes": mean}
