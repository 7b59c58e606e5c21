"""What the report shows of the data itself: numeric fields over time, the last pictures of cameras, and what live
readers lost.

Fields come from `gold/fields`, batch by batch, and of silver only the newest picture of each camera is read, so memory
does not grow with the lake. The invariant owned here: the page's size does not, either. Time is cut into at most BINS
bins, and topics, fields and pictures have limits; how many fields are left out is said.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ringmain.errors import Corrupt
from ringmain.frames._thumbnail import thumbnail
from ringmain.lake import _fields as gold
from ringmain.lake._fields import PUBLISH_TIME, field_names
from ringmain.lake._lake import Lake
from ringmain.lake._log import TableFile
from ringmain.lake._names import silver_table, topic_name
from ringmain.lake._tables import latest
from ringmain.recording._decode import PAYLOAD
from ringmain.recording._format import decoded_name, is_ours
from ringmain.recording._frames import RecordedFrame
from ringmain.recording._record.live_readers import READERS

BINS = 120
FIELDS_OF_A_TOPIC = 8
FIELDS = 96
PICTURES = 12
WORST = 30
_PICTURE_PIXELS = (320, 120)  # at most so wide, and twice as high
_PICTURE_BYTES = 300_000  # of one that is compressed already, and is taken as it is
_TOPIC, _RECORDER = decoded_name("topic"), decoded_name("recorder")
_COMPRESSED = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG": "image/png"}


class Span(NamedTuple):
    """The time that the page shows."""

    start_us: int
    bin_us: int
    bins: int

    @classmethod
    def of(cls, start_ms: int, bin_ms: float, bins: int) -> Span:
        coarser = -(-bins // BINS)
        return cls(start_ms * 1000, max(1, int(bin_ms * 1000 * coarser)), -(-bins // coarser))


def data_of(lake: Lake, span: Span) -> dict[str, Any]:
    """The page's part about the data."""
    pictures: list[dict[str, Any]] = []
    names: dict[str, list[str]] = {}  # of fields that there may be, by topic
    for name in lake.tables():
        schema = lake.schema(name) if name.startswith("silver/") else None
        if schema is None or name == silver_table(READERS):
            continue
        if PAYLOAD.name in schema.names:
            picture = _last_picture(lake, name) if len(pictures) < PICTURES else None
            pictures += [picture] if picture is not None else []
            continue
        own = pa.schema([f for f in schema if not is_ours(f.name)])
        names[topic_name(name.partition("/")[2])] = field_names(own)
    chosen, left_out = _chosen(lake, names)
    return {
        "field_bins": span.bins, "field_bin_ms": span.bin_us / 1000, "fields": _fields(lake, chosen, span),
        "fields_left_out": left_out, "pictures": pictures, "live": _live_readers(lake),
    }  # fmt: skip


# ----------------------------------------------------------------------------------------- fields over time


def _chosen(lake: Lake, names: dict[str, list[str]]) -> tuple[list[tuple[str, str]], int]:
    """(topic, field) of those that are shown, and how many are left out."""
    if lake.snapshot(gold.FIELDS.name) is None:
        return [], 0
    there: set[tuple[str, str]] = set()
    numbers = pc.field("count") > 0
    for batch in lake.dataset(gold.FIELDS.name).to_batches(columns=["topic", "field"], filter=numbers):
        pairs = pa.Table.from_batches([batch]).group_by(["topic", "field"]).aggregate([])
        there |= set(zip(*(pairs.column(name).to_pylist() for name in ("topic", "field")), strict=True))
    found: list[tuple[str, str]] = []
    for topic, fields in names.items():
        found += [(topic, name) for name in fields if (topic, name) in there][:FIELDS_OF_A_TOPIC]
    found = found[:FIELDS]
    return found, len([1 for topic, _ in there if topic in names]) - len(found)


