"""`ringmain top`: the model with made-up topics, the view and the app's screen by comparison with golden texts, the app
driven by its keys, and once for real in a terminal (tmux), on real topics whose rosters must show that nobody joined.

The golden texts are renewed with RINGMAIN_GOLDEN=1.
"""

from __future__ import annotations

import asyncio
import html
import itertools
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy
import pytest

import ringmain as rm
from ringmain._cli.live.model import HISTORY, Model, Seen
from ringmain._cli.live.picture import half_blocks, shades
from ringmain._cli.live.source import Topics
from ringmain._cli.live.view import (
    HEADS,
    bar,
    cells,
    details,
    frame_text,
    incidents_text,
    messages_text,
    sparkline,
    status_line,
    tone,
)
from ringmain._cli.observe import Reading
from ringmain._cli.text_format import table
from ringmain._message import Message
from ringmain.frames._thumbnail import thumbnail
from ringmain.recording import RecordingWriter
from ringmain.recording._upkeep.incidents import Incident, write_incident
from tests.cli.conftest import Imu

GOLDEN = Path(__file__).parent / "golden"


def same_as_golden(name: str, text: str) -> None:
    if os.environ.get("RINGMAIN_GOLDEN"):
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


def participant(name, role, **facts):
    base = dict.fromkeys(("position", "lag_messages", "lag_bytes", "messages", "bytes", "lost", "user", "joined_ns"), 0)
    more = {"pid": 7, "holding": False, "alive": True, "waits_for": None}
    return rm.Participant(name=name, role=role, **{**base, **more, **facts})


def topic(name, sequence, *, used=0, contract="broadcast", writers=(), readers=()):
    return rm.TopicInfo(name, contract, 1 << 20, used, sequence, 1, False, None, list(writers), list(readers))


def look(model, second, *topics):
    """One look at these topics, at a time in seconds."""
    model.look([seen_at(second, t) for t in topics])


def seen_at(second, topic):
    count = topic.next_sequence
    reading = Reading(int(second * 1e9), 1, count, 0, {(0, 1): (count, 100 * count)})
    return Seen(topic, reading, STREAMS.get(topic.name))


STREAMS = {
    "camera": rm.FrameTopic("camera", rm.FrameLayout.of_image("rgb", 640, 480), 4, 921_600, 120, 0, 30.0, True,
                             {"show (7)": 1}, 1)
}  # fmt: skip


def busy_looks():
    """Topics as five looks find them: one steady, one with a reader that is lapped, one whose writer waits."""
    camera = participant("camera", "writer")
    for second in range(5):
        slow = participant("dashboard", "reader", lag_messages=900, lag_bytes=600_000, lost=100 * second)
        stuck = participant("arm", "reader", lag_messages=8, lag_bytes=1 << 20)
        dead = participant("old", "reader", alive=False)
        yield second, [
            topic("camera", 30 * second, used=1 << 19, writers=[camera], readers=[participant("show", "reader")]),
            topic("imu", 200 * second * second, writers=[participant("imu", "writer")], readers=[slow]),
            topic("jobs", 8, used=1 << 20, contract="reliable",
                  writers=[participant("boss", "writer", waits_for="arm")], readers=[stuck, dead]),
        ]  # fmt: skip


def busy_model():
    model = Model()
    for second, topics in busy_looks():
        look(model, second, *topics)
    return model


def test_rates_come_from_two_looks():
    model = Model()
    look(model, 0, topic("t", 100))
    assert model.rows()[0].rate_hz == 0
    look(model, 2, topic("t", 300))
    row = model.rows()[0]
    assert (row.rate_hz, row.bytes_per_s, row.rates) == (100, 10_000, (100,))


