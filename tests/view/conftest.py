"""`ringmain view` in a process of its own, and its page in a real browser, whose pixels are looked at."""

from __future__ import annotations

import io
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

from tests import forked
from tests.conftest import PATIENCE_S

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# The page draws with WebGL or WebGPU. Without a GPU a program does, which takes it many seconds on two cores.
SOFTWARE_GL = ("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist")
DRAWN_S = 150.0
"""How long a page may take to draw what is looked for. Only a defect makes a test wait that long."""


def until(condition: Callable[[], object]) -> None:
    """Waits for it."""
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)


class Viewing:
    """A running `ringmain view --no-browser`."""

    def __init__(self, *args: str) -> None:
        self.process = forked.Popen(
            [sys.executable, "-m", "ringmain", "view", "--no-browser", *args],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        first: queue.Queue[str] = queue.Queue()
        assert self.process.stdout is not None
        threading.Thread(target=lambda out: first.put(out.readline()), args=[self.process.stdout], daemon=True).start()
        self.url = first.get(timeout=2 * PATIENCE_S).strip()
        assert self.url, self.end()

    def end(self, how: str = "send_signal", *args: Any) -> tuple[int, str]:
        """Exit code, and what it said on stderr."""
        if self.process.poll() is None:
            getattr(self.process, how)(*args)
        _, said = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, said


@pytest.fixture
def viewing() -> Iterator[Callable[..., Viewing]]:
    """Starts `ringmain view`; those that still run at the end are ended."""
    started: list[Viewing] = []

    def start(*args: str) -> Viewing:
        started.append(Viewing("--port", "0", *args))
        return started[-1]

    yield start
    for each in started:
        each.end("terminate")


class Page:
    """A page, as a person sees it."""

    def __init__(self, browser: Any, url: str) -> None:
        self._context = browser.new_context(viewport={"width": 1280, "height": 800})
        self._page = self._context.new_page()
        self._page.goto(url)

    def pixels(self) -> Any:
        """(height, width, 3) as integers."""
        from PIL import Image

        picture = Image.open(io.BytesIO(self._page.screenshot())).convert("RGB")
        return numpy.asarray(picture).astype("i4")

    def until(self, drawn: Callable[[Any], object], what: str) -> Any:
        """The pixels, once they show it."""
        end_s = time.monotonic() + DRAWN_S
        while not drawn(pixels := self.pixels()):
            if time.monotonic() > end_s:
                self._page.screenshot(path="build/not-drawn.png")
                raise AssertionError(f"the page does not show {what}: build/not-drawn.png")
            time.sleep(0.5)
        return pixels

    def close(self) -> None:
        self._context.close()


@pytest.fixture
def open_page() -> Iterator[Callable[[str], Page]]:
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    pages: list[Page] = []
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *SOFTWARE_GL])

        def start(url: str) -> Page:
            pages.append(Page(browser, url))
            return pages[-1]

        yield start
        for page in pages:
            page.close()
        browser.close()


def near(pixels: Any, colour: tuple[int, int, int], off: int = 12) -> int:
    """How many pixels have about that colour."""
    return int((abs(pixels - numpy.array(colour)).max(axis=2) <= off).sum())


def hues(pixels: Any) -> int:
    """How many clearly different colours there are in the middle of the page, where neither menus nor logs are: lines
    of plots have many, text and frames are grey."""
    middle = pixels[60:600, 210:1270]
    high, low = middle.max(axis=2), middle.min(axis=2)
    red, green, blue = (middle[high - low > 70] @ numpy.eye(3, dtype="i4")).T
    top = numpy.maximum(numpy.maximum(red, green), blue)
    span = top - numpy.minimum(numpy.minimum(red, green), blue)
    hue = numpy.where(
        top == red,
        (green - blue) / span % 6,
        numpy.where(top == green, (blue - red) / span + 2, (red - green) / span + 4),
    )
    return int((numpy.bincount((hue * 2).astype(int), minlength=12) >= 30).sum())
