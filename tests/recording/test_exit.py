"""A program that ends just after it has read a recording."""

from __future__ import annotations

import gc

import pytest

import ringmain as rm
from ringmain.recording._segment import parquet_segment


@pytest.fixture
def recorded(tmp_path):
    with rm.Publisher("t", contract="reliable") as pub, rm.Recorder(tmp_path / "r", ["t"]):
        pub.send_many([b"%d" % n * 20 for n in range(2000)], timeout=20)
    return tmp_path / "r"


def test_nothing_that_pyarrow_was_lent_outlives_a_read_for_long(recorded):
    """Else its threads would take the GIL of an interpreter that has ended. What was read does not need it."""
    table = rm.Recording(recorded).to_arrow()
    gc.collect()
    parquet_segment._until_given_back(20)
    assert table.num_rows == 2000
    assert not parquet_segment._lent


def test_the_end_waits_for_what_was_lent(recorded, child):
    program = child(f"""
        import atexit, threading
        from ringmain.recording._segment import parquet_segment as segment
        fetched = segment._Fetched(4)
        fetched.add(0, b"span")
        lent = [fetched.read_buffer(4)]
        threading.Timer(0.2, lambda: (say("given back"), lent.clear())).start()
        atexit._run_exitfuncs()
        say("ended", len(segment._lent))
        rm.Recording({str(recorded)!r}).to_arrow()
    """)
    assert program.finish() == ["given back", "ended 0"]
