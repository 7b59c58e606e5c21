"""`Recorder(readers=True)`: what live subscribers received and lost is recorded, also of those that are gone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import ringmain as rm

READERS = "ringmain/readers"


def figures(path: Path) -> list[dict[str, Any]]:
    """The last figures of each reader."""
    last: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rm.Recording(path).to_arrow(READERS, decode=True).to_pylist():
        last[row["reader"], row["joined_ns"]] = row
    return list(last.values())


def sum_of(recorder: rm.Recorder) -> int:
    """Messages that it recorded or lost."""
    status = recorder.status()
    return status.messages + status.lost


def test_a_slow_subscriber_that_left(tmp_path: Path, until: Callable[[Callable[[], object]], None]) -> None:
    path = tmp_path / "drive"
    with rm.Publisher("imu", capacity=4096, name="driver") as pub:
        with rm.Recorder(path, "imu", readers=True, fsync="never") as recorder:
            with rm.Subscriber("imu", name="slow") as slow, rm.Subscriber("imu", name="quick") as quick:
                for n in range(200):
                    pub.send(b"%d" % n * 20)
                    quick.recv(timeout=10)
                with suppress(rm.Timeout):  # it may go on after all that was lost
                    slow.recv(timeout=0)
                pub.send(b"last")
                slow.recv(timeout=10)
                lost = slow.lost
                assert lost > 0

                def recorded() -> bool:
                    return (path / "meta.json").exists() and any(
                        row["reader"] == "slow" and row["reader_lost"] == lost for row in figures(path)
                    )

                until(recorded)
            until(lambda: sum_of(recorder) == 201)
    found = {row["reader"]: row for row in figures(path)}
    assert set(found) == {"slow", "quick"}, "neither the writer nor the recorder itself"
    assert (found["slow"]["reader_lost"], found["slow"]["of_topic"]) == (lost, "imu")
    assert found["quick"]["reader_lost"] == 0
    assert found["quick"]["reader_messages"] == 200
    assert sum_of(recorder) == 201, "figures of readers are not among the messages, and count for no limit"


def test_it_is_off_unless_asked_for(tmp_path: Path, until: Callable[[Callable[[], object]], None]) -> None:
    with rm.Publisher("imu") as pub, rm.Subscriber("imu"), rm.Recorder(tmp_path / "drive", "*") as recorder:
        pub.send(b"x")
        until(lambda: recorder.status().messages == 1)
    assert list(rm.Recording(tmp_path / "drive").topics()) == ["imu"]
