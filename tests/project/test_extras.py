"""What an extra is for works with what the extra brings, and nothing else that happens to be installed here.

How: a child in which every other package is as good as not there.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest

from tests.conftest import Child

ROOT = Path(__file__).parents[2]

HIDES = """
import importlib.abc
class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}: raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
"""
RECORDS = """
from ringmain.recording import Player, Recording
with rm.Publisher("t") as pub, rm.Recorder(sys.argv[1], ["t"]): pub.send(b"kept")
assert [bytes(m.data) for m in Recording(sys.argv[1]).messages()] == [b"kept"]
Player(sys.argv[1], speed=float("inf")).run()
"""
FOR = {
    "record": RECORDS,
    "numpy": "with rm.FramePublisher('f', (2, 3), 'u1') as pub: pub.send(__import__('numpy').zeros((2, 3), 'u1'))",
    "zmq": "with rm.Publisher('t', backend='zmq') as pub: pub.send(b'x')",
    "lake": "import ringmain.lake, ringmain.pipeline",
    "mcap": RECORDS
    + "from ringmain.recording._mcap import export_mcap; export_mcap(Recording(sys.argv[1]), sys.argv[1] + '.mcap')",
    "query": RECORDS + "import duckdb",
    "datasets": "import ringmain.datasets",
}


def plain(requirement: str) -> str:
    """The name of its distribution."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower()


def brings(extra: str) -> set[str]:
    """The distributions that come with it, and with what they require."""
    found: set[str] = set()
    to_see = subprocess.check_output([sys.executable, "tools/requirements.py", extra], cwd=ROOT, text=True).split()
    while to_see:
        name = plain(to_see.pop())
        if name not in found:
            found.add(name)
            with suppress(PackageNotFoundError):  # of another Python
                to_see += [line for line in requires(name) or [] if "extra ==" not in line]
    return found


@pytest.mark.parametrize("extra", FOR)
def test_an_extra_brings_what_it_is_for(extra: str, child: Callable[..., Child], tmp_path: Path) -> None:
    there = brings(extra)
    hidden = {
        module
        for module, distributions in packages_distributions().items()
        if not {"ringmain", *there} & {plain(one) for one in distributions}
    }
    assert {"pytest", "textual"} <= hidden
    child(HIDES.format(hidden=hidden) + FOR[extra], tmp_path / "there").finish()
