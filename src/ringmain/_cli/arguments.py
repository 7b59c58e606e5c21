"""Arguments that several commands share, and the types that check what a user typed."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from ringmain._cli.exit_codes import UsageError
from ringmain._names import parse_bytes

_Number = TypeVar("_Number", int, float)
SPANS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def add_topic(parser: argparse.ArgumentParser, *, many: bool = False) -> None:
    """TOPIC, or any number of them."""
    if many:
        parser.add_argument("topic", nargs="*", help="the topics (default: all)")
    else:
        parser.add_argument("topic", help="the topic's name")


def add_timeout(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--timeout", type=seconds, metavar="S", help=help)


def add_interval(parser: argparse.ArgumentParser, default: float, help: str) -> None:
    parser.add_argument(
        "--interval", type=positive_seconds, default=default, metavar="S", help=f"{help} (default: {default:g})"
    )


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """How often and for how long a command measures."""
    add_interval(parser, 1.0, "seconds for each line")
    parser.add_argument("--count", type=positive, metavar="N", help="stop after N lines (default: at Ctrl-C)")
    parser.add_argument("--json", action="store_true", help="one JSON object for each line")


def add_storage_option(parser: argparse.ArgumentParser) -> None:
    """Pairs of name and value."""
    parser.add_argument(
        "--storage-option", action="append", default=[], type=_storage_option, metavar="K=V",
        help="of an object store, like AWS_REGION=...",
    )  # fmt: skip


def add_moments(parser: argparse.ArgumentParser) -> None:
    """From when to when of a recording; `moment` reads them."""
    parser.add_argument(
        "--from", dest="since", metavar="WHEN", help="seconds after the first message, or a date and time (ISO 8601)"
    )
    parser.add_argument("--to", dest="until", metavar="WHEN", help="the same; messages from then on are left out")


class _Timed(Protocol):
    @property
    def time_range_ns(self) -> tuple[int, int] | None: ...


def moment(option: str, text: str | None, recording: _Timed) -> int | datetime | None:
    """A publish time: seconds after the first message of a recording or a lake, or a date."""
    if text is None:
        return None
    try:
        after_s = float(text)
    except ValueError:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(
                f"{option} is seconds after the first message, or a date and time (ISO 8601), not {text!r}"
            ) from None
        return at.astimezone() if at.tzinfo is None else at
    if not math.isfinite(after_s) or abs(after_s) > timedelta.max.total_seconds():
        raise UsageError(f"{option}: {text} seconds is out of range")
    times = recording.time_range_ns
    return times[0] + round(after_s * 1e9) if times is not None else 0


def add_incident(parser: argparse.ArgumentParser) -> None:
    """For commands that read a recording."""
    parser.add_argument("--incident", metavar="ID", help="what a flight recorder kept: its id, or a part of it")


def _storage_option(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError("NAME=VALUE is wanted")  # it may be a secret, so it is not shown
    return name, value


def _number(text: str, read: Callable[[str], _Number], good: Callable[[_Number], bool], wanted: str) -> _Number:
    """The number in `text` if it is `good`; otherwise an error that says what is wanted."""
    try:
        if good(number := read(text)):
            return number
    except (ValueError, KeyError):
        pass
    raise argparse.ArgumentTypeError(f"{wanted}, not {text!r}")


def positive(text: str) -> int:
    """A whole number above zero."""
    return _number(text, int, lambda n: n > 0, "a whole number above 0 is wanted")


def natural(text: str) -> int:
    """A whole number, zero or more."""
    return _number(text, int, lambda n: n >= 0, "a whole number, 0 or more, is wanted")


def seconds(text: str) -> float:
    """Seconds, zero or more."""
    return _number(text, float, lambda n: 0 <= n < 1e9, "seconds are wanted, 0 or more")


def positive_seconds(text: str) -> float:
    """Seconds, more than zero."""
    if (number := seconds(text)) > 0:
        return number
    raise argparse.ArgumentTypeError("more than 0 seconds are wanted")


def rate(text: str) -> float:
    """Times a second, more than zero."""
    return _number(text, float, lambda n: 0 < n < 1e9, "a rate in Hz above 0 is wanted")


def size(text: str) -> int:
    """Bytes, more than zero: 1000000, 64MiB, 10GB."""
    return _number(text, parse_bytes, lambda n: n > 0, "a size is wanted, like 64MiB or 10GB")


def _span_s(text: str) -> float:
    unit = text.lstrip("0123456789.")
    return float(text.removesuffix(unit)) * SPANS_S[unit or "s"]


def span(text: str) -> float:
    """A duration in seconds, more than zero: 90, 90s, 30m or 30min, 24h, 7d."""
    return _number(text, _span_s, lambda n: 0 < n < 1e10, "a time is wanted, like 90s, 30m, 24h or 7d")
