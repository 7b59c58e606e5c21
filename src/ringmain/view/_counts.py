"""What a view has shown of each topic, and what it left out. A view that says nothing of it would be a lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    messages: int = 0
    lost: int = 0
    """Overwritten before this view read them."""
    points: int = 0
    points_left_out: int = 0
    """Of series, between the least and the greatest of their moment."""
    pictures: int = 0
    pictures_left_out: int = 0
    """Newer ones came before the viewer took them."""

    def sentence(self) -> str:
        """Empty if nothing was left out."""
        parts = [
            f"{self.points_left_out:,} of {self.points + self.points_left_out:,} points" * bool(self.points_left_out),
            f"{self.pictures_left_out:,} of {self.pictures + self.pictures_left_out:,} pictures"
            * bool(self.pictures_left_out),
            f"{self.lost:,} of {self.messages + self.lost:,} messages (read too late)" * bool(self.lost),
        ]
        return ", ".join(filter(None, parts))


def sentence(counts: Mapping[str, Counts]) -> str:
    """Of all topics, for the end of a command; empty if nothing was left out."""
    return "; ".join(f"{topic}: {said}" for topic, each in sorted(counts.items()) if (said := each.sentence()))


def page(counts: Mapping[str, Counts]) -> str:
    """A table in Markdown, for the viewer itself."""
    rows = [
        f"| {topic} | {each.messages:,} | {each.sentence() or 'nothing'} |" for topic, each in sorted(counts.items())
    ]
    return "\n".join(["| topic | messages | left out |", "|---|---|---|", *rows])
