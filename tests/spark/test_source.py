"""Batch reading through format("ringmain"): every row of every segment, sealed or growing, of one recording or many;
columns, filters, decoding; and what happens to inputs that are empty, damaged or enormous.

Each test makes a small recording and compares what Spark says with what was recorded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ringmain.spark
from ringmain.recording import SCHEMA, Recording, Store, _checksum
from ringmain.recording._format import META
from ringmain.recording._meta import Properties, read_meta
from ringmain.recording._upkeep.incidents import Incident, write_incident
from tests.spark.recordings import START_NS, Imu, Imu2, Pose, imu, imu2, record, rows, schema_of, writer


def load(spark: Any, path: Path | str, **options: Any) -> Any:
    reader = spark.read.format("ringmain")
    for key, value in options.items():
        reader = reader.option(key, value)
    return reader.load(str(path))


@pytest.mark.each_run
@pytest.mark.timeout(600)
def test_reads_sealed_and_growing_segments_of_several_recorders(spark: Any, tmp_path: Path) -> None:
    record(tmp_path / "one", ("a", 1, rows(0, 50)), ("b", 1, rows(0, 30)), ("a", 1, rows(50, 20)), seal=False)
    record(tmp_path / "two", ("a", 1, rows(100, 10)))
    found = load(spark, tmp_path).groupBy("recorder", "topic").count().collect()
    assert {(r["recorder"], r["topic"]): r["count"] for r in found} == {
        ("one", "a"): 70, ("one", "b"): 30, ("two", "a"): 10,
    }  # fmt: skip
    assert load(spark, tmp_path / "t*").count() == 10
    assert load(spark, tmp_path / "one", topic="b").count() == 30
    fast = ringmain.spark.read(spark, str(tmp_path))
    assert fast.orderBy("recorder", "topic", "seq").collect() == (
        load(spark, tmp_path, host="true").orderBy("recorder", "topic", "seq").collect()
    )
    assert ringmain.spark.read(spark, str(tmp_path), topic="a").count() == 80


def test_the_host_is_a_column_also_of_several(spark: Any, tmp_path: Path) -> None:
    """Sealed segments that two recorders wrote on two hosts to one directory, one of a third host, and growing ones."""
    odd = tmp_path / "a b%20+ü"  # what an address of Spark escapes
    record(odd / "one", ("a", 1, rows(0, 5)))
    record(odd / "one", ("a", 1, rows(5, 7)))
    record(odd / "two", ("a", 2, rows(0, 11)))
    record(odd / "three", ("a", 3, rows(0, 13)), seal=False)
    as_recorded_on(odd / "one", "left", "right")
    as_recorded_on(odd / "two", "right")
    as_recorded_on(odd / "three", "far")
    frame = ringmain.spark.read(spark, str(odd))
    counts = {row.host: row["count"] for row in frame.groupBy("host").count().collect()}
    assert counts == {"left": 5, "right": 18, "far": 13}
    assert frame.columns == [*SCHEMA.names, "host"]
    found = Recording(odd / "one").to_arrow(columns=["seq", "host"]).to_pylist()
    assert [row["host"] for row in found] == ["left"] * 5 + ["right"] * 7


def as_recorded_on(directory: Path, *hosts: str) -> None:
    """Let the sessions of a recording be those of other hosts."""
    meta = read_meta(Store(directory))
    assert meta is not None
    meta.sessions = [msgspec.structs.replace(one, host=host) for one, host in zip(meta.sessions, hosts, strict=True)]
    (directory / META).write_bytes(_checksum.dump_json(meta))


def test_rows_are_as_recorded(spark: Any, tmp_path: Path) -> None:
    path = record(tmp_path / "r", ("a", 7, rows(5, 3, lost=4, sender="cam")), seal=False)
    first, *_, last = load(spark, path, positions="true").orderBy("seq").collect()
    assert (first.topic, first.epoch, first.seq, first.sender, first.kind) == ("a", 7, 5, "cam", "k")
    assert (first.lost, last.lost, bytes(first.payload), first["size"]) == (4, 0, b"message 5", 9)
    assert (first.segment, first.row, last.row) == (0, 0, 2)
    micros = load(spark, path).selectExpr("unix_micros(publish_time) as us").orderBy("us").first().us
    assert micros * 1000 == START_NS + 5_000_000


def test_only_the_columns_asked_for(spark: Any, tmp_path: Path) -> None:
    path = record(tmp_path / "r", ("a", 1, rows(0, 10)))
    assert load(spark, path, columns="seq,topic").columns == ["seq", "topic"]
    assert load(spark, path, columns="seq,topic").agg({"seq": "sum"}).collect()[0][0] == 45
    given = spark.read.format("ringmain").schema("topic string, lost bigint").load(str(path))
    assert given.columns == ["topic", "lost"]
    assert given.count() == 10
    with pytest.raises(Exception, match="there is no nonsense"):
        load(spark, path, columns="nonsense").count()


def test_filters_give_the_same_rows_pushed_down_or_not(spark: Any, tmp_path: Path) -> None:
    path = record(tmp_path / "r", ("a", 1, rows(0, 100)), ("b", 1, rows(0, 100)), ("a", 1, rows(100, 100)), seal=False)
    for condition, expected in {
        "topic = 'a'": 200,
        "topic in ('b', 'nothing')": 100,
        "publish_time >= timestamp'2023-11-14 22:13:20.150 UTC'": 50,
        "topic = 'a' and publish_time < timestamp'2023-11-14 22:13:20.150 UTC' and seq > 9": 140,
        "seq = 3": 2,
        "topic like 'b%'": 100,
    }.items():
        assert load(spark, path, pushdown="true").where(condition).count() == expected, condition
        assert load(spark, path, pushdown="false").where(condition).count() == expected, condition


def test_filters_skip_segments(spark: Any, tmp_path: Path) -> None:
    """A segment whose statistics rule it out is not even planned: one partition is left of three."""
    path = record(tmp_path / "r", ("a", 1, rows(0, 10)), ("b", 1, rows(0, 10)), ("c", 1, rows(0, 10)))
    assert load(spark, path, pushdown="true").where("topic = 'b'").rdd.getNumPartitions() == 1
    assert load(spark, path, topic="b,c").rdd.getNumPartitions() == 2
    assert load(spark, path).rdd.getNumPartitions() == 3


def test_decodes_one_topic_over_all_its_lives(spark: Any, tmp_path: Path) -> None:
    """A schema that gained a field between two lives of the topic: old rows have null there, nothing is lost."""
    made = writer(tmp_path / "r")
    made.declare("imu", epoch=1, schema=schema_of(Imu))
    made.append("imu", 1, rows(0, 3, encode=imu))
    made.declare("imu", epoch=2, schema=schema_of(Imu2))
    made.append("imu", 2, rows(0, 3, encode=imu2))
    made.append("imu", 2, rows(3, 1))  # not msgpack at all
    made.declare("other", epoch=2)
    made.append("other", 2, rows(0, 5))
    made.close()
    table = load(spark, tmp_path / "r", topic="imu", decode="true")
    found = table.orderBy("rm_epoch", "rm_seq").collect()
    assert [(r.t, r.x, r.note) for r in found] == [
        (0, 0.0, None), (1, 0.5, None), (2, 1.0, None), (0, 0.0, "n0"), (1, 0.5, "n1"), (2, 1.0, "n2"),
            (None, None, None),
    ]  # fmt: skip
    assert [r.rm_payload is None for r in found] == [True] * 6 + [False]
    assert [r.rm_decode_error is None for r in found] == [True] * 6 + [False]
    assert bytes(found[-1].rm_payload) == b"message 3"
    with pytest.raises(Exception, match="decode=true needs one topic"):
        load(spark, tmp_path / "r", decode="true").count()
    with pytest.raises(Exception, match="Recorded: imu, other"):
        load(spark, tmp_path / "r", decode="true", topic="nothing").count()


def test_a_field_named_like_a_column_of_the_envelope(spark: Any, tmp_path: Path) -> None:
    made = writer(tmp_path / "r")
    made.declare("pose", epoch=1, schema=schema_of(Pose))
    made.append("pose", 1, rows(0, 1, encode=lambda n: msgspec.msgpack.encode(Pose(77, (1.0, 2.0)))))
    made.close()
    row = load(spark, tmp_path / "r", topic="pose", decode="true").collect()[0]
    assert (row["size"], tuple(row.point)) == (77, (1.0, 2.0))
    assert row.rm_size == len(msgspec.msgpack.encode(Pose(77, (1.0, 2.0))))


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_a_filter_on_such_a_field_is_about_the_field(spark: Any, tmp_path: Path, pushdown: str) -> None:
    """And one on our column skips what it can. Names in a query may have any case."""
    kind = msgspec.defstruct("Odd", [("seq", int), ("topic", str)])
    made = writer(tmp_path / "r")
    made.declare("odd", epoch=1, schema=schema_of(kind))
    made.append("odd", 1, rows(0, 10, encode=lambda n: msgspec.msgpack.encode(kind(1000 + n, "other"))))
    made.close()
    frame = load(spark, tmp_path / "r", topic="odd", decode="true", pushdown=pushdown, positions="true")
    assert frame.where("seq >= 1008 and Topic = 'other'").select("rm_row").collect() == [(8,), (9,)]
    assert frame.where("RM_SEQ < 2 and rm_topic = 'odd'").select("seq").collect() == [(1000,), (1001,)]
    assert load(spark, tmp_path / "r", topic="odd", decode="true", columns="rm_payload").collect() == [(None,)] * 10


def test_empty_inputs(spark: Any, tmp_path: Path) -> None:
    writer(tmp_path / "r").close()
    assert load(spark, tmp_path / "r").count() == 0
    assert ringmain.spark.read(spark, str(tmp_path / "r")).count() == 0
    with pytest.raises(Exception, match="no recording at"):
        load(spark, tmp_path / "nowhere").count()
    with pytest.raises(Exception, match="has no option 'topics'"):
        load(spark, tmp_path / "r", topics="a").count()


def test_damage_is_an_error_or_a_counted_gap(spark: Any, tmp_path: Path) -> None:
    """One byte of a payload is flipped, in a growing and in a sealed segment: either nothing is returned, or all the
    other rows are, and the gap says how many are missing."""
    path = record(tmp_path / "r", ("a", 1, rows(0, 40)), ("a", 1, rows(40, 60)), seal=False)
    stream = path / "000000001.arrows"
    data = bytearray(stream.read_bytes())
    data[data.index(b"message 77")] ^= 1
    stream.write_bytes(data)
    with pytest.raises(Exception, match="failOnDataLoss=false"):
        load(spark, path).count()
    assert load(spark, path, failOnDataLoss="false", consumer="me").agg({"seq": "sum"}).collect()[0][0] == sum(
        range(40)
    )
    gap = ringmain.spark.gaps(str(path), "me")[0]
    assert (gap["segment"], gap["row"], gap["rows"]) == (1, 0, 60)
    sealed = path / "000000000.parquet"
    sealed.write_bytes(sealed.read_bytes()[:-3])
    with pytest.raises(Exception, match="footer"):
        load(spark, path).count()
    assert load(spark, path, failOnDataLoss="false").count() == 0


def test_wide_rows(spark: Any, tmp_path: Path) -> None:
    """Payloads far beyond any default batch size arrive whole."""
    big = 64 << 20
    path = record(tmp_path / "r", ("a", 1, rows(0, 3, encode=lambda n: bytes([n]) * big)), ("a", 1, rows(3, 1)))
    found = load(spark, path).selectExpr("seq", "length(payload) as n", "hex(substr(payload, -1)) as last")
    assert sorted(map(tuple, found.collect()))[:3] == [(0, big, "00"), (1, big, "01"), (2, big, "02")]


def test_options_teach(spark: Any, tmp_path: Path) -> None:
    made = writer(tmp_path / "r")
    made.declare("a", epoch=1)
    made.append("a", 1, rows(0, 1))
    made.close()
    for options, says in [
        ({"decode": "maybe"}, "true or false"),
        ({"maxRowsPerTrigger": "0"}, "above zero"),
        ({"maxBytesPerTrigger": "lots"}, "64MiB"),
        ({"mode": "dead"}, "choose 'recording' or 'live'"),
        ({"decode": "true", "topic": "a"}, "recorded without a schema"),
    ]:
        with pytest.raises(Exception, match=says):
            load(spark, tmp_path / "r", **options).count()


def test_gap_lines_are_json(tmp_path: Path) -> None:
    path = record(tmp_path / "r", ("a", 1, rows(0, 1)))
    (path / "consumers").mkdir()
    (path / "consumers" / "x.gaps").write_text(json.dumps({"rows": 3}) + "\n")
    assert ringmain.spark.gaps(str(path)) == [{"rows": 3}]


GIANT = """
import sys
import ringmain.spark
from ringmain.recording import SCHEMA, Recording, Store, _checksum
from ringmain.recording._format import META
from ringmain.recording._meta import read_meta
from ringmain.recording._upkeep.incidents import Incident, write_incident
spark = ringmain.spark.session(master="local[1]", **{"spark.driver.memory": "6g"})
for load in (lambda: spark.read.format("ringmain").load(sys.argv[1]), lambda: ringmain.spark.read(spark, sys.argv[1])):
    found = load().selectExpr("seq", "length(payload) as n", "hex(substr(payload, -1)) as last").collect()
    print("found", sorted(map(tuple, found)))
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.skipif(
    os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") < 15 << 30, reason="needs 15 GiB of memory"
)
@pytest.mark.parametrize("seal", [False, True])
def test_a_message_of_a_gibibyte(tmp_path: Path, seal: bool) -> None:
    """In a driver of 6 GiB, and a process of its own, because a JVM that runs out of memory ends."""
    path = record(tmp_path / "r", ("a", 1, rows(0, 1, encode=lambda n: bytes([7]) * (1 << 30))), seal=seal)
    done = subprocess.run(
        [sys.executable, "-c", GIANT, str(path)], capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("found [(0, 1073741824, '07')]") == 2


def test_messages_that_are_too_large_are_refused(spark: Any, tmp_path: Path) -> None:
    path = record(tmp_path / "r", ("a", 1, rows(0, 2, encode=lambda n: bytes(3 << 20))))
    assert load(spark, path, maxPayload="4MiB").count() == 2
    with pytest.raises(Exception, match=r"a message of 3,145,728 bytes, more than the 1,048,576 of maxPayload"):
        load(spark, path, maxPayload="1MiB").count()


def test_an_incident_of_a_flight_recording(spark: Any, tmp_path: Path) -> None:
    """What `Recording` gives of it, sealed or not, by both ways of reading; and the incidents of each row."""
    path = tmp_path / "flights" / "one"
    record(path, ("a", 1, rows(0, 50)), ("a", 1, rows(50, 50)), seal=False)
    record(tmp_path / "flights" / "two", ("a", 2, rows(0, 9)))
    for name, first, end in (("early", 10, 70), ("late", 60, 90)):
        start_ns, end_ns = START_NS + first * 1_000_000, START_NS + end * 1_000_000
        write_incident(path, Incident("", f"1-{name}", name, "x", end_ns, start_ns, end_ns, 0), sync=False)
    found = load(spark, path, incident="late", columns="seq,incidents").orderBy("seq").collect()
    assert [(r["seq"], r["incidents"]) for r in found] == [
        (n, ["1-early", "1-late"] if n < 70 else ["1-late"]) for n in range(60, 90)
    ]
    frame = ringmain.spark.read(spark, str(tmp_path / "flights"), incident="early")
    assert sorted(r["seq"] for r in frame.collect()) == list(range(10, 70)), "of the recording that has it"
    empty = load(spark, path, incidents="true").where("size(incidents) = 0").count()
    assert empty == 20
    assert not any(r["latched"] for r in frame.collect())
    with writer(tmp_path / "keeps") as made:
        made.declare("a", epoch=1, properties=Properties(kept_kinds=1))
        made.append("a", 1, rows(0, 50))
    early = Incident("", "early", "early", "x", end_ns, START_NS + 40_000_000, START_NS + 50_000_000, 0)
    write_incident(tmp_path / "keeps", early, sync=False)
    for frame in (
        load(spark, tmp_path / "keeps", incident="early", columns="seq,latched"),
        ringmain.spark.read(spark, str(tmp_path / "keeps"), incident="early"),
    ):
        assert sorted((r["seq"], r["latched"]) for r in frame.collect()) == [
            (39, True),
            *((n, False) for n in range(40, 50)),
        ]
    with pytest.raises(Exception, match="there is no incident 'crash'; there are 1-early, 1-late"):
        load(spark, tmp_path / "flights", incident="crash").count()
    with pytest.raises(Exception, match="an incident ends: use read, not readStream"):
        spark.readStream.format("ringmain").option("incident", "late").load(str(path)).writeStream.format(
            "noop"
        ).trigger(availableNow=True).start().awaitTermination()
