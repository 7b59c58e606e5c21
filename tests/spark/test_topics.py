"""Spark and live rings: the sink publishes rows as messages, mode=live reads a ring.

Topics and subscribers are real; Spark's workers publish from their own processes on the same machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import ringmain as rm
from ringmain.recording import COLUMNS
from ringmain.spark import RepeatFilter
from ringmain.spark._sink import Roles


class Plan(msgspec.Struct):
    step: int
    goal: str | None = None


def receive(sub: rm.Subscriber, count: int) -> list[Any]:
    return [sub.recv_message(timeout=60) for _ in range(count)]


def test_which_columns_are_fields() -> None:
    """Those that are not ours. A frame that is not decoded has a payload, and nothing of it is left out silently."""
    assert Roles.of(["topic", "kind", "x", "rm_topic", "rm_seq"]) == ("rm_topic", None, None, ["topic", "kind", "x"])
    assert Roles.of(["size", "rm_kind", "rm_payload"]) == (None, "rm_kind", None, ["size"])
    assert Roles.of(["rm_kind", "rm_payload"]) == (None, "rm_kind", "rm_payload", [])
    assert Roles.of(["payload", "rm_topic"]) == ("rm_topic", None, None, ["payload"])
    assert Roles.of([*COLUMNS, "host", "segment", "row"]) == ("topic", "kind", "payload", [])
    assert Roles.of(["topic", "x"]) == (None, None, None, ["topic", "x"])
    with pytest.raises(ValueError, match="so x, y would not be sent: drop that, or, if payload is a field like"):
        Roles.of(["topic", "payload", "x", "y"])


def test_rows_become_messages_in_order(spark: Any, runtime_dir_of_session: Path) -> None:
    frame = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) as payload", "concat('k', id % 2) as kind")
    with rm.Publisher("out", contract="bus", capacity="1MiB"), rm.Subscriber("out", start="oldest") as sub:
        frame.write.format("ringmain").option("topic", "out").mode("append").save()
        got = receive(sub, 100)
    by_partition: dict[str, list[int]] = {}
    for message in got:
        _, query, batch, partition, _attempt = message.sender.split("/")
        assert (len(query), batch) == (8, "0")
        assert message.kind == f"k{int(message.data) % 2}"
        by_partition.setdefault(partition, []).append(int(message.data))
    assert by_partition == {"0": list(range(50)), "1": list(range(50, 100))}


def test_columns_become_a_type(spark: Any, runtime_dir_of_session: Path) -> None:
    frame = spark.sql("select 7L as step, 'left' as goal union all select 8L, null").coalesce(1)
    with rm.Publisher("plan", type=Plan, contract="bus"), rm.Subscriber("plan", type=Plan, start="oldest") as sub:
        frame.write.format("ringmain").option("topic", "plan").mode("append").save()
        assert [m.data for m in receive(sub, 2)] == [Plan(7, "left"), Plan(8, None)]


def test_a_stream_says_which_batch(spark: Any, runtime_dir_of_session: Path, tmp_path: Path) -> None:
    """The same micro-batches with the checkpoint's last commit taken away, as after a crash: repeats are told apart."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).option("numPartitions", 1).load()
    frame = source.selectExpr("cast(value as string) as payload")
    repeats, fresh = RepeatFilter(), []
    with rm.Publisher("s", contract="bus", capacity="1MiB"), rm.Subscriber("s", start="oldest") as sub:
        for attempt in range(2):
            query = (
                frame.writeStream.format("ringmain").option("topic", "s")
                .option("checkpointLocation", str(tmp_path / "check")).start()
            )  # fmt: skip
            try:
                fresh += [int(m.data) for m in receive(sub, 10) if repeats.is_new(m.sender)]
            finally:
                query.stop()
            while (more := sub.try_recv_message()) is not None:
                if repeats.is_new(more.sender):
                    fresh.append(int(more.data))
            if attempt == 0:
                last = max((tmp_path / "check" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
                last.unlink()
                (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    assert fresh == list(range(len(fresh)))
    assert len(fresh) >= 10


def test_repeats_are_dropped_by_counting() -> None:
    repeats = RepeatFilter()
    first = [repeats.is_new("spark/q/3/0/11") for _ in range(3)]  # dies after three
    again = [repeats.is_new("spark/q/3/0/12") for _ in range(5)]
    other = repeats.is_new("spark/q/3/1/13"), repeats.is_new("somebody else"), repeats.is_new("spark/q/4/0/14")
    assert (first, again, other) == ([True] * 3, [False] * 3 + [True] * 2, (True, True, True))


def test_the_sink_teaches(spark: Any, runtime_dir_of_session: Path) -> None:
    frame = spark.sql("select 1 as payload")
    with pytest.raises(Exception, match="which topic"):
        frame.write.format("ringmain").mode("append").save()
    with pytest.raises(Exception, match="payload must be binary or string"):
        frame.write.format("ringmain").option("topic", "x").mode("append").save()


def test_live_reads_the_ring_and_counts_what_it_missed(
    spark: Any, runtime_dir_of_session: Path, tmp_path: Path
) -> None:
    """Two looks at a small ring, with far more messages in between than it holds: the gap is in the `lost` column, and
    seen + lost is what was sent."""
    seen: list[tuple[int, int]] = []
    with rm.Publisher("live", capacity="64KiB") as pub:
        for n in range(10):
            pub.send(b"%d" % n)
        snapshot = spark.read.format("ringmain").option("mode", "live").option("topic", "live").load()
        assert sorted(int(bytes(r.payload)) for r in snapshot.collect()) == list(range(10))

        def keep(frame: Any, batch: int) -> None:
            seen.extend((r.seq, r.lost) for r in frame.orderBy("seq").collect())
            if batch == 0:
                for n in range(10, 5000):
                    pub.send(b"%0100d" % n)

        query = (
            spark.readStream.format("ringmain").option("mode", "live").option("topic", "live").load()
            .writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "check")).start()
        )  # fmt: skip
        try:
            for _ in range(200):
                query.awaitTermination(1)
                if seen and seen[-1][0] == 4999:
                    break
        finally:
            query.stop()
    assert [s for s, _ in seen[:10]] == list(range(10))
    assert seen[-1][0] == 4999
    assert len(seen) < 5000
    assert len(seen) + sum(lost for _, lost in seen) == 5000
