"""The crash injector's labels: one grammar for the ring, the recorder and the pipeline."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from ringmain import _crash
from ringmain.testing import crash_points, die_at, stop_at

RING = "publish: written, not committed"


def test_a_label_of_the_ring_needs_the_lab_build() -> None:
    assert die_at(RING) == {"RINGMAIN_LAB": "1", "RINGMAIN_CRASH": f"{RING}#1"}
    assert stop_at(RING, 3) == {"RINGMAIN_LAB": "1", "RINGMAIN_CRASH": f"stop:{RING}#3"}


def test_a_label_of_the_ring_does_not_load_the_recorder() -> None:
    program = (
        f"import sys\nfrom ringmain.testing import die_at\ndie_at({RING!r})\nprint('ringmain.recording' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True).stdout == b"False\n"


def test_the_count_can_be_part_of_the_label() -> None:
    for label in crash_points():
        assert die_at(f"{label}#7") == die_at(label, 7)


def test_a_label_of_the_recorder_or_the_pipeline() -> None:
    parts = ("recorder", "pipeline", "datasets")
    assert tuple(label for part in parts for label in crash_points(part)) == _crash.POINTS
    for label in _crash.POINTS:
        assert re.fullmatch(r"[a-z]+: [a-z ]+(, [a-z ]+)?", label)  # as the ring's are
        assert die_at(label) == {"RINGMAIN_CRASH": f"{label}#1"}
        assert stop_at(f"{label}#2") == {"RINGMAIN_CRASH": f"stop:{label}#2"}


def test_an_unknown_label_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="there is no crash point 'somewhere'") as caught:
        die_at("somewhere#2")
    assert all(label in str(caught.value) for label in (*crash_points(), *_crash.POINTS))
    with pytest.raises(ValueError, match="from 1"):
        die_at(f"{RING}#0")
