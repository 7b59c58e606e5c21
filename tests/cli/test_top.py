"""`ringmain top`: the model with made-up topics, the view by comparison with a golden text, the app driven by its keys,
and once for real in a terminal (tmux), on a real topic whose roster must show that nobody joined.

The golden text is renewed with RINGMAIN_GOLDEN=1.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from pathlib import Path

import numpy
import pytest

import ringmain as rm
from ringmain.cli.live.model import HISTORY, Model
from ringmain.cli.live.source import Topics
from ringmain.cli.live.view import HEADS, cells, details, picture, sparkline, status_line
from ringmain.cli.tables import table
from ringmain.cli.watching import Reading
from ringmain.message import Message
from tests.cli.conftest import Imu

GOLDEN = Path(__file__).parent / "golden/top.txt"


def member(name, role, **facts):
    base = dict.fromkeys(("position", "lag_messages", "lag_bytes", "messages", "bytes", "lost", "user", "joined_ns"), 0)
    more = {"pid": 7, "holding": False, "alive": True, "waits_for": None}
    return rm.Participant(name=name, role=role, **{**base, **more, **facts})


def topic(name, sequence, *, used=0, contract="broadcast", writers=(), readers=()):
    return rm.TopicInfo(name, contract, 1 << 20, used, sequence, 1, False, None, list(writers), list(readers))


def look(model, second, *topics):
    """One look at these topics, at a time in seconds."""
    model.look([
        (t, Reading(int(second * 1e9), 1, t.next_sequence, 0, {(0, 1): (t.next_sequence, 100 * t.next_sequence)}))
        for t in topics
    ])  # fmt: skip


def busy_model():
    """Three topics: one steady, one with a reader that is lapped, one whose writer waits."""
    model = Model()
    camera = member("camera", "writer")
    for second in range(5):
        slow = member("dashboard", "reader", lag_messages=900, lag_bytes=600_000, lost=100 * second)
        stuck = member("arm", "reader", lag_messages=8, lag_bytes=1 << 20)
        dead = member("old", "reader", alive=False)
        look(
            model,
            second,
            topic("camera", 30 * second, used=1 << 19, writers=[camera], readers=[member("show", "reader")]),
            topic("imu", 200 * second * second, writers=[member("imu", "writer")], readers=[slow]),
            topic("jobs", 8, used=1 << 20, contract="reliable",
                  writers=[member("boss", "writer", waits_for="arm")], readers=[stuck, dead]),
        )  # fmt: skip
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


def test_the_view_is_what_it_was():
    model = busy_model()
    shown = table(HEADS, [cells(row) for row in model.rows()])
    newest = [Message({"x": 1.5, "y": [1, 2]}, 41, 0, "boss"), Message(b"hello", 42, 0, lost=0)]
    opened = details(model.row("jobs"), newest, 3_000_000_001)
    text = f"{status_line(model)}\n{shown}\n\n{opened}\n"
    text = "\n".join(line for line in text.splitlines() if not line.startswith("  #")) + "\n"  # local time of day
    if os.environ.get("RINGMAIN_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_it_says_who_waits_and_who_is_lapped():
    rows = {row.info.name: cells(row)[-1] for row in busy_model().rows()}
    assert rows == {"camera": "", "imu": "dashboard is being lapped", "jobs": "boss waits for arm"}


def test_an_image_is_shown_as_one():
    image = numpy.zeros((32, 64), "u1")
    image[:, 32:] = 255
    shown = picture(image)
    assert shown[0] == "uint8[32, 64]"
    assert len(set(shown[1:])) == 1, "every line is the same"
    assert len(shown[1]) == 2 * shown[1].count("@") == 2 * shown[1].count(" "), "dark at the left, bright at the right"
    assert picture(numpy.zeros((32, 64, 3), "u1"))
    for other in (numpy.zeros(3), numpy.zeros((4, 4), "u1"), b"bytes", {"a": 1}):
        assert picture(other) == []


def test_looking_takes_no_place():
    with rm.Publisher("t", contract="pipe", type=Imu) as pub:
        pub.send(Imu(1, (0, 0, 9.8)))
        source = Topics()
        assert [seen.name for seen, _ in source.look()] == ["t"]
        assert source.newest("t", 5)[0].data["time"] == 1
        assert source.newest("gone", 5) == []
        assert rm.info("t").readers == []
    rm.unlink("t")


def test_the_app_by_its_keys():
    """Filter, sort, open and go back, on a real topic."""
    pytest.importorskip("textual")
    from textual.widgets import DataTable, Static

    from ringmain.cli.live.app import LiveView, TopicScreen

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
            text = str(app.screen.query_one("#details", Static).render())
            assert "imu: broadcast, Imu" in text
            assert "time: 1.0" in text
            await pilot.press("escape")
            await pilot.press("p")
            assert app.model.paused
            await pilot.press("q")
        assert app.return_code == 0

    with rm.Publisher("imu", type=Imu) as pub, rm.Publisher("other"):
        pub.send(Imu(1, (0, 0, 9.8)))
        asyncio.run(drive())


@pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here")
def test_in_a_real_terminal(runtime_dir, terminal, until):
    pytest.importorskip("textual")
    command = (
        f"RINGMAIN_DIR={shlex.quote(str(runtime_dir))} {shlex.quote(sys.executable)} -m ringmain top --interval 0.1"
    )
    with rm.Publisher("imu", type=Imu, sender="left") as pub:
        pub.send(Imu(1, (0, 0, 9.8)))
        screen = terminal(f"{command}; echo ended $?; cat", 170, 40)

        def shows(*words: str):
            return lambda: all(word in screen.text() for word in words)

        until(shows("imu", "broadcast", "Imu", "1 topics"))
        screen.type("", "Enter")
        until(shows("newest messages", "left", "time: 1.0"))
        assert rm.info("imu").readers == [], "it watches from outside"
        screen.type("", "Escape")
        until(shows("1 topics"))
        screen.type("q")
        until(shows("ended 0"))


def test_without_a_terminal_it_says_what_to_use(ringmain):
    ended = ringmain("top")
    assert ended.code == 1
    assert "needs a terminal" in ended.err
