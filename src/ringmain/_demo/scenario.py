"""The demo as a story: what is done, what is to be seen, and a table at the end. Every claim is checked first."""

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


def sent(topic: str) -> int:
    """How many messages a topic has carried in this life; 0 if it is not there."""
    with suppress(TopicNotFound):
        return rm.info(topic).next_sequence
    return 0


def lost_by(name: str) -> int:
    """What a reader of the IMU has lost."""
    with suppress(TopicNotFound):
        return sum(reader.lost for reader in rm.info(IMU).readers if reader.name == name)
    return 0


def run_robot(recording: Path, seconds: float, tell: Narrator) -> None:
    """Runs the robot and records it: everything from the first message to the last process's end."""
    with Recorder(recording, TOPICS, observe=True), Stage() as stage:
        stage.start(*PARTS)
        stage.until("all topics", lambda: all(sent(topic) > 0 for topic in TOPICS))
        tell.say(f"{len(PARTS)} processes, {len(TOPICS)} topics, all being recorded by one that only looks on")
        _show_frames(stage, tell)
        _drive(stage, seconds / 3, "driving", tell)
        _show_loss(stage, tell)
        _show_crash(stage, seconds / 3, tell)
        _drive(stage, seconds / 3, "driving on", tell)
    tell.say("all told to end; nothing is left in shared memory")


def _drive(stage: Stage, seconds: float, what: str, tell: Narrator) -> None:
    start = time.monotonic()

    def over() -> bool:
        share = (time.monotonic() - start) / seconds
        tell.progress(what, share)
        return share >= 1

    stage.until("the drive", over)


def _show_frames(stage: Stage, tell: Narrator) -> None:
    stage.until("vision to see a frame", lambda: any(r.messages for r in rm.info(CAMERA).readers if r.name == "vision"))
    stream = rm.frame_stream(CAMERA)
    size = f"{stream.layout.width} x {stream.layout.height}, {bytes_text(stream.layout.size)}"
    tell.say(f"camera frames ({size} each) go to vision in place: {stream.buffers} buffers, and only a note travels")


def _show_loss(stage: Stage, tell: Narrator) -> None:
    stage.until("the dashboard to be lapped", lambda: lost_by("dashboard") > 0)
    lost = lost_by("dashboard")
    tell.say(f"the dashboard is too slow: lapped, and told that it lost {lost} messages; nobody waited for it")


def _show_crash(stage: Stage, seconds: float, tell: Narrator) -> None:
    with rm.Subscriber(COMMAND, type=Command, name="demo", observe="always") as commands:
        pid = stage.kill("gps")
        before = sent(COMMAND)
        _drive(stage, seconds, "driving without GPS", tell)
        stage.until("control to notice", lambda: _newest(commands) is False)
        after = sent(COMMAND)
        tell.say(f"gps (pid {pid}) killed with -9: control noticed, and went on with {after - before} commands")
        stage.start("gps")
        stage.until("gps to be back", lambda: _newest(commands) is True)
        tell.say(f"another gps (pid {stage.pid('gps')}) took its place on {GPS}; control has it back")


def _newest(commands: rm.Subscriber) -> bool | None:
    """Does the newest command say that the GPS is alive? None: there is none yet."""
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
    """Takes the recording through Spark and writes the report; None if Spark is not installed."""
    try:
        import_module("pyspark")
        pipeline = import_module("ringmain.pipeline")
    except ImportError as error:
        tell.say(f"no {error.name}, so no Spark part: pip install 'ringmain[spark]'")
        return None
    tell.say("the recording goes through Spark: every message, a typed table a topic, their health over time")
    with tell.busy("Spark starts and works"):
        result = pipeline.run(recording, out / "lake", window_s=1.0, progress=lambda line: None)
    tell.say(f"through the pipeline: {result}")
    report: Path = pipeline.report(out / "lake", out / "report.html", title="ringmain demo")
    return report
