"""`record` and `play` in a real terminal: the progress table, and the keys."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
import termios

import pytest

import ringmain as rm
from ringmain.recording import Recording
from tests.cli.conftest import PATIENCE_S
from tests.recording.conftest import payload_of


class Tty:
    """A command on a real tty, whose modes can be looked at: what it prints is collected, and keys are pressed."""

    # Opening the terminal as the first of its session makes it the one that sends Ctrl-C.
    _LAUNCH = (
        "import os, sys; os.close(os.open(os.ttyname(0), os.O_RDWR)); "
        "os.execv(sys.executable, [sys.executable, '-m', 'ringmain', *sys.argv[1:]])"
    )

    def __init__(self, *args):
        self.master, slave = pty.openpty()
        command = [sys.executable, "-c", self._LAUNCH, *args]
        self._process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
        os.close(slave)
        self._said = b""

    def until(self, text):
        """Reads until it has said this; returns what it said before, and forgets both."""
        while text.encode() not in self._said:
            ready, _, _ = select.select([self.master], [], [], PATIENCE_S)
            assert ready, f"never said {text!r}, but {self._said!r}"
            self._said += os.read(self.master, 4096)
        before, _, self._said = self._said.partition(text.encode())
        return before.decode()

    def press(self, keys):
        os.write(self.master, keys.encode())

    def end(self):
        """Its exit code, once it has ended."""
        with contextlib.suppress(OSError):  # how a terminal says that nobody is left on the other side
            while select.select([self.master], [], [], PATIENCE_S)[0] and os.read(self.master, 4096):
                pass
        return self._process.wait(PATIENCE_S)

    def dispose(self):
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(PATIENCE_S)
        os.close(self.master)


@pytest.fixture
def tty():
    """Starts a command on a tty."""
    opened = []

    def start(*args):
        opened.append(Tty(*args))
        return opened[-1]

    yield start
    for one in opened:
        one.dispose()


def test_pause_step_resume_and_quit_from_the_keyboard(tty, steps):
    """In a real terminal. Messages are a second apart, so that what comes at once comes by the keyboard alone."""
    play = tty("play", str(steps), "--paused", "--speed", "0.001")
    play.until("space pauses")
    with rm.Subscriber("t", start="oldest") as sub:
        for number, key in enumerate(("s", "\033[C", "s")):
            play.press(key)
            assert sub.recv(PATIENCE_S) == payload_of(number)
            play.until("one message")
        assert sub.try_recv() is None
        play.press(" ")
        play.until("resumed")
        play.press(" ")
        play.until("paused")
        play.press("x")
        play.until("space pauses")
        play.press("q")
        play.until("quits")
        assert play.end() == 0


def test_the_terminal_is_as_before_when_interrupted(tty, steps):
    play = tty("play", str(steps), "--paused")
    play.until("space pauses")
    before = termios.tcgetattr(play.master)
    assert not before[3] & termios.ICANON, "single keys are read"
    play.press("\x03")
    play.until("0 messages")
    assert termios.tcgetattr(play.master)[3] & termios.ICANON
    assert play.end() == 130


def test_progress_shows_rate_bytes_lag_loss_and_room(tty, tmp_path):
    """In a real terminal, on which the table is drawn over itself."""
    with rm.Publisher("imu", contract="reliable") as pub:
        record = tty("record", "imu", "-o", str(tmp_path / "r"), "--messages", "50")
        record.until("Ctrl-C ends it")
        record.until("free on disk")
        pub.wait_for_readers(1, timeout=PATIENCE_S)
        pub.send_many([b"x" * 100] * 49)
        shown = record.until("49 messages")
        for head in ("TOPIC", "HZ", "BYTES/S", "MESSAGES", "BYTES", "LAG", "LOST"):
            assert head in shown
        assert "\033[" in shown
        record.until("0 lost")
        pub.send(b"the last")
        record.until("50 messages")
        assert record.end() == 0
    assert len(Recording(tmp_path / "r")) == 50
