"""Draw docs/guide/view.png and view-recording.png: the page of `ringmain view` on the demo's robot, live and recorded.

python tools/view_screenshots.py

Chromium draws in software, under Playwright, as the tests of the viewer do; the pictures have few colours, so that they
are small.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.view.conftest import CHROMIUM, SOFTWARE_GL, Page, Viewing, hues, near  # noqa: E402

GUIDE = ROOT / "docs/guide"
PARTS = ("camera", "vision", "imu", "gps", "control")
BALL = (255, 220, 60)
MOST_BYTES = 200_000
RECORDED_S = 6.0
SETTLED_S = 8.0


def small(picture: Any) -> bytes:
    """As PNG with as many colours as fit."""
    for colours in (256, 128, 64):
        out = io.BytesIO()
        picture.quantize(colours).save(out, "PNG", optimize=True)
        if out.tell() <= MOST_BYTES:
            return out.getvalue()
    raise SystemExit(f"a picture of {out.tell():,} bytes is more than {MOST_BYTES:,}")


def draw(browser: Any, name: str, shows: Callable[[Any], bool], *args: str) -> None:
    """The page of `ringmain view ARGS`, once it shows it and has settled."""
    from PIL import Image

    view = Viewing("--port", "0", *args)
    try:
        page = Page(browser, view.url)
        page.until(shows, name)
        time.sleep(SETTLED_S)
        picture = Image.fromarray(page.pixels().astype("u1"))
        (GUIDE / name).write_bytes(small(picture))
        page.close()
    finally:
        view.end("terminate")


def main() -> None:
    from playwright.sync_api import sync_playwright

    import ringmain as rm
    from ringmain._demo.processes import Stage

    if CHROMIUM is None:
        raise SystemExit("no Chromium on this machine (Debian: apt-get install chromium)")
    with (
        tempfile.TemporaryDirectory(prefix="ringmain-screenshots-", dir="/dev/shm") as directory,
        tempfile.TemporaryDirectory() as recorded,
        sync_playwright() as p,
        Stage() as stage,
    ):
        os.environ["RINGMAIN_DIR"] = directory
        stage.start(*PARTS)
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *SOFTWARE_GL])
        draw(browser, "view.png", lambda seen: near(seen, BALL) >= 20 and hues(seen) >= 4)
        with rm.Recorder(f"{recorded}/drive", ["robot/imu", "robot/gps", "robot/target", "robot/command"]):
            time.sleep(RECORDED_S)
        draw(browser, "view-recording.png", lambda seen: hues(seen) >= 4, f"{recorded}/drive")
        browser.close()


if __name__ == "__main__":
    main()
