"""`ringmain metrics`: served on loopback, printed once, and as JSON."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

import ringmain as rm
from ringmain.recording import RecordingWriter
from tests.cli.conftest import Ended
from tests.recording.conftest import ring_batch


def test_it_is_served_until_it_is_ended(started: Callable[..., subprocess.Popen[str]]) -> None:
    with rm.Publisher("served") as pub:
        pub.send(b"x")
        process = started("metrics", "--port", "0")
        assert process.stderr is not None
        address = process.stderr.readline().rpartition(" ")[2].strip()
        assert address.startswith("http://127.0.0.1:"), "this machine only, unless another address is given"
        port = int(address.split(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port)):  # a client that sends nothing keeps no other waiting
            with urllib.request.urlopen(address, timeout=30) as answer:
                text = answer.read().decode()
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert 'ringmain_topic_messages_total{topic="served",contract="broadcast"} 1' in text
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(address.replace("/metrics", "/other"), timeout=30)


def test_the_other_examples(ringmain: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with RecordingWriter("drive", fsync="never") as writer:
        writer.append("a", 1, ring_batch(0, 3))
    assert "# TYPE ringmain_scrape_seconds gauge" in ringmain("metrics", "--once").out
    text = ringmain("metrics", "--once", "--recording", "drive").out
    assert 'ringmain_recording_rows_total{recording="drive"} 3' in text
    known = json.loads(ringmain("metrics", "--json", "--recording", "drive").out)
    assert known["ringmain_recording_rows_total"] == [{"recording": "drive", "value": 3}]


def test_a_port_that_is_taken_is_one_sentence(ringmain: Callable[..., Ended]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = ringmain("metrics", "--port", str(taken.getsockname()[1]))
    assert (ended.code, ended.err.count("\n")) == (1, 1)
