"""The pytest plugin's `ringmain_dir`: each test has a runtime directory of its own, and test runs do not meet.

How: a project with one test runs as a user runs it, twice at the same time; each test waits for the other.
`ringmain_world` is tested with the fake backend.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from tests.conftest import PATIENCE_S

TEST = """
    import os, subprocess, sys, time
    from pathlib import Path
    import ringmain as rm

    def test_alone(ringmain_dir):
        with rm.Publisher("x") as pub, rm.Subscriber("x") as sub:
            Path(f"here-{os.getpid()}").write_text(str(ringmain_dir))
            while len(list(Path().glob("here-*"))) < 2:
                time.sleep(0.01)
            pub.send(str(ringmain_dir).encode())
            assert sub.recv(timeout=10) == str(ringmain_dir).encode()
            listed = [sys.executable, "-m", "ringmain", "list", "--names"]
            assert subprocess.run(listed, capture_output=True, text=True, check=True).stdout == "x\\n"
"""


def test_two_runs_at_the_same_time_do_not_meet(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["ringmain.testing.plugin"]')
    (tmp_path / "test_it.py").write_text(textwrap.dedent(TEST))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) for _ in range(2)]
    for run in runs:
        out, _ = run.communicate(timeout=2 * PATIENCE_S)
        assert "1 passed" in out, out
    directories = {file.read_text() for file in tmp_path.glob("here-*")}
    assert len(directories) == 2
    assert not any(Path(directory).exists() for directory in directories)
