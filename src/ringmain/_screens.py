"""`ScreenSet`: the senders or kinds that a subscriber ignores. `split_kind`: a kind without its trace context."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Iterator, MutableSet
from typing import NamedTuple

from ringmain import _names


class Kind(NamedTuple):
    """A kind in its two parts."""

    name: str
    context: str
    """A `traceparent` of W3C Trace Context; empty if there is none. `ringmain.tracing` makes it."""


_CONTEXT = re.compile(r"(.*);(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})", re.DOTALL)


def split_kind(kind: str) -> Kind:
    """What was said, and the trace context that follows it."""
    found = _CONTEXT.fullmatch(kind)
    return Kind(kind, "") if found is None else Kind(found[1], found[2])


class ScreenSet(MutableSet[str]):
    """A set of names that tells its subscriber when it changes. The reference is weak: with a strong one, a dropped
    subscriber would stay open until the garbage collector finds the cycle."""

    def __init__(self, what: str, items: Iterable[str], subscriber: Screened) -> None:
        if isinstance(items, str):
            raise TypeError(f"a set of {what}s is wanted, not the single str {items!r}")
        self._what = what
        self._items = {_names.check_envelope(what, item) for item in items}
        self._subscriber = weakref.ref(subscriber)

    def _changed(self) -> None:
        subscriber = self._subscriber()
        if subscriber is not None:
            subscriber._rescreen()

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: str) -> None:
        self._items.add(_names.check_envelope(self._what, item))
        self._changed()

    def discard(self, item: str) -> None:
        self._items.discard(item)
        self._changed()

    def __repr__(self) -> str:
        return repr(self._items)


class Screened:
    """Mixed into every subscriber: the two sets, as properties that can be assigned."""

    _senders: ScreenSet
    _kinds: ScreenSet

    def _screen_by(self, senders: Iterable[str], kinds: Iterable[str]) -> None:
        self._senders = ScreenSet("sender", senders, self)
        self._kinds = ScreenSet("kind", kinds, self)
        self._rescreen()

    def _rescreen(self) -> None:
        """The sets have changed. A backend that looks them up for every message has nothing to do."""

    @property
    def ignore_senders(self) -> ScreenSet:
        """Senders whose messages are ignored. Change it as any set."""
        return self._senders

    @ignore_senders.setter
    def ignore_senders(self, senders: Iterable[str]) -> None:
        self._senders = ScreenSet("sender", senders, self)
        self._rescreen()

    @property
    def ignore_kinds(self) -> ScreenSet:
        """Kinds of messages that are ignored. Change it as any set."""
        return self._kinds

    @ignore_kinds.setter
    def ignore_kinds(self, kinds: Iterable[str]) -> None:
        self._kinds = ScreenSet("kind", kinds, self)
        self._rescreen()
