"""The edges of what a row was measured of: of every life in every recording, the first and the last message. Where two
rows come to one, they say how long it was between the messages that were cut apart."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ringmain.lake._gold import Groups, as_numbers, flat, grouped, key_of, list_array

_FIELDS = [
    pa.field("recording", pa.string()),
    *(pa.field(name, pa.int64()) for name in ("epoch", "first_seq", "first_us", "last_seq", "last_us")),
]
EDGES = pa.list_(pa.struct(_FIELDS))


class Between(NamedTuple):
    """The intervals between messages that follow each other, and of which group each is."""

    group: np.ndarray
    us: np.ndarray

    def sums(self, groups: int) -> np.ndarray:
        """For each group: how many, their sum, and the sum of their squares, which floats hold exactly to 2**53."""
        us = self.us.astype(float)
        weights = (None, us, us * us)
        return np.stack([np.bincount(self.group, weight, minlength=groups) for weight in weights], axis=1)

    def backwards(self, groups: int) -> np.ndarray:
        """How many are below 0."""
        return np.bincount(self.group[self.us < 0], minlength=groups)

    def longest(self, groups: int) -> np.ndarray:
        """The longest of each group; below any where there is none."""
        found = np.full(groups, np.iinfo(np.int64).min)
        np.maximum.at(found, self.group, self.us)
        return found


def measured(messages: Groups) -> pa.Array:
    """One pair of edges for each group of messages, which are of one life and one recording."""
    first, last = messages.starts, messages.ends - 1
    epoch, seq, at = messages["epoch"], messages["seq"], messages["at"]
    values = [messages["recording"].take(pa.array(first)), epoch[first], seq[first], at[first], seq[last], at[last]]
    return _lists(values, np.ones(len(messages), np.int64))


def between_messages(messages: Groups) -> Between:
    us = np.diff(messages["at"])
    together = messages.of_row[1:] == messages.of_row[:-1]
    return Between(messages.of_row[1:][together], us[together])


class Joined(NamedTuple):
    """The edges of rows that come to one, and what is between them."""

    edges: pa.Array
    between: Between


def joined(rows: Groups) -> Joined:
    lines, sizes = flat(rows["lines"])
    group = np.repeat(rows.of_row, sizes)
    recording, *numbers = lines.flatten()
    epoch, first_seq, first_us, last_seq, last_us = map(as_numbers, numbers)
    order = np.argsort(first_seq, kind="stable")
    by_life, starts = grouped(
        [key_of(values) for values in (group[order], recording.take(pa.array(order)), epoch[order])]
    )
    order = order[by_life]
    if not len(order):
        nothing = np.zeros(0, np.int64)
        return Joined(rows["lines"].take(pa.array(rows.starts)), Between(nothing, nothing))
    first, last = order[starts], order[np.append(starts[1:], len(order)) - 1]
    follows = np.ones(len(order), bool)
    follows[starts] = False
    at = np.flatnonzero(follows)
    between = Between(group[order[at]], first_us[order[at]] - last_us[order[at - 1]])
    values = [
        recording.take(pa.array(first)),
        epoch[first],
        first_seq[first],
        first_us[first],
        last_seq[last],
        last_us[last],
    ]
    return Joined(_lists(values, np.bincount(group[first], minlength=len(rows))), between)


def _lists(values: list[pa.Array | np.ndarray], sizes: np.ndarray) -> pa.Array:
    arrays = [value.cast(pa.string()) if isinstance(value, pa.Array) else pa.array(value) for value in values]
    return list_array(pa.StructArray.from_arrays(arrays, fields=_FIELDS), sizes)
