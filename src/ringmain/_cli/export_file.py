"""Writing a recording as one file: MCAP, Parquet or lines of JSON. Needs pyarrow.

The file gets its name only when it is complete.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO

import pyarrow.parquet

from ringmain._cli.message_text import Decoder, json_line
from ringmain._message import Message
from ringmain.recording import SCHEMA, Recording
from ringmain.recording._mcap import export_mcap
from ringmain.typed import Schema


def export(
    recording: Recording, out: str, suffix: str, topics: list[str] | None, *, raw: bool = False, decode: bool = False
) -> int:
    """Writes the topics to `out`. Returns the number of messages. decode: one topic's fields as columns."""
    if out == "-":
        return _lines(recording, topics, sys.stdout)
    if suffix == ".mcap":
        return export_mcap(recording, out, raw=raw, topics=topics)
    temporary = Path(out + ".tmp")
    try:
        if suffix == ".jsonl":
            with temporary.open("w") as file:
                count = _lines(recording, topics, file)
        else:
            count = _parquet(recording, topics, temporary, decode)
        temporary.replace(out)
        return count
    finally:
        temporary.unlink(missing_ok=True)


def _parquet(recording: Recording, topics: list[str] | None, path: Path, decode: bool) -> int:
    count = 0
    if decode:
        schema, batches = recording.decoded_batches(None if topics is None else ", ".join(topics))
    else:
        schema, batches = SCHEMA, (batch for _, batch in recording.batches(topics=topics))
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _lines(recording: Recording, topics: list[str] | None, file: IO[str]) -> int:
    decoders: dict[tuple[str, int], Decoder] = {}
    schemas = recording.schemas()
    count = 0
    for row in recording.messages(topics=topics):
        life = (row.topic, row.epoch)
        if life not in decoders:
            meta = schemas.get(life)
            decoders[life] = Decoder(Schema.from_bytes(meta.schema) if meta and meta.schema else None)
        try:
            data = decoders[life].plain(row.data)
        except ValueError:
            data = row.data  # a payload that does not decode is exported as bytes
        message = Message(
            data, row.seq, row.time_ns, row.sender, row.kind, row.lost, row.topic, extension=row.extension or b""
        )
        file.write(json_line(message) + "\n")
        count += 1
    return count