def _fields(lake: Lake, chosen: list[tuple[str, str]], span: Span) -> list[dict[str, Any]]:
    """These fields over time: of each bin the mean, the least and the most, from the windows of `gold/fields`."""
    if not chosen:
        return []
    shape = len(chosen), span.bins
    count, total = np.zeros(shape), np.zeros(shape)
    low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
    numbers = {pair: number for number, pair in enumerate(chosen)}
    columns = ["window_start", "topic", "field", "count", "mean", "min", "max"]
    for batch in lake.dataset(gold.FIELDS.name).to_batches(columns=columns, filter=pc.field("count") > 0):
        rows = batch.to_pandas()
        number = rows.set_index(["topic", "field"]).index.map(numbers)
        rows = rows[number.notna()]
        at = (rows["window_start"].dt.as_unit("us").astype("int64") - span.start_us) // span.bin_us
        where = number.dropna().astype(int).to_numpy(), np.clip(at.to_numpy(), 0, span.bins - 1)
        np.add.at(count, where, rows["count"])
        np.add.at(total, where, rows["count"] * rows["mean"])
        np.minimum.at(low, where, rows["min"])
        np.maximum.at(high, where, rows["max"])
    there = count > 0
    mean = np.divide(total, count, out=np.zeros(shape), where=there)

    def series(values: Any, number: int) -> list[float | None]:
        return [_brief(v) if ok else None for v, ok in zip(values[number], there[number], strict=True)]

    return [
        {"topic": topic, "field": name, "mean": series(mean, n), "low": series(low, n), "high": series(high, n)}
        for n, (topic, name) in enumerate(chosen)
    ]


def _brief(value: float) -> float:
    return float(f"{value:.5g}")


# ------------------------------------------------------------------------------------------------- pictures


def _last_picture(lake: Lake, table: str) -> dict[str, Any] | None:
    """The newest row of a table as a picture, None if it is none."""
    files = lake.files(table)
    if not files:
        return None
    row = _newest_row(lake, table, max(files, key=lambda one: latest(one, PUBLISH_TIME)))
    made = _data_uri(row[PAYLOAD.name])
    if made is None:
        return None
    return {"topic": row[_TOPIC], "at_ms": int(row[PUBLISH_TIME].timestamp() * 1000), "src": made}


def _newest_row(lake: Lake, table: str, file: TableFile) -> dict[str, Any]:
    """Only the rows that are read together with it are read."""
    with lake.filesystem().open_input_file(f"{table}/{file.name}") as source:
        parquet = pq.ParquetFile(source)
        times = [parquet.read_row_group(n, [PUBLISH_TIME]).column(0) for n in range(parquet.num_row_groups)]
        group = max((n for n, found in enumerate(times) if len(found)), key=lambda n: pc.max(times[n]).as_py())
        at = pc.index(times[group], pc.max(times[group])).as_py()
        rows = parquet.read_row_group(group, [_TOPIC, PUBLISH_TIME, PAYLOAD.name]).slice(at, 1)
    (row,) = rows.to_pylist()
    return dict(row)


def _data_uri(payload: bytes) -> str | None:
    for mark, kind in _COMPRESSED.items():
        if payload.startswith(mark) and len(payload) <= _PICTURE_BYTES:
            return _uri(kind, payload)
    try:
        pixels = thumbnail(RecordedFrame(payload), *_PICTURE_PIXELS)
    except Corrupt:
        return None  # not a frame
    return None if pixels is None else _uri("image/png", png(pixels))


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def png(pixels: Any) -> bytes:
    """(height, width, 3) bytes as a PNG file."""
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), "u1"), pixels.reshape(height, -1)], axis=1)  # 0: no filter

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, RGB
    body = zlib.compress(lines.tobytes(), 6)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


# --------------------------------------------------------------------------------------------- live readers


def _live_readers(lake: Lake) -> list[dict[str, Any]]:
    """What live readers lost, the worst first: recorders with `readers=True` wrote it down."""
    if lake.snapshot(silver_table(READERS)) is None:
        return []
    names = [_RECORDER, "of_topic", "reader", "pid", "joined_ns", "reader_messages", "reader_lost"]
    rows = lake.to_arrow(silver_table(READERS), columns=names).to_pandas()
    # Figures are from when a reader joined. One that joined again begins at 0: its last figures add up.
    joined = rows.groupby(names[:5])[["reader_messages", "reader_lost"]].max().reset_index()
    found = joined.groupby(["reader", "of_topic", _RECORDER])[["reader_messages", "reader_lost"]].sum().reset_index()
    worst = found.sort_values(["reader_lost", "reader_messages"], ascending=False).head(WORST)
    return [
        {
            "reader": str(r.reader), "topic": str(r.of_topic), "recorder": str(r.rm_recorder),
            "messages": int(r.reader_messages), "lost": int(r.reader_lost),
        }
        for r in worst.itertuples()
    ]  # fmt: skip
