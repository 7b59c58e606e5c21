"""The report page, in a real browser: headless Chromium opens it from disk, with the network forbidden.

The lake is made directly, as gold's tables with known numbers in them: a topic that loses messages, a healthy one, one
that stops half-way, and names that would break a careless page. The test reads the page as a user would. Set
RINGMAIN_SCREENSHOTS to a directory to look at it, light, dark and on a phone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from ringmain.errors import LakeError
from ringmain.lake import Lake, report
from ringmain.lake._report import numbers
from ringmain.lake._tables import Change

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TIME = pa.timestamp("us", "UTC")
HOSTILE = "</script><script>document.title='broken'</script>"


def health(
    topic: str, recorder: str, windows: range, hz: float, lost: Any = lambda n: 0, epoch: int = 1
) -> list[dict[str, Any]]:
    start = datetime(2026, 1, 2, 3, tzinfo=UTC)
    return [
        {
            "window_start": start + timedelta(seconds=10 * n),
            "window_end": start + timedelta(seconds=10 * n + 10),
            "topic": topic, "epoch": epoch, "recorder": f"{recorder}-1", "host": recorder, "messages": int(hz * 10),
            "bytes": int(hz * 1000), "rate_hz": hz, "bytes_per_s": hz * 100,
            "latency_p50_ms": 1.0 + n % 5, "latency_p99_ms": 5.0 + n % 7,
            "latency_p999_ms": 9.0, "latency_max_ms": 20.0,
            "latency_min_ms": -3.0 if topic == "imu" else 0.1, "jitter_ms": 0.4, "lost": lost(n),
            "gaps": int(lost(n) > 0), "late": 0, "out_of_order": 0,
        }
        for n in windows
    ]  # fmt: skip


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    rows = health("imu", "host-a", range(360), hz=1000)
    rows += health("camera/front", "host-a", range(360), hz=30, lost=lambda n: 40 if 100 <= n < 130 else 0)
    rows += health("camera/front", "host-b", range(360), hz=30)
    rows += health("arm/joint_states", "host-b", range(180), hz=250, lost=lambda n: 5 if n == 90 else 0)
    senders = [
        {"window_start": r["window_start"], "topic": r["topic"], "sender": HOSTILE if r["topic"] == "imu" else "driver",
         "recorder": r["recorder"], "host": r["host"], "messages": r["messages"], "bytes": r["bytes"],
         "longest_silence_ms": 12.5, "last_time": r["window_end"]}
        for r in rows
    ]  # fmt: skip
    reasons = [
        {"window_start": rows[n]["window_start"], "topic": "imu", "epoch": 1, "reason": HOSTILE, "messages": 2}
        for n in (3, 7)
    ]
    made = Lake(str(tmp_path / "lake"))
    tables = {"gold/topic_health": rows, "gold/senders": senders, "gold/quarantine": reasons}
    for name, table in tables.items():
        found = pa.Table.from_pandas(pd.DataFrame(table), preserve_index=False)
        found = found.cast(pa.schema([f.with_type(TIME) if pa.types.is_timestamp(f.type) else f for f in found.schema]))
        written = made.write(name, 0, found)
        assert made.commit(name, 0, lambda _, found=found, written=written: Change(found.schema, [written]))
    return tmp_path / "lake"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as p:
        opened = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


def open_page(browser: Any, path: Path, *, width: int = 1200, dark: bool = False) -> tuple[Any, list[str]]:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", offline=True
    )
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: problems.append(request.url) if not request.url.startswith("file:") else None)
    page.goto(path.as_uri())
    return page, problems


def test_the_page_says_what_is_in_the_lake(browser: Any, lake: Path, tmp_path: Path) -> None:
    path = report(lake, tmp_path / "report.html", title="night shift")
    assert path.stat().st_size < 400_000
    page, problems = open_page(browser, path)
    assert page.title() == "ringmain: night shift"
    assert "2026-01-02 03:00:00 to 2026-01-02 04:00:00 UTC" in page.text_content("#range")
    topics = page.eval_on_selector_all(
        "#topics tbody tr", "rows => rows.map(r => [...r.cells].map(c => c.textContent))"
    )
    assert [row[0] for row in topics] == ["camera/front", "arm/joint_states", "imu"]  # the worst first
    assert topics[0][1:3] == ["1,200", "1.10 %"]
    readers = page.eval_on_selector_all(
        "#readers tbody tr", "rows => rows.map(r => r.cells[0].textContent + r.cells[2].textContent)"
    )
    assert readers[0] == "host-a-11,200"
    hosts = page.eval_on_selector_all("#hosts tbody tr", "rows => rows.map(r => [...r.cells].map(c => c.textContent))")
    assert hosts[0] == ["host-a", "host-a-1", "2", "3.7M", "353.6 MiB", "1,200", "0", "0", "3"]
    assert hosts[1][-2:] == ["0", "0"]
    assert "up to 3 ms before they were published" in page.text_content("#clocks")
    assert topics[1][-1] == "30 min"  # arm/joint_states stops half-way
    assert HOSTILE[:40] in page.text_content("#reasons")
    assert "03:00:30" in page.text_content("#reasons")
    assert HOSTILE in page.text_content("#senders")
    assert page.text_content("#verdict").startswith(
        "1,205 of 4.2M messages were lost (0.03 %). The worst topic is camera/"
    )
    assert page.eval_on_selector_all("#timeline text", "all => all.map(t => t.textContent)")[-7:] == [
        "03:00", "03:10", "03:20", "03:30", "03:40", "03:50", "04:00",
    ]  # fmt: skip
    for drawing in ("timeline", "rate", "latency", "heat"):
        assert page.eval_on_selector(f"#{drawing} svg", "svg => svg.getBoundingClientRect().height") > 50
    lossy = page.eval_on_selector_all(
        "#heat g",
        "groups => groups.map(g => [...g.children].filter(r => parseFloat(r.getAttribute('opacity')) < 1).length)",
    )
    assert lossy[0] > 5 > lossy[1] >= 1 > lossy[2]
    assert problems == []
    page.context.close()


def test_topics_can_be_chosen_and_the_theme_changed(browser: Any, lake: Path, tmp_path: Path) -> None:
    page, problems = open_page(browser, report(lake, tmp_path / "report.html"))
    before = page.eval_on_selector("#rate", "node => node.querySelectorAll('path').length")
    page.click("#chips button:has-text('imu')")
    assert page.eval_on_selector("#rate", "node => node.querySelectorAll('path').length") == before - 1
    light = page.eval_on_selector("body", "body => getComputedStyle(body).backgroundColor")
    page.click("#theme")
    assert page.eval_on_selector("body", "body => getComputedStyle(body).backgroundColor") != light
    page.hover("#rate svg")
    assert page.eval_on_selector("#tip", "tip => tip.style.display") == "block"
    assert problems == []
    page.context.close()


@pytest.mark.parametrize(
    ("name", "width", "dark"), [("light", 1200, False), ("dark", 1200, True), ("phone", 375, False)]
)
def test_fits_the_screen(browser: Any, lake: Path, tmp_path: Path, name: str, width: int, dark: bool) -> None:
    """Nothing sticks out to the side; wide tables scroll in their own frame."""
    page, problems = open_page(browser, report(lake, tmp_path / "report.html"), width=width, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert problems == []
    if os.environ.get("RINGMAIN_SCREENSHOTS"):
        page.screenshot(path=f"{os.environ['RINGMAIN_SCREENSHOTS']}/{name}.png", full_page=True)
    page.context.close()


def test_an_empty_lake_is_told(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="run the pipeline first"):
        report(tmp_path, tmp_path / "report.html")


def test_a_fleet_adds_up() -> None:
    """Twenty hosts that each have a topic of this name, two recorders on one of them: other lives are other messages,
    other recorders of one life are not."""
    rows = [row for host in range(20) for row in health("imu", f"host-{host}", range(6), hz=100, epoch=host)]
    rows += health("imu", "host-0b", range(6), hz=90, lost=lambda n: 100, epoch=0)
    found = numbers(pd.DataFrame(rows), None)
    (topic,) = found["topics"]
    assert (topic["messages"], topic["lost"]) == (20 * 6000, 600)
    assert len(found["hosts"]) == 21
    assert found["hosts"][0] == {
        "host": "host-0b", "recorder": "host-0b-1", "topics": 1, "messages": 5400, "bytes": 540_000, "lost": 600,
        "late": 0, "behind_s": 0.0, "early_ms": 3.0,
    }  # fmt: skip
