"""The column `incidents`: the ids of those that a flight recorder keeps a row for, oldest first; of most rows none."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ringmain.recording._segment.segment import time_ns_of
from ringmain.recording._segment.store import Store
from ringmain.recording._upkeep.incidents import incidents_in


class InIncidents:
    """The incidents of one recording, as they are when this is made."""

    needs = ("publish_time", "publish_ns")

    def __init__(self, store: Store) -> None:
        self._known = incidents_in(store)
        self._ids = pa.array([one.id for one in self._known], pa.string())

    def of(self, segment: int, rows: pa.Array, batch: pa.RecordBatch) -> pa.ListArray:
        """The column for these rows of a segment; the batch has the columns that it `needs`."""
        pinning = [n for n, one in enumerate(self._known) if one.pins(segment)]
        inside = np.zeros((len(batch), len(pinning)), bool)
        at, numbers = time_ns_of(batch).to_numpy(), rows.to_numpy()
        for column, n in enumerate(pinning):
            one = self._known[n]
            inside[:, column] = (at >= one.start_ns) & (at < one.end_ns)
            if one.end is not None and segment == one.end.segment:
                inside[:, column] &= numbers < one.end.row
        _, columns = inside.nonzero()
        ends = np.append(0, np.cumsum(inside.sum(axis=1)))
        ids = self._ids.take(pa.array(np.asarray(pinning, np.int64)[columns]))
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), ids)