def test_sort_filter_and_forgetting():
    model = busy_model()
    assert [row.info.name for row in model.rows()] == ["camera", "imu", "jobs"]
    model.sort = "rate"
    assert [row.info.name for row in model.rows()] == ["imu", "camera", "jobs"]
    model.sort = "full"
    assert model.rows()[0].info.name == "jobs"
    model.sort = "lost"
    assert model.rows()[0].info.name == "imu"
    model.filter = "CAM"
    assert [row.info.name for row in model.rows()] == ["camera"]
    model.filter = ""
    look(model, 9, topic("new", 1))
    assert [row.info.name for row in model.rows()] == ["new"]
    for second in range(10, 100):
        look(model, second, topic("new", second))
    assert len(model.rows()[0].rates) == HISTORY


def test_a_pause_shows_what_was():
    model = busy_model()
    model.paused = True
    look(model, 9, topic("new", 1))
    assert [row.info.name for row in model.rows()] == ["camera", "imu", "jobs"]


def test_sparkline():
    assert sparkline([]) == " " * 12
    assert sparkline([0, 1, 4, 8], 4) == " ▁▄█"
    assert sparkline([0, 0], 2) == "  "


def test_a_bar():
    assert [bar(share, 2) for share in (0, 0.25, 0.5, 1)] == ["     0%", "▌   25%", "█   50%", "██ 100%"]


def without_time_of_day(text: str) -> str:
    return re.sub(r"\d\d:\d\d:\d\d\.\d{6}", "HH:MM:SS.ffffff", text)


NEWEST = [Message({"x": 1.5, "y": [1, 2]}, 41, 0, "boss"), Message(b"hello", 42, 0, lost=0)]


def test_the_view_is_what_it_was():
    model = busy_model()
    shown = table(HEADS, [cells(row) for row in model.rows()])
    opened = [details(model.row(name), 3_000_000_001) for name in ("jobs", "camera")]
    text = "\n\n".join([status_line(model), shown, *opened, messages_text(NEWEST)]) + "\n"
    same_as_golden("top.txt", without_time_of_day(text))


class MadeUp:
    """A source of topics that do not exist, with a picture of two halves."""

    def __init__(self) -> None:
        self.looks = busy_looks()

    def look(self):
        second, topics = next(self.looks)
        return [seen_at(second, topic) for topic in topics]

    def incidents(self):
        return {}

    def newest(self, topic, count):
        return NEWEST

    def newest_frame(self, stream):
        return Copy(STREAMS["camera"].layout, lambda array: array[:, 320:].fill(255))


class Copy:
    """A frame as `peek_frame` gives it."""

    def __init__(self, layout, paint):
        self._frame = numpy.zeros(layout.size, "u1")
        self.layout, self.id, self.valid, self.meta = layout, 7, True, {"iso": 100}
        self.start_ns, self.end_ns, self.seq, self.time_ns, self.sender = 0, 16_000_000, 119, 0, "camera"
        if paint:
            paint(self.array)

    def view(self, view):
        return numpy.ndarray(view.shape, view.dtype, self._frame, view.offset, view.strides or None)

    @property
    def array(self):
        return self.view(self.layout.array)

    def plane(self, name):
        return self.view(self.layout.planes[name])


def screen_text(app) -> str:
    """What the app shows, line by line, out of the picture that it makes of itself."""
    lines: dict[float, dict[float, str]] = {}
    for x, y, words in re.findall(
        r'<text class="[^"]*-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', app.export_screenshot()
    ):
        lines.setdefault(float(y), {})[float(x)] = html.unescape(words).replace("\xa0", " ")
    drawn = []
    for _, parts in sorted(lines.items()):
        line = ""
        for x, words in sorted(parts.items()):
            line = line.ljust(round(x / 12.2)) + words  # the width of a character in the SVG
        drawn.append(line.rstrip())
    return without_time_of_day("\n".join(drawn) + "\n")


