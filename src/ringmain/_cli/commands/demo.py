"""`ringmain demo`: runs a small robot for about two minutes."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from ringmain._cli.exit_codes import CommandError, Exit, needs
from ringmain._cli.text_format import bold

EXAMPLES = [
    ("everything", "ringmain demo"),
    ("in a few seconds, without Spark", "ringmain demo --fast --no-spark"),
    ("keep the recording, the tables and the report", "ringmain demo --out demo/"),
]
SECONDS, FAST_SECONDS = 45.0, 2.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fast", action="store_true", help="a few seconds instead of a minute")
    parser.add_argument("--no-spark", action="store_true", help="stop after the recording: no tables, no report")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="directory for recording, tables and report (default: a new one)"
    )


def run(args: argparse.Namespace) -> int:
    with needs("numpy,record"):
        import numpy  # noqa: F401 -- the camera needs it

        from ringmain._demo import narrator, processes, scenario
    out = args.out or Path(tempfile.mkdtemp(prefix="ringmain-demo-"))
    recording = out / "recording"
    if recording.exists():
        raise CommandError(f"{recording} exists already: give another --out")
    tell = narrator.Narrator()
    # A directory of its own, so that the demo never touches the topics of a real robot.
    with tempfile.TemporaryDirectory(prefix="ringmain-demo-", dir="/dev/shm") as shared:
        os.environ["RINGMAIN_DIR"] = shared
        command = "ringmain" if shutil.which("ringmain") else os.path.relpath(sys.argv[0])
        tell.say(f"watch it from another terminal: {bold(f'RINGMAIN_DIR={shared} {command} top')}")
        tell.say(f"or in the browser, with plots and pictures: {bold(f'RINGMAIN_DIR={shared} {command} view')}")
        try:
            scenario.run_robot(recording, FAST_SECONDS if args.fast else SECONDS, tell)
        except processes.DemoFailed as error:
            raise CommandError(str(error)) from None
    if args.no_spark:
        tell.say("skipped, by --no-spark: Spark's tables of this recording, a query on them, and the report")
        report = None
    else:
        report = scenario.run_pipeline(recording, out, tell)
    tell.say("what was recorded:")
    print(f"\n{scenario.summary(recording)}\n")
    print(f"recording  {recording}")
    if report is not None:
        print(f"tables     {out / 'lake'}\nreport     {bold(report.absolute().as_uri())}")
    return Exit.OK
