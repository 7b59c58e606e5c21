"""What retention has left of a moment: the oldest segment that may have rows from it on, and whether some are gone."""

from __future__ import annotations

from dataclasses import replace

from ringmain.errors import RingmainError
from ringmain.recording._format import MAX_SEGMENT
from ringmain.recording._segment.segment import newest_in
from ringmain.recording._segment.store import SegmentRef, Store, list_here, read_retired
from ringmain.recording._upkeep.incidents import pinned_in
from ringmain.recording._upkeep.uploads import read_uploaded

_NOT_KNOWN = 1 << 62  # later than any time: kept rather than lost


class WhatIsLeft:
    """Of one recorder's recording. Asks its directory only, never the store at `sealed_uri`."""

    def __init__(self, store: Store) -> None:
        self._here = replace(store, pinned=(0, MAX_SEGMENT + 1))  # also what retention left behind for an incident
        self._store = store
        self._newest_ns: dict[int, int] = {}  # by sealed segment

    def since(self, start_ns: int) -> tuple[int, int]:
        """(the oldest segment that may have a row published from `start_ns` on, or MAX_SEGMENT + 1 if none has; 0, or
        the time before which such rows may have been deleted). The caller keeps retention from running."""
        retired, here = read_retired(self._store), {ref.number: ref for ref in list_here(self._here)}
        pinned = pinned_in(self._store, [number for number in here if number < retired.first_segment])
        here = {number: ref for number, ref in here.items() if number >= retired.first_segment or number in pinned}
        elsewhere = self._uploaded(retired.first_segment)
        first, gone_ns = MAX_SEGMENT + 1, 0
        for number, newest_ns in enumerate(retired.newest_ns):
            if newest_ns >= start_ns and number not in here and number not in elsewhere:
                gone_ns = max(gone_ns, newest_ns + 1)
        for number in sorted(here.keys() | elsewhere.keys()):
            known_ns = retired.newest_ns[number] if number < len(retired.newest_ns) else 0
            if (known_ns or elsewhere.get(number) or self._newest_in(here[number])) >= start_ns:
                first = number
                break
        return first, gone_ns

    def _uploaded(self, first_segment: int) -> dict[int, int]:
        """The newest publish time in each segment that is at `sealed_uri`, and stays there."""
        uploaded = read_uploaded(self._store) if self._store.sealed_uri else None
        if uploaded is None:
            return {}
        pinned = pinned_in(self._store, uploaded.newest_ns)
        return {n: ns for n, ns in uploaded.newest_ns.items() if n >= first_segment or n in pinned}

    def _newest_in(self, ref: SegmentRef) -> int:
        if not ref.sealed:
            return _NOT_KNOWN  # it is being written, or was a moment ago
        if ref.number not in self._newest_ns:
            try:
                segment = ref.open()
            except (RingmainError, OSError):
                return _NOT_KNOWN
            self._newest_ns[ref.number] = newest_in(segment)
            segment.close()
        return self._newest_ns[ref.number]
