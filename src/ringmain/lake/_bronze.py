"""Bronze: every message that a lake has taken, as recorded. It is in the recordings, up to where the ledger says that
the lake has read them, or in the table `bronze` where the pipeline makes one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from ringmain.errors import LakeError
from ringmain.lake._ledger import Source
from ringmain.lake._positions import sources_of
from ringmain.lake._tables import Tables
from ringmain.recording import Position
from ringmain.recording._filters import Filter
from ringmain.recording._format import FIRST
from ringmain.recording._locations import store_at
from ringmain.recording._offsets import Tracker
from ringmain.recording._plan import SPLIT_BYTES, Range, between
from ringmain.recording._scan import Gaps, Scan, source_schema

BRONZE = "bronze"
ALWAYS = (-(1 << 62), 1 << 62)


def taken(
    sources: Iterable[Source], storage: Mapping[str, str], since_us: int, until_us: int, fail_on_loss: bool = True
) -> list[Range]:
    """What the ledger says was read, of some stretch of time, as ranges of the recordings."""
    found: list[Range] = []
    wanted = Filter(None, since_us * 1000, until_us * 1000)
    for one in sources:
        if one.first_us is None or one.last_us is None or one.first_us >= until_us or one.last_us < since_us:
            continue
        begin, store = FIRST, store_at(one.location, storage)
        plans = Tracker(one.recording, store).plans(begin, Gaps(store, one.recording, None, fail_on_loss))
        left = [extent.min_ns // 1000 for plan in plans for extent in plan.extents]
        first = min(left, default=until_us)
        if one.first_us < first and since_us < first:
            raise LakeError(
                f"messages that the lake has taken from {one.location} are deleted there, and a table is made from "
                'them again: keep recordings for longer, or use bronze="copy" from the start (--bronze copy)'
            )
        found += between(one.recording, plans, begin, Position.parse(one.end), SPLIT_BYTES, wanted)
    return found


def bronze(lake: Tables) -> pa.RecordBatchReader:
    if lake.snapshot(BRONZE) is not None:
        return lake.dataset(BRONZE).scanner().to_reader()
    scan = Scan(source_schema(None, True, True))
    ranges = taken(sources_of(lake), lake.storage_options, *ALWAYS)
    return pa.RecordBatchReader.from_batches(scan.schema, (rows for item in ranges for rows in scan.read(item)))
