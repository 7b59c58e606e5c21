"""Users import the modules that are listed here. Every other module is private: it, or a package above it, begins with
an underscore. Adding a public module is a decision, and this list is where it is made."""

from __future__ import annotations

from pathlib import Path

from tests.project.test_imports import SOURCE, module_name

PUBLIC = {
    "ringmain": "everything that most programs need",
    "ringmain.backends": "the protocols that publishers and subscribers follow",
    "ringmain.backends.fake": "the fake backend; programs get it from `ringmain.testing`",
    "ringmain.backends.shm": "the shared-memory backend",
    "ringmain.backends.zmq": "`Address`",
    "ringmain.compat": "`alias`, and `python -m ringmain.compat`",
    "ringmain.compat.msgq": "drop-in for msgq",
    "ringmain.compat.msgq.visionipc": "drop-in for msgq.visionipc",
    "ringmain.compat.pysyncq": "drop-in for pysyncq",
    "ringmain.datasets": "`Grid`, `Episodes`: what was recorded, to train on",
    "ringmain.errors": "the errors",
    "ringmain.frames": "frames, and `FrameLayout`",
    "ringmain.lake": "`Lake`, `report`, `check`: the tables, without Spark",
    "ringmain.pipeline": "`Pipeline`, `run`, `Align`",
    "ringmain.recording": "recordings, `Recorder`, `Player`",
    "ringmain.spark": "`session`, `read`, `read_lake`, `aligned`, and the data source",
    "ringmain.testing": "the fake world, `Lockstep`, `Sequencer`, crashes",
    "ringmain.testing.plugin": "the pytest plugin",
    "ringmain.tracing": "messages carry the context of OpenTelemetry's spans",
    "ringmain.view": "the view in the browser",
    "ringmain.typed": "codecs and schemas",
}
# `python -m ringmain` and `python -m ringmain.compat`: run, never imported.
RUN_NOT_IMPORTED = {"ringmain.__main__", "ringmain.compat.__main__"}
# Files that replace the originals' modules under their own names. Not a package, so users cannot import them from here.
NOT_MODULES = SOURCE / "compat" / "stand_ins"


def is_private(module: str) -> bool:
    return any(part.startswith("_") for part in module.split("."))


def public_modules() -> set[str]:
    paths: list[Path] = [path for path in SOURCE.rglob("*.py") if NOT_MODULES not in path.parents]
    return {name for name in map(module_name, paths) if not is_private(name) and name not in RUN_NOT_IMPORTED}


def test_the_public_modules_are_those_in_the_list() -> None:
    found = public_modules()
    assert found - PUBLIC.keys() == set(), "modules that users could import by mistake: give them an underscore"
    assert PUBLIC.keys() - found == set(), "listed as public, and not there"
