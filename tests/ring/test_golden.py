"""Topic files as they were made: that of this layout is read for as long as it is the layout, an older one is refused.

The files in tests/golden/topic are pipes with unread messages, made once by a build of their layout: v1, v2 and v3 by
one of the parents of the commits that raised it, 5f2f21f, 72ffc94 and 0d320a1. If the layout's version is raised, a
file of the new one is added and none is made anew.
"""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

import pytest

import ringmain as rm
from ringmain._native import LAYOUT

GOLDEN = Path(__file__).parents[1] / "golden" / "topic"
VERSION = LAYOUT["version"]
FILES = {int(path.name.partition(".")[0][1:]): path for path in GOLDEN.glob("v*.ring.gz")}
OLDER = sorted(FILES.keys() - {VERSION})


def put(runtime_dir: Path, version: int) -> Path:
    path = runtime_dir / "golden.ring"
    path.write_bytes(gzip.decompress(FILES[version].read_bytes()))
    path.chmod(0o600)
    return path


def test_there_is_a_file_of_this_layout():
    assert VERSION in FILES, f"tests/golden/topic has no file of layout {VERSION}"
    assert OLDER


def test_a_file_of_this_layout_is_read(runtime_dir):
    put(runtime_dir, VERSION)
    with rm.Subscriber("golden") as sub:
        got = sub.recv_messages(9, timeout=20)
    assert [(m.seq, m.kind, bytes(m.data)) for m in got] == [
        (0, "a", b"first"),
        (1, "b", b"second"),
        (2, "", bytes(range(256))),
    ]
    assert [m.trace for m in got] == ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "", ""]
    assert rm.topics() == []


def refused_as(version: int) -> str:
    return re.escape(f"its layout is version {version}, this ringmain supports version {VERSION}")


@pytest.mark.parametrize("version", OLDER)
def test_an_older_file_is_refused_with_the_sentence_and_removed_as_it_says(version, runtime_dir):
    path = put(runtime_dir, version)
    for call in (
        lambda: rm.Subscriber("golden").try_recv(),
        lambda: rm.Publisher("golden", contract="pipe"),
        lambda: rm.info("golden"),
    ):
        with pytest.raises(rm.Corrupt, match=refused_as(version) + ".*`ringmain clean golden --force`"):
            call()
    assert rm.topics() == []
    assert rm.clean() == []
    assert path.exists()
    rm.unlink("golden", force=True)
    assert not path.exists()
    with rm.Publisher("golden", contract="pipe"):
        pass


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1], ids=["an older", "a newer"])
def test_others_of_another_layout_do_not_notice_who_is_refused(version, runtime_dir, child):
    """Two that agree on a layout, and one that comes with another: one build, but the header says otherwise."""
    echo = child("""
        with rm.Subscriber("t") as sub, rm.Publisher("back") as pub:
            say("ready")
            while (data := sub.recv(timeout=20)) != b"end": pub.send(data)
    """)
    with rm.Publisher("t", contract="reliable") as pub, rm.Subscriber("back") as sub:
        echo.line()
        pub.wait_for_readers(1, timeout=20)
        with (runtime_dir / "t.ring").open("r+b") as file:
            os.pwrite(file.fileno(), version.to_bytes(4, "little"), LAYOUT["Header.version"])
            newcomer = child("""
                for call in (lambda: rm.Subscriber("t").try_recv(), lambda: rm.Publisher("t"), lambda: rm.info("t")):
                    try: call()
                    except rm.Corrupt as error: say(error)
                say([topic.name for topic in rm.topics()], rm.clean())
            """)
            said = newcomer.finish()
            assert len(said) == 4
            assert all(re.search(refused_as(version), line) for line in said[:3])
            assert said[3] == "['back'] []"
            for number in range(100):
                pub.send(b"%d" % number, timeout=20)
                assert sub.recv(timeout=20) == b"%d" % number
            os.pwrite(file.fileno(), VERSION.to_bytes(4, "little"), LAYOUT["Header.version"])
        pub.send(b"end")
        echo.finish()
