"""The figures of a lake for `ringmain metrics`, from its ledger. The pipeline does not notice."""

from __future__ import annotations

from pathlib import Path

from ringmain.lake._lake import Lake
from ringmain.lake._ledger import LEDGER, Batch, Ledger, totals

Figures = tuple[dict[str, str], dict[str, float]]  # labels, values
_COUNTS = {
    "rows_in": "ringmain_pipeline_rows_in_total",
    "rows_out": "ringmain_pipeline_rows_out_total",
    "quarantined": "ringmain_pipeline_quarantined_total",
    "duplicates": "ringmain_pipeline_duplicates_total",
    "lost": "ringmain_pipeline_lost_total",
}


class LakeFigures:
    """Reads the figures of one lake. The ledger is read again only when it has changed."""

    def __init__(self, path: str | Path) -> None:
        self._path, self._lake = str(path), Lake(str(path))
        self._version = -1
        self._batches: list[Batch] = []

    def read(self) -> list[Figures]:
        ledger = self._lake.snapshot(LEDGER)
        if ledger is None:
            return []
        if ledger.version != self._version:
            self._batches, self._version = Ledger(self._lake).batches(), ledger.version
        batches, labels = self._batches, {"lake": self._path}
        found: list[Figures] = [
            (
                labels,
                {
                    "ringmain_pipeline_batches_total": len(batches),
                    "ringmain_pipeline_batch_seconds_total": sum(batch.seconds for batch in batches),
                    "ringmain_pipeline_last_batch_seconds": batches[-1].seconds if batches else 0.0,
                    "ringmain_pipeline_damaged_total": sum(one.damaged for b in batches for one in b.recordings),
                },
            )
        ]
        for topic, count in totals(count for batch in batches for count in batch.topics).items():
            values: dict[str, float] = {metric: getattr(count, name) for name, metric in _COUNTS.items()}
            found.append(({**labels, "topic": topic}, values))
        return found