def test_the_screens_are_what_they_were():
    """Sorted by loss, then the camera opened: two whole screens."""
    pytest.importorskip("textual")
    from ringmain._cli.live.app import LiveView

    async def drive() -> tuple[str, str]:
        app = LiveView(MadeUp(), interval_s=3600)
        app.model.sort = "lost"
        async with app.run_test(size=(150, 24)) as pilot:
            for _ in range(4):
                app.refresh_now()
            await pilot.pause()
            topics = screen_text(app)
            await pilot.press("down", "enter")
            await pilot.pause()
            return topics, screen_text(app)

    topics, opened = asyncio.run(drive())
    same_as_golden("top_topics.txt", topics)
    same_as_golden("top_camera.txt", re.sub(r"\d+ d ago", "many d ago", opened))


def test_it_says_who_waits_and_who_is_lapped():
    rows = {row.info.name: cells(row)[-1] for row in busy_model().rows()}
    assert rows == {"camera": "", "imu": "dashboard loses 100.0/s", "jobs": "boss waits for arm"}


def test_one_that_waits_may_look_up():
    """A look that finds the writer awake, with nothing sent since, does not take it for having gone on."""
    model = busy_model()
    awake = topic("jobs", 8, used=1 << 20, contract="reliable", writers=[participant("boss", "writer")])
    look(model, 5, awake)
    assert cells(model.rows()[0])[-1] == "boss waits for arm"
    look(model, 6, topic("jobs", 9, contract="reliable", writers=[participant("boss", "writer")]))
    assert cells(model.rows()[0])[-1] == ""


def test_trouble_has_a_colour():
    assert {row.info.name: tone(row) for row in busy_model().rows()} == {"camera": "", "imu": "bad", "jobs": "bad"}


