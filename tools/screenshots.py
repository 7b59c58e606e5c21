"""Draw docs/guide/top.svg and top-frames.svg: `ringmain top` on the demo's robot, and on a topic that is stuck.

python tools/screenshots.py
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

GUIDE = Path(__file__).resolve().parent.parent / "docs/guide"
PARTS = ("camera", "vision", "imu", "gps", "control", "dashboard")
PLANNER = """
import ringmain as rm
with rm.Publisher("jobs", contract="reliable", capacity=65536, sender="planner") as pub:
    pub.wait_for_readers(1, timeout=60)
    while True:
        pub.send(bytes(2000))
"""
ARM = """
import signal, ringmain as rm
with rm.Subscriber("jobs", name="arm") as jobs:
    signal.pause()
"""


def without_fonts(svg: str) -> str:
    """Nothing is fetched from elsewhere."""
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)


async def draw(size: tuple[int, int], seconds: float, *keys: str) -> str:
    from rich.console import ColorSystem

    from ringmain._cli.live.app import LiveView
    from ringmain._cli.live.source import Topics

    app = LiveView(Topics(), 0.5)
    async with app.run_test(size=size) as pilot:
        app.console._color_system = ColorSystem.TRUECOLOR
        await asyncio.sleep(seconds)
        await pilot.press(*keys)
        await asyncio.sleep(1)
        return without_fonts(app.export_screenshot())


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ringmain-screenshots-", dir="/dev/shm") as directory:
        os.environ["RINGMAIN_DIR"] = directory
        running = [subprocess.Popen([sys.executable, "-m", f"ringmain._demo.{part}"]) for part in PARTS]
        running += [subprocess.Popen([sys.executable, "-c", script]) for script in (PLANNER, ARM)]
        try:
            (GUIDE / "top.svg").write_text(asyncio.run(draw((150, 12), 12)))
            (GUIDE / "top-frames.svg").write_text(asyncio.run(draw((116, 19), 3, "down", "enter")))
        finally:
            for process in running:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
