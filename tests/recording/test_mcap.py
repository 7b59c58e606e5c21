"""Export to MCAP, read back with the reference reader: every message, with its times, schema and metadata."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mcap", reason="the extra mcap is not installed")

from mcap.reader import make_reader

from ringmain.recording import Recording, RecordingWriter
from ringmain.recording.mcap import export_mcap
from tests.recording.conftest import START_NS, payload_of, ring_batch


def test_round_trip(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r") as writer:
        writer.declare("typed", epoch=1, contract="bus", schema=b"the schema")
        writer.append("typed", 1, ring_batch(0, 6), record_time_ns=START_NS + 1_000_000)
        writer.append("bytes", 1, ring_batch(6, 6), record_time_ns=START_NS + 2_000_000)
    assert export_mcap(Recording(tmp_path / "r"), tmp_path / "out.mcap") == 12
    with open(tmp_path / "out.mcap", "rb") as file:
        found = sorted(make_reader(file).iter_messages(), key=lambda entry: entry[2].sequence)
    assert [m.data for _, _, m in found] == [payload_of(n) for n in range(12)]
    assert [m.publish_time for _, _, m in found] == [START_NS + n * 1001 for n in range(12)]
    assert [m.log_time for _, _, m in found][:6] == [(START_NS + 1_000_000) // 1000 * 1000] * 6
    schema, channel, _ = found[0]
    assert (schema.name, schema.data, channel.topic) == ("typed", b"the schema", "typed")
    assert channel.metadata == {"epoch": "1", "sender": "sender0", "kind": "even", "contract": "bus"}
    assert found[-1][0] is None
    assert found[-1][1].topic == "bytes"
    assert not list(tmp_path.glob("*.tmp"))


def test_filters_apply(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r") as writer:
        writer.append("a", 1, ring_batch(0, 10))
        writer.append("b", 1, ring_batch(10, 10))
    assert export_mcap(Recording(tmp_path / "r"), tmp_path / "out.mcap", topics="b", end_seq=15) == 5
