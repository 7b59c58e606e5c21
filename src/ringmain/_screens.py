"""`ScreenSet`: the senders or kinds that a subscriber ignores, or alone wants."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, MutableSet
from typing import NamedTuple

from ringmain import _names
from ringmain.errors import RingmainError


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
        is_new = item not in self._items
        self._items.add(_names.check_envelope(self._what, item))
        try:
            self._changed()
        except (ValueError, RingmainError):
            if is_new:
                self._items.discard(item)
            raise

    def discard(self, item: str) -> None:
        self._items.discard(item)
        self._changed()

    def __repr__(self) -> str:
        return repr(self._items)


class Screen(NamedTuple):
    """What a subscriber skips by one of the two texts of an envelope."""

    what: str
    ignored: ScreenSet
    only: ScreenSet | None
    """None: all that is not ignored."""

    def checked(self) -> Screen:
        both = set(self.ignored) & set(self.only) if self.only is not None else ()
        if both:
            names = ", ".join(map(repr, sorted(both)))
            raise ValueError(f"ignore_{self.what}s and only_{self.what}s both have {names}: leave it in one of them")
        return self

    @property
    def active(self) -> bool:
        return bool(self.ignored) or self.only is not None

    def skips(self, name: str) -> bool:
        return name in self.ignored or (self.only is not None and name not in self.only)


class Screened:
    """Mixed into every subscriber: the sets, as properties that can be assigned."""

    _senders: Screen
    _kinds: Screen

    def _screen_by(
        self,
        ignore_senders: Iterable[str],
        ignore_kinds: Iterable[str],
        only_senders: Iterable[str] | None,
        only_kinds: Iterable[str] | None,
    ) -> None:
        self._senders = self._screen_of("sender", ignore_senders, only_senders)
        self._kinds = self._screen_of("kind", ignore_kinds, only_kinds)
        self._rescreen()

    def _screen_of(self, what: str, ignored: Iterable[str], only: Iterable[str] | None) -> Screen:
        wanted = None if only is None else ScreenSet(what, only, self)
        return Screen(what, ScreenSet(what, ignored, self), wanted).checked()

    def _replace(self, screen: Screen) -> None:
        attribute = f"_{screen.what}s"
        before = getattr(self, attribute)
        setattr(self, attribute, screen)
        try:
            self._rescreen()
        except RingmainError:  # this subscriber cannot be screened so
            setattr(self, attribute, before)
            raise

    def _rescreen(self) -> None:
        """The sets have changed."""
        self._senders.checked()
        self._kinds.checked()

    def _screens(self) -> dict[str, set[str] | None]:
        """As arguments of another subscriber."""
        screens = (self._senders, self._kinds)
        ignored: dict[str, set[str] | None] = {f"ignore_{screen.what}s": set(screen.ignored) for screen in screens}
        only = {f"only_{s.what}s": None if s.only is None else set(s.only) for s in screens}
        return ignored | only

    @property
    def ignore_senders(self) -> ScreenSet:
        """Senders whose messages are ignored. Change it as any set."""
        return self._senders.ignored

    @ignore_senders.setter
    def ignore_senders(self, senders: Iterable[str]) -> None:
        self._replace(self._screen_of("sender", senders, self._senders.only))

    @property
    def ignore_kinds(self) -> ScreenSet:
        """Kinds of messages that are ignored. Change it as any set."""
        return self._kinds.ignored

    @ignore_kinds.setter
    def ignore_kinds(self, kinds: Iterable[str]) -> None:
        self._replace(self._screen_of("kind", kinds, self._kinds.only))

    @property
    def only_senders(self) -> ScreenSet | None:
        """Senders whose messages are received, and no others; None: all. Change it as any set."""
        return self._senders.only

    @only_senders.setter
    def only_senders(self, senders: Iterable[str] | None) -> None:
        self._replace(self._screen_of("sender", self._senders.ignored, senders))

    @property
    def only_kinds(self) -> ScreenSet | None:
        """Kinds of messages that are received, and no others; None: all. Change it as any set."""
        return self._kinds.only

    @only_kinds.setter
    def only_kinds(self, kinds: Iterable[str] | None) -> None:
        self._replace(self._screen_of("kind", self._kinds.ignored, kinds))
