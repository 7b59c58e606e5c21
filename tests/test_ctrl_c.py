"""Ctrl-C ends every wait as docs/concepts/crashes.md says, leaves no topic behind, and nothing is printed but the
interrupt.

How: each wait of the page runs in a process of its own, which sends itself a SIGINT; `tests/conftest.py` looks for what
is left behind. Commands: tests/cli/test_endings.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_endings import AT_WORK
from tests.conftest import PATIENCE_S

PAGE = Path(__file__).parents[1] / "docs/concepts/crashes.md"
BEGIN = """
import asyncio, os, signal, threading, time
import ringmain as rm
def interrupt(at_work=lambda: True):
    def later():
        time.sleep(0.1)  # earlier is as good, but it would not be the wait that is interrupted
        while not at_work():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=later, daemon=True).start()
"""
ASYNC = "interrupt()\nasync def main():\n    "
WAITS = {
    "sub.recv()": "sub = rm.Subscriber('t'); interrupt(); sub.recv()",
    "sub.borrow()": "sub = rm.Subscriber('t'); interrupt()\nwith sub.borrow(): pass",
    "for data in sub": "sub = rm.Subscriber('t'); interrupt()\nfor data in sub: pass",
    "rm.wait(...)": "sub = rm.Subscriber('t'); interrupt(); rm.wait([sub], None)",
    "pub.send(...)": "pub = rm.Publisher('t', contract='reliable'); sub = rm.Subscriber('t'); interrupt()\n"
    "while True: pub.send(bytes(9999))",
    "pub.wait_for_readers(...)": "pub = rm.Publisher('t'); interrupt(); pub.wait_for_readers(1)",
    "frames.recv()": "frames = rm.FrameSubscriber('t'); interrupt(); frames.recv()",
    "for frame in frames": "frames = rm.FrameSubscriber('t'); interrupt()\nfor frame in frames: pass",
    "latest.update()": "latest = rm.Latest({'t': None}); interrupt(); latest.update()",
    "for tick in latest.rate(...)": "latest = rm.Latest({'t': None}); interrupt()\nfor tick in latest.rate(10): pass",
    "queue.pop(block=True)": "queue = rm.SyncQueue('t', 'me'); interrupt(); queue.pop(block=True)",
    "client.call(...)": "client = rm.Client('t'); interrupt(); client.call(b'x')",
    "future.result()": "client = rm.Client('t'); interrupt(); future = client.submit(b'x'); future.result()",
    "for request in server": "server = rm.Server('t'); interrupt()\nfor request in server: pass",
    "server.batches()": "server = rm.Server('t'); interrupt()\nfor batch in server.batches(): pass",
    "server.serve(...)": "server = rm.Server('t'); interrupt(); server.serve(bytes)",
    "server.serve_batches(...)": "server = rm.Server('t'); interrupt(); server.serve_batches(list)",
    "server.take(1)": "server = rm.Server('t'); interrupt(); server.take(1)",
    "async for data in sub": ASYNC + "with rm.Subscriber('t') as sub:\n        async for data in sub: pass",
    "async for request in server": ASYNC + "with rm.Server('t') as server:\n        async for request in server: pass",
    "await client.acall(...)": ASYNC + "with rm.Client('t') as client: await client.acall(b'x')",
    "Player.run()": "with rm.Publisher('t') as pub, rm.Recorder('r', 't'):\n"
    "    pub.send(b'1'); pub.send(b'2')\n"
    "player = rm.Player('r', speed=1e-9); interrupt(); player.run()",
    "Bridge.run()": "bridge = rm.Bridge(rm.Subscriber('t'), rm.Publisher('u')); interrupt(); bridge.run()",
    "Recorder.run()": "recorder = rm.Recorder('r', 't')\n"
    "interrupt(lambda: recorder.status().state == 'recording'); recorder.run(); raise KeyboardInterrupt('returned')",
}


def rows() -> dict[str, str]:
    """What the page names in its two tables, and what it says of it."""
    section = PAGE.read_text().partition("\n## Ctrl-C\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (.*`.*) \| (.*) \|$", section, re.MULTILINE)
    return {name: said for names, said in found for name in re.findall(r"`([^`]+)`", names)}


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_ends(name: str, tmp_path: Path) -> None:
    script = BEGIN + WAITS[name] + ("\nasyncio.run(main())" if "async def" in WAITS[name] else "")
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    last = "KeyboardInterrupt: returned" if name == "Recorder.run()" else "KeyboardInterrupt"
    assert done.stderr.rstrip().splitlines()[-1] == last, done.stderr
    assert "Exception ignored" not in done.stderr


def test_the_page_names_every_wait_and_every_command() -> None:
    said = rows()
    assert set(WAITS) <= set(said)
    for words, _at_work, code in AT_WORK.values():
        name = " ".join(word for word in words if word in (words[0], "--rate", "--loop"))
        assert said[name].startswith(f"{code}:"), name
