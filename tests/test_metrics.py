"""Metrics: the figures agree with what was sent, the text is what Prometheus reads, and the dashboard and the alerts
name only metrics that exist."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import ringmain as rm
from ringmain._metrics import FAMILIES, Collector
from ringmain.recording import Position, RecordingWriter, register
from tests import contracts
from tests.recording.conftest import ring_batch

MONITORING = Path(__file__).parents[1] / "docs" / "monitoring"
NAME = re.compile(r"\bringmain_[a-z_]+")


def value(found: dict[str, list[dict[str, Any]]], name: str, **labels: str) -> Any:
    (sample,) = [s for s in found.get(name, []) if labels.items() <= s.items()]
    return sample["value"]


def test_topics_and_participants() -> None:
    with rm.Publisher("m/a", name="driver") as pub, rm.Subscriber("m/a", name="filter") as sub:
        for _ in range(5):
            pub.send(b"12345")
        sub.recv(timeout=1)
        found = rm.metrics()
    assert value(found, "ringmain_topic_messages_total", topic="m/a", contract="broadcast") == 5
    assert (
        value(found, "ringmain_topic_writers", topic="m/a") == value(found, "ringmain_topic_readers", topic="m/a") == 1
    )
    assert value(found, "ringmain_participant_bytes_total", participant="driver", role="writer") == 25
    assert value(found, "ringmain_participant_messages_total", participant="filter", role="reader") == 1
    assert value(found, "ringmain_participant_lag_messages", participant="filter") == 4
    assert value(found, "ringmain_participant_lost_total", participant="filter") == 0
    assert value(found, "ringmain_participant_alive", participant="driver") == 1
    assert "ringmain_participant_blocked" not in found


def test_who_blocks_whom(until: Callable[[Callable[[], object]], None]) -> None:
    with rm.Publisher("m/full", contract="reliable", capacity=4096, name="driver") as pub:
        with rm.Subscriber("m/full", name="sleeper") as sub:

            def fill() -> None:
                for _ in range(200):
                    pub.send(bytes(100))

            thread = threading.Thread(target=fill)
            thread.start()
            until(lambda: "ringmain_participant_blocked" in rm.metrics())
            assert value(rm.metrics(), "ringmain_participant_blocked", participant="driver", by="sleeper") == 1

            def waited_s() -> float:
                found: float = value(rm.metrics(), "ringmain_participant_blocked_seconds_total", participant="driver")
                return found

            before_s = waited_s()
            until(lambda: waited_s() > before_s)  # it rises while the writer is blocked
            for _ in range(200):
                sub.recv(timeout=10)
            thread.join()
            not_blocked = waited_s()
            pub.send(b"room for this")
            assert waited_s() == not_blocked, "only waiting counts"
    assert "ringmain_participant_blocked" not in rm.metrics()


def test_a_reader_that_lost_messages() -> None:
    with rm.Publisher("m/lossy", capacity=4096) as pub, rm.Subscriber("m/lossy", name="slow") as sub:
        for _ in range(500):
            pub.send(bytes(100))
        with suppress(rm.Timeout):  # it may go on after all that was lost
            sub.recv(timeout=0.0)
        pub.send(b"last")
        sub.recv(timeout=10)
        assert value(rm.metrics(), "ringmain_participant_lost_total", participant="slow") == sub.lost > 0


def test_recordings_and_their_consumers(tmp_path: Path) -> None:
    path = tmp_path / "r"
    collector = Collector([path])
    assert "ringmain_recording" not in collector.text(), "not there yet"
    with RecordingWriter(path, fsync="never") as writer:
        writer.append("a", 1, ring_batch(0, 30))
        writer.rotate()
        writer.append("a", 1, ring_batch(30, 20))
        writer.flush()
        register(path, "pipeline", Position(0, 10))
        found = rm.metrics([path])
        assert value(found, "ringmain_recording_rows_total") == 50
        assert value(found, "ringmain_consumer_lag_rows", consumer="pipeline", recording=str(path)) == 40
        assert value(found, "ringmain_recording_recorder_running") == 1
        assert value(found, "ringmain_recording_unsealed_segments") >= 1
        assert value(found, "ringmain_recording_disk_free_bytes") > 0
        assert "ringmain_recording_rows_total" in collector.text()
    found = rm.metrics([path])
    assert value(found, "ringmain_recording_recorder_running") == 0
    assert value(found, "ringmain_recording_unsealed_segments") == 0
    newest = max(file.stat().st_mtime for file in path.glob("*.parquet"))
    assert value(found, "ringmain_recording_last_seal_timestamp_seconds") == newest


def test_how_far_behind_a_recorder_is(tmp_path: Path) -> None:
    with (
        rm.Publisher("m/rec") as pub,
        rm.Subscriber("m/rec", name="as a recorder"),
        RecordingWriter(tmp_path / "r", fsync="never"),
    ):
        pub.send_many([b"x"] * 7)
        assert value(rm.metrics([tmp_path / "r"]), "ringmain_recording_lag_messages") == 7
    assert "ringmain_recording_lag_messages" not in rm.metrics([tmp_path / "r"])


def test_lakes(tmp_path: Path) -> None:
    """The numbers are those of the ledger."""
    pipeline = pytest.importorskip("ringmain.pipeline", reason="the extra spark is not installed")
    collector = Collector(lakes=[tmp_path / "lake"])
    assert "ringmain_pipeline" not in collector.text(), "not there yet"
    for batch in range(2):
        with RecordingWriter(tmp_path / "r", fsync="never") as writer:
            writer.append("a", 1, ring_batch(30 * batch, 30))
        pipeline.run(tmp_path / "r", tmp_path / "lake", progress=lambda line: None, engine="local")
        found = rm.metrics(lakes=[tmp_path / "lake"])
        assert value(found, "ringmain_pipeline_batches_total", lake=str(tmp_path / "lake")) == batch + 1
        assert value(found, "ringmain_pipeline_rows_in_total", topic="a") == 30 * (batch + 1)
        assert value(found, "ringmain_pipeline_rows_out_total", topic="a") == 30 * (batch + 1)
        sample = f'ringmain_pipeline_rows_in_total{{lake="{tmp_path}/lake",topic="a"}} {30 * (batch + 1)}'
        assert sample in collector.text(), "the ledger is read again after a batch"
    for name in ("quarantined", "duplicates"):
        assert value(found, f"ringmain_pipeline_{name}_total", topic="a") == 0
    assert value(found, "ringmain_pipeline_damaged_total") == 0
    total, last = (value(found, f"ringmain_pipeline_{name}") for name in ("batch_seconds_total", "last_batch_seconds"))
    assert total > last > 0


def test_reading_metrics_takes_no_lock_of_a_recording(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r", fsync="never") as writer:
        writer.append("a", 1, ring_batch(0, 3))
    done = threading.Event()

    def scrape() -> None:
        collector = Collector([tmp_path / "r"])
        while not done.is_set():
            collector.collect()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        for _ in range(20):
            RecordingWriter(tmp_path / "r", fsync="never").close()
    finally:
        done.set()
        thread.join()


def test_prometheus_reads_the_text() -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")
    odd = 'a "quoted" \\ name'
    with rm.Publisher("m/text", name=odd), rm.Subscriber("m/text"), rm.Subscriber("m/text"):
        text = Collector().text()
    samples = [sample for family in parser.text_string_to_metric_families(text) for sample in family.samples]
    assert odd in {sample.labels.get("participant") for sample in samples}
    assert {sample.name for sample in samples} <= FAMILIES.keys()
    keys = [(sample.name, *sorted(sample.labels.items())) for sample in samples]
    assert len(keys) == len(set(keys)), "two subscribers of one process have labels of their own"
    assert all(name.endswith("_total") == (family.kind == "counter") for name, family in FAMILIES.items())


def test_a_file_that_is_no_topic_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGMAIN_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    (tmp_path / "junk.ring").write_bytes(b"junk")
    assert value(rm.metrics(), "ringmain_topic_unreadable", topic="junk") == 1


def test_the_dashboard_and_the_alerts_use_metrics_that_exist() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    shown = {name for panel in dashboard["panels"] for t in panel["targets"] for name in NAME.findall(t["expr"])}
    (group,) = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    alarmed = {name for rule in group["rules"] for name in NAME.findall(rule["expr"])}
    assert shown | alarmed <= FAMILIES.keys()
    left = {"ringmain_topic_writers", "ringmain_topic_readers", "ringmain_participant_messages_total"}
    left |= {"ringmain_recording_bytes", "ringmain_recording_segments"}
    assert FAMILIES.keys() - shown - alarmed == left
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert all(rule["annotations"]["summary"] for rule in group["rules"])


def test_the_guide_lists_every_metric_and_its_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (MONITORING.parent / "guide" / "metrics.md").read_text()
    table = re.findall(r"^\| `(ringmain_\w+)` \| (\w+) \| (.*) \|$", text, re.MULTILINE)
    assert table == [(name, family.kind, family.help) for name, family in FAMILIES.items()]
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(program, "metrics.md", "exec"), {})
    assert "imu filter 1" in capsys.readouterr().out


@pytest.mark.parametrize("contract", contracts.ALL)
def test_the_lag_of_an_idle_reader_is_that_of_info(contract: rm.Contract) -> None:
    """A worker that has taken nothing is not behind: what waits is for others, too."""
    with rm.Publisher("t", contract=contract) as pub, rm.Subscriber("t"):
        pub.send_many([b"x"] * 10)
        (reader,) = rm.info("t").readers
        figures = rm.metrics()
        (messages,) = figures["ringmain_participant_lag_messages"]
        (in_bytes,) = figures["ringmain_participant_lag_bytes"]
        assert (messages["value"], in_bytes["value"]) == (reader.lag_messages, reader.lag_bytes)
        assert reader.lag_messages == (10 if contract in contracts.UNSHARED else 0)
    if contract in contracts.KEEPING_UNREAD:
        rm.unlink("t")


def test_a_blocked_writer_is_blocked_by_whom_info_names(until: Callable[..., None]) -> None:
    with rm.Publisher("t", contract="work", capacity=4096) as pub:
        sending = threading.Thread(target=pub.send_many, args=([b"x" * 500] * 20,))
        sending.start()
        until(lambda: rm.info("t").writers[0].waits_for)
        (blocked,) = rm.metrics()["ringmain_participant_blocked"]
        assert blocked["by"] == rm.info("t").writers[0].waits_for == "a worker to take its messages"
        with rm.Subscriber("t") as sub:
            assert len([sub.recv(timeout=30) for _ in range(20)]) == 20
        sending.join()
