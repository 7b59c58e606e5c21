"""When something that may happen a million times is reported."""

from __future__ import annotations


def worth_reporting(count: int) -> bool:
    """The first time, the tenth, the hundredth and so on: at once, and without a flood."""
    return str(count).strip("0") == "1"