def halves(array):
    """Dark at the left, bright at the right."""
    array[:, array.shape[1] // 2 :] = 255


def test_an_image_is_shown_as_one():
    image = numpy.zeros((32, 64), "u1")
    halves(image)
    pixels = thumbnail(image)
    assert pixels.shape == (32, 64, 3), "it is small enough as it is"
    drawn = half_blocks(pixels)
    assert len(drawn) == 16, "two pixels a character"
    assert drawn[0][0] == ("#000000", "#000000")
    assert drawn[0][-1] == ("#ffffff", "#ffffff")
    lines = shades(pixels)
    assert set(lines) == {" " * 32 + "@" * 32}


@pytest.mark.parametrize("shape", [(480, 640), (1080, 1920, 3), (900, 300, 4), (9, 9), (2000, 2000, 1)])
def test_a_picture_fits_and_keeps_its_proportions(shape):
    height, width, _ = thumbnail(numpy.zeros(shape, "u1"), 80, 22).shape
    assert width <= 80
    assert height <= 44
    assert height % 2 == 0
    assert height / width == pytest.approx(shape[0] / shape[1], rel=0.15)


@pytest.mark.parametrize(
    ("format", "colour"),
    [("gray", "#c8c8c8"), ("rgb", "#c86400"), ("bgr", "#0064c8"), ("rgba", "#c86400"), ("bgra", "#0064c8")],
)
def test_the_order_of_colours(format, colour):
    def paint(array):
        array[:] = 200 if array.ndim == 2 else (200, 100, 0, 255)[: array.shape[2]]

    frame = Copy(rm.FrameLayout.of_image(format, 64, 48, stride=256), paint)
    assert half_blocks(thumbnail(frame))[0][0] == (colour, colour)


@pytest.mark.parametrize("format", ["nv12", "nv21", "i420"])
def test_video_has_its_colours(format):
    """Pure red in BT.601: Y 81, U 90, V 240."""
    frame = Copy(rm.FrameLayout.of_image(format, 64, 48, stride=96), None)
    frame.plane("y")[:] = 81
    for plane in frame.layout.planes:
        if plane != "y":
            frame.plane(plane)[:] = {"uv": (90, 240), "vu": (240, 90), "u": 90, "v": 240}[plane]
    red, green, blue = (int(value) for value in thumbnail(frame)[0, 0])
    assert red > 250
    assert max(green, blue) < 5


def test_what_is_not_bytes_is_stretched():
    depth = numpy.full((32, 32), 1.0, "f4")
    halves(depth)
    depth[0, 0] = numpy.nan
    pixels = thumbnail(depth)
    assert pixels[5, 2, 0] < 5
    assert pixels[5, 30, 0] == 255
    assert thumbnail(numpy.full((32, 32), 7, "u2")).max() == 0, "all the same is not an error"


def test_what_is_no_image_is_not_shown_as_one():
    for other in (numpy.zeros(3), numpy.zeros((4, 4), "u1"), numpy.zeros((9, 9, 7)), b"bytes", {"a": 1}, None):
        assert thumbnail(other) is None
    assert "none" in frame_text(None)


def test_incidents_of_a_flight_recorder(tmp_path):
    store, now_ns = tmp_path / "flight", 10**18
    RecordingWriter(store).close()
    assert incidents_text(Topics([str(store)]).incidents(), now_ns) == f"{store}: no incidents"
    for n, end in ((1, 0), (2, -1)):
        at_ns = now_ns - 10**9 * (10 - n)
        one = Incident("", f"i{n}", "hard", "when imu: ax > 9 on imu", at_ns, at_ns, at_ns + 1, 0, end_segment=end)
        write_incident(store, one, sync=False)
    said = incidents_text(Topics([str(store), "nowhere"]).incidents(), now_ns).splitlines()
    assert said[0] == f"{store}: 2 incidents  ·  1 not over  ·  8 s ago: when imu: ax > 9 on imu"
    assert said[1] == "nowhere: no recording there yet"
    pytest.importorskip("textual")
    from ringmain._cli.live.app import LiveView

    async def drive() -> str:
        app = LiveView(Topics([str(store)]), interval_s=3600)
        async with app.run_test(size=(150, 24)) as pilot:
            await pilot.pause()
            return screen_text(app)

    assert "2 incidents  ·  1 not over" in asyncio.run(drive())


def test_observing_takes_no_slot():
    with rm.Publisher("t", contract="pipe", type=Imu) as pub:
        pub.send(Imu(1, (0, 0, 9.8)))
        source = Topics()
        assert [seen.info.name for seen in source.look()] == ["t"]
        assert source.newest("t", 5)[0].data["time"] == 1
        assert source.newest("gone", 5) == []
        assert rm.info("t").readers == []
    rm.unlink("t")


def test_observing_frames_takes_no_slot_and_holds_nothing():
    layout = rm.FrameLayout.of_image("rgb", 64, 48)
    with rm.FramePublisher("camera", layout=layout, buffers=1, when_full="drop", sender="left") as pub:
        source = Topics()
        assert source.newest_frame("camera") is None
        for number in range(3):
            with pub.frame(0) as draft:
                draft.array[:] = (number, 0, 255)
            assert half_blocks(thumbnail(source.newest_frame("camera")))[0][0] == (f"#{number:02x}00ff",) * 2
        (seen,) = source.look()
        assert seen.frames.frames == 3
        assert seen.frames.dropped == 0, "with a single buffer: whoever held it would cost a frame"
        assert seen.frames.held == {}
        assert rm.info("camera").readers == []
    assert source.newest_frame("camera") is None, "gone, and no error"


def test_the_app_by_its_keys():
    """Filter, sort, open and go back, on a real topic."""
    pytest.importorskip("textual")
    from textual.widgets import DataTable

    from ringmain._cli.live.app import LiveView, TopicScreen

    async def drive() -> None:
        app = LiveView(Topics(), interval_s=3600)
        async with app.run_test(size=(160, 30)) as pilot:
            shown = app.query_one(DataTable)
            assert shown.row_count == 2
            await pilot.press("s")
            assert app.model.sort == "rate"
            await pilot.press("slash", "i", "m", "u", "enter")
            assert shown.row_count == 1
            await pilot.press("enter")
            await pilot.pause()
            assert isinstance(app.screen, TopicScreen)
            app.refresh_now()
            assert "imu: broadcast, Imu" in str(app.screen.details.render())
            assert "time: 1.0" in str(app.screen.messages.render())
            await pilot.press("escape")
            await pilot.press("p")
            assert app.model.paused
            await pilot.press("q")
        assert app.return_code == 0

    with rm.Publisher("imu", type=Imu) as pub, rm.Publisher("other"):
        pub.send(Imu(1, (0, 0, 9.8)))
        asyncio.run(drive())


class Forever(MadeUp):
    """The made-up topics, again and again."""

    def __init__(self) -> None:
        self.looks = itertools.cycle(list(busy_looks()))


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("keys", [("escape", "ctrl+c"), ("ctrl+c",), ("q", "q")])
def test_a_refresh_at_any_moment_does_no_harm(monkeypatch, keys, paused):
    """A topic is opened and left, then the app. It refreshes before and after each widget is made and ended."""
    pytest.importorskip("textual")
    from textual.message_pump import MessagePump
    from textual.widget import Widget

    from ringmain._cli.live.app import LiveView, TopicScreen

    app = LiveView(Forever(), interval_s=3600)
    moments: list[str] = []

    def refreshing(step):
        async def around(widget, **options):
            for when in ("before", "after"):
                if is_open:
                    app.refresh_now()
                    moments.append(f"{when} {step.__name__} {widget!r}")
                if when == "before":
                    await step(widget, **options)

        return around

    is_open = False

    async def drive() -> None:
        nonlocal is_open
        async with app.run_test(size=(150, 24)) as pilot:
            app.model.paused = paused
            is_open = True
            await pilot.press("enter")
            await pilot.pause()
            assert isinstance(app.screen, TopicScreen)
            assert "camera" in str(app.screen.details.render())
            await pilot.press(*keys)
        assert app.return_code == 0

    monkeypatch.setattr(Widget, "_compose", refreshing(Widget._compose))
    monkeypatch.setattr(MessagePump, "_close_messages", refreshing(MessagePump._close_messages))
    asyncio.run(drive())
    for moment in (
        "before _compose VerticalScroll",
        "after _close_messages Static(id='details'",
        "after _close_messages",
    ):
        assert any(moment in each for each in moments), f"no refresh {moment}"


@pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here")
@pytest.mark.parametrize("last", ["q", "C-c"])
def test_in_a_real_terminal(runtime_dir, terminal, last):
    pytest.importorskip("textual")
    where = f"COLORTERM=truecolor RINGMAIN_DIR={shlex.quote(str(runtime_dir))}"
    command = f"{where} {shlex.quote(sys.executable)} -m ringmain top --interval 0.1"
    layout = rm.FrameLayout.of_image("rgb", 64, 48)
    with rm.Publisher("imu", type=Imu, sender="left") as pub, rm.FramePublisher("road", layout=layout) as camera:
        pub.send(Imu(1, (0, 0, 9.8)))
        with camera.frame(0) as draft:
            draft.array[:] = (12, 34, 56)
        screen = terminal(f"{command}; echo ended $?; cat", 170, 40)
        screen.until("imu", "broadcast", "Imu", "2 topics", "frames rgb 64x48")
        screen.type("", "Enter")
        screen.until("newest messages", "left", "time: 1.0")
        assert rm.info("imu").readers == [], "it watches from outside"
        screen.type("", "Escape")
        screen.until("2 topics")
        screen.type("", "Down", "Enter")
        screen.until("newest frame", "▀▀▀▀")
        assert "38;2;12;34;56" in screen.text(colours=True), "in the frame's own colours"
        assert rm.info("road").readers == []
        screen.type("", "Escape")
        screen.until("2 topics")
        screen.type("", last)
        screen.until("ended 0")


def test_without_a_terminal_it_says_what_to_use(ringmain):
    ended = ringmain("top")
    assert ended.code == 1
    assert "needs a terminal" in ended.err
