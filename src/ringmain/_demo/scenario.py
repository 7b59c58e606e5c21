"""The steps of the demo, and a table at the end. Every statement is checked before it is printed."""

from __future__ import annotations

import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import ringmain as rm
from ringmain._cli.text_format import Right, bytes_text, duration_text, table
from ringmain._demo.messages import CAMERA, COMMAND, GPS, IMU, TOPICS, Command
from ringmain._demo.narrator import Narrator
from ringmain._demo.processes import PARTS, Stage
from ringmain.errors import TopicNotFound
from ringmain.recording import Recorder, Recording

QUERY = (
    "select topic, sum(messages) as messages, sum(lost) as lost, round(max(latency_p99_ms), 2) as worst_p99_ms "
    "from topic_health group by topic order by topic"
)


def sent(topic: str) -> int:
    """The number of messages sent on a topic. 0 if it does not exist."""
    with suppress(TopicNotFound):
        return rm.info(topic).next_sequence
    return 0


def lost_by(name: str) -> int:
    """The number of messages that a reader of the IMU has lost."""
    with suppress(TopicNotFound):
        return sum(reader.lost for reader in rm.info(IMU).readers if reader.name == name)
    return 0


def run_robot(recording: Path, seconds: float, tell: Narrator) -> None:
    """Runs the robot and records it, from the first message until the last process ends."""
    with Recorder(recording, TOPICS, observe=True, readers=True), Stage() as stage:
        stage.start(*PARTS)
        stage.until("all topics", lambda: all(sent(topic) > 0 for topic in TOPICS))
        tell.say(f"{len(PARTS)} processes, {len(TOPICS)} topics, all recorded by an observer")
        _show_frames(stage, tell)
        _drive(stage, seconds / 3, "driving", tell)
        _show_loss(stage, tell)
        _show_crash(stage, seconds / 3, tell)
        _drive(stage, seconds / 3, "driving", tell)
    tell.say("all processes ended; nothing is left in shared memory")


def _drive(stage: Stage, seconds: float, what: str, tell: Narrator) -> None:
    start = time.monotonic()

    def over() -> bool:
        share = (time.monotonic() - start) / seconds
        tell.progress(what, share)
        return share >= 1

    stage.until("the drive", over)


def _show_frames(stage: Stage, tell: Narrator) -> None:
    stage.until("vision to see a frame", lambda: any(r.messages for r in rm.info(CAMERA).readers if r.name == "vision"))
    frames = rm.frame_topic(CAMERA)
    size = f"{frames.layout.width} x {frames.layout.height}, {bytes_text(frames.layout.size)}"
    tell.say(f"camera frames ({size} each) reach vision without a copy: {frames.buffers} buffers in shared memory")


def _show_loss(stage: Stage, tell: Narrator) -> None:
    stage.until("the dashboard to be lapped", lambda: lost_by("dashboard") > 0)
    lost = lost_by("dashboard")
    tell.say(f"the dashboard is too slow: it was lapped and lost {lost} messages; the IMU did not wait for it")


def _show_crash(stage: Stage, seconds: float, tell: Narrator) -> None:
    with rm.Subscriber(COMMAND, type=Command, name="demo", observe="always") as commands:
        pid = stage.kill("gps")
        before = sent(COMMAND)
        _drive(stage, seconds, "driving without GPS", tell)
        stage.until("control to notice", lambda: _newest(commands) is False)
        after = sent(COMMAND)
        tell.say(f"gps (pid {pid}) killed with SIGKILL: control noticed, and sent {after - before} more commands")
        stage.start("gps")
        stage.until("gps to be back", lambda: _newest(commands) is True)
        tell.say(f"a new gps (pid {stage.pid('gps')}) replaced it on {GPS}; control uses it again")


def _newest(commands: rm.Subscriber) -> bool | None:
    """Does the newest command say that the GPS is alive? None if there is no new command."""
    newest = None
    while (command := commands.try_recv()) is not None:
        newest = command.gps_alive
    return newest


def summary(recording: Path) -> str:
    """What was recorded, as a table."""
    rows = []
    for name, topic in sorted(Recording(recording).topics().items()):
        seconds = max((topic.max_ns - topic.min_ns) / 1e9, 1e-9)
        rate = Right(f"{topic.rows / seconds:.1f}")
        rows.append(
            [name, topic.rows, rate, Right(bytes_text(topic.bytes)), topic.lost, Right(duration_text(seconds * 1e9))]
        )
    return table(("TOPIC", "MESSAGES", "HZ", "BYTES", "LOST", "FOR"), rows)


def run_pipeline(recording: Path, out: Path, tell: Narrator) -> Path | None:
    """Runs the pipeline on the recording, writes the report, asks Spark about the tables. None without Spark."""
    try:
        import_module("pyspark")
        pipeline, lake, spark = (import_module(f"ringmain.{name}") for name in ("pipeline", "lake", "spark"))
    except ImportError as error:
        tell.say(f"no {error.name}, so no Spark part: pip install 'ringmain[spark]'")
        return None
    began = time.monotonic()
    with tell.busy("Spark is starting"):
        session = spark.session(app_name="ringmain demo", brief=True)
    tell.say(f"Spark {session.version} started in {time.monotonic() - began:.1f} s")
    tell.say("it turns the recording into tables: one of each topic, decoded, and statistics over time")
    try:
        with tell.busy("Spark is running"):
            result = pipeline.run(recording, out / "lake", spark=session, window_s=1.0, progress=lambda line: None)
        tell.say(f"row counts are checked: {result}")
        spark.read_lake(session, str(out / "lake"), "gold/topic_health").createOrReplaceTempView("topic_health")
        tell.say(f"Spark SQL: {QUERY}")
        with tell.busy("Spark is running"):
            found = session.sql(QUERY).collect()
    finally:
        session.stop()
    print(f"\n{table(tuple(name.upper() for name in found[0].asDict()), [list(row) for row in found])}\n")
    report: Path = lake.report(out / "lake", out / "report.html", title="ringmain demo")
    return report
