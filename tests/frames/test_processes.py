"""Frames between real processes: who dies gives its buffers back, forks and pickles work, files go with their users."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringmain as rm

PATIENCE_S = 30.0

READER = """
import numpy as np
sub = rm.FrameSubscriber(sys.argv[1], name="child")
say("ready")
frames = []
while (command := hear()) != "end":
    if command == "take":
        frames.append(sub.recv(timeout=30))
        say(frames[-1].id, int(frames[-1].array[0]))
    elif command == "release":
        frames.pop().release()
        say("released")
    elif command == "keep":
        kept = frames.pop().array
        say("kept")
sub.close()
"""


def test_a_killed_reader_gives_its_buffers_back(child: Callable[..., Any]) -> None:
    with rm.FramePublisher("s", 16, buffers=2) as pub:
        reader = child(READER, "s")
        reader.line()
        for value in (1, 2):
            pub.send(np.full(16, value, "u1"))
            reader.tell("take")
            assert reader.line() == f"{value - 1} {value}"
        with pytest.raises(rm.Full, match=rf"of its 2, reader 'child' \(pid {reader.pid}\) holds 2"):
            pub.frame(timeout=0.01)
        reader.kill()
        assert pub.send(np.full(16, 3, "u1"), timeout=PATIENCE_S) == 2


def test_a_waiting_publisher_goes_on_when_its_reader_lets_go_or_dies(
    child: Callable[..., Any], in_thread: Callable[..., Any]
) -> None:
    with rm.FramePublisher("s", 16, buffers=1) as pub:
        reader = child(READER, "s")
        reader.line()
        for end in ("release", "kill"):
            sent = pub.send(np.zeros(16, "u1"), timeout=PATIENCE_S)
            reader.tell("take")
            reader.line()
            waiting = in_thread(pub.send, np.zeros(16, "u1"))
            if end == "release":
                reader.tell("release")
                reader.line()
                reader.tell("take")  # what the waiting one sends
                reader.line()
                reader.tell("release")
                reader.line()
            else:
                reader.kill()
            assert waiting() == sent + 1


def test_a_stopped_reader_keeps_what_it_holds(child: Callable[..., Any]) -> None:
    with rm.FramePublisher("s", 16, buffers=2, when_full="drop") as pub:
        reader = child(READER, "s")
        reader.line()
        pub.send(np.full(16, 1, "u1"))
        reader.tell("take")
        reader.line()
        os.kill(reader.pid, signal.SIGSTOP)
        try:
            for _ in range(100):
                assert pub.send(np.zeros(16, "u1")) is not None  # the other buffer is free
        finally:
            os.kill(reader.pid, signal.SIGCONT)
        reader.tell("keep")
        reader.line()
        reader.tell("end")
        reader.finish()


def test_a_reader_goes_on_after_its_publisher_was_killed(child: Callable[..., Any]) -> None:
    publisher = """
        import numpy as np
        pub = rm.FramePublisher("s", int(sys.argv[1]))
        say("ready")
        while hear() == "send":
            pub.send(np.full(int(sys.argv[1]), int(sys.argv[2]), "u1"))
            say("sent")
    """
    with rm.FrameSubscriber("s") as sub:
        for shape, value in ((16, 1), (32, 2)):
            server = child(publisher, shape, value)
            server.line()
            rm.wait([sub], timeout=0)  # it is there now
            for _ in range(2):
                server.tell("send")
                server.line()
            server.kill()
            frames = [sub.recv(timeout=PATIENCE_S) for _ in range(2)]  # what it sent is still good
            assert [(f.shape, set(f.array), f.lost) for f in frames] == [((shape,), {value}, 0)] * 2
            for frame in frames:
                frame.release()


@pytest.mark.parametrize("label", ["frame: buffer chosen", "frame: rewriting announced", "frame: numbered, not sent"])
def test_a_publisher_that_dies_in_a_frame_leaves_no_half_of_it(child: Callable[..., Any], label: str) -> None:
    server = child(
        """
        import numpy as np
        pub = rm.FramePublisher("s", 4096, buffers=2)
        pub.wait_for_readers(1, timeout=30)
        for value in range(1, 100):
            pub.send(np.full(4096, value, "u1"))
        """,
        env={"RINGMAIN_LAB": "1", "RINGMAIN_CRASH": f"{label}#5"},
    )
    with rm.FrameSubscriber("s") as sub:
        seen: list[int] = []
        while server.process.poll() is None or rm.wait([sub], timeout=0):
            frame = sub.try_recv()
            if frame is not None:
                with frame:
                    values = set(frame.array)
                    assert len(values) == 1
                    seen.append(values.pop())
        assert server.process.returncode == -signal.SIGKILL
        assert all(value <= 4 for value in seen)
        with rm.FramePublisher("s", 4) as pub:
            pub.send(np.full(4, 9, "u1"))
            assert set(sub.recv(timeout=PATIENCE_S).array) == {9}


STEPPED_PUBLISHER = """
import numpy as np
pub = rm.FramePublisher("s", 64, buffers=2)
pub.wait_for_readers(1, timeout=30)
for value in range(3):
    pub.send(np.full(64, value, "u1"))
say("sent")
hear()
pub.close()
"""


def _wait_until_stopped(pid: int) -> None:
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)


def test_a_reader_that_leases_first_keeps_the_buffer(child: Callable[..., Any]) -> None:
    """The publisher has chosen the buffer of frame 0, but not said so, when a reader leases it: it takes another."""
    with rm.FrameSubscriber("s") as sub:
        publisher = child(STEPPED_PUBLISHER, env={"RINGMAIN_LAB": "1", "RINGMAIN_CRASH": "stop:frame: buffer chosen#3"})
        assert rm.wait([sub], timeout=PATIENCE_S) == [sub]
        _wait_until_stopped(publisher.pid)
        with sub.recv(timeout=PATIENCE_S) as first:
            assert (first.id, set(first.array)) == (0, {0})
            os.kill(publisher.pid, signal.SIGCONT)
            assert publisher.line() == "sent"
            assert set(first.array) == {0}
            with sub.recv(timeout=PATIENCE_S) as third:
                assert (third.id, third.lost, set(third.array)) == (2, 1, {2})
                assert third.buffer != first.buffer
        publisher.tell()
        publisher.finish()


def test_a_publisher_that_announces_first_has_the_buffer(child: Callable[..., Any]) -> None:
    """The publisher has said that it rewrites the buffer of frame 0: who comes now does not get it, and knows."""
    with rm.FrameSubscriber("s") as sub:
        crash = "stop:frame: rewriting announced#3"
        publisher = child(STEPPED_PUBLISHER, env={"RINGMAIN_LAB": "1", "RINGMAIN_CRASH": crash})
        assert rm.wait([sub], timeout=PATIENCE_S) == [sub]
        _wait_until_stopped(publisher.pid)
        with sub.recv(timeout=PATIENCE_S) as second:
            assert (second.id, second.lost) == (1, 1)
            os.kill(publisher.pid, signal.SIGCONT)
            assert publisher.line() == "sent"
            with sub.recv(timeout=PATIENCE_S) as third:
                assert (third.id, third.lost, set(third.array)) == (2, 0, {2})
        publisher.tell()
        publisher.finish()


@pytest.mark.parametrize("label", ["frame: lease announced", "frame: hold changed, bell not rung"])
def test_a_reader_that_dies_in_a_lease_blocks_no_publisher(child: Callable[..., Any], label: str) -> None:
    with rm.FramePublisher("s", 16, buffers=1) as pub:
        reader = child(
            """
            sub = rm.FrameSubscriber("s")
            say("ready")
            for frame in sub:
                frame.release()
            """,
            env={"RINGMAIN_LAB": "1", "RINGMAIN_CRASH": f"{label}#3"},
        )
        reader.line()
        sent = 0
        while reader.process.poll() is None:
            pub.send(np.zeros(16, "u1"), timeout=PATIENCE_S)
            sent += 1
        assert reader.process.returncode == -signal.SIGKILL
        for _ in range(3):
            pub.send(np.zeros(16, "u1"), timeout=PATIENCE_S)


def test_a_publisher_that_dies_between_two_pools_is_followed(child: Callable[..., Any]) -> None:
    with rm.FrameSubscriber("s") as sub:
        with rm.FramePublisher("s", 8) as pub:
            sub.try_recv()
            pub.send(np.full(8, 1, "u1"))
        crashing = child(
            "rm.FramePublisher('s', 9)",
            env={"RINGMAIN_LAB": "1", "RINGMAIN_CRASH": "frame: old pool retired, none there"},
        )
        assert crashing.process.wait(PATIENCE_S) == -signal.SIGKILL
        with rm.FramePublisher("s", 10) as pub:
            pub.send(np.full(10, 2, "u1"))
            with sub.recv(timeout=PATIENCE_S) as frame:  # the first was lost with its pool, and is counted
                assert (frame.shape, frame.lost) == ((10,), 1)


def test_arrays_that_live_to_the_end_leave_no_file(child: Callable[..., Any], runtime_dir: Path) -> None:
    child(
        """
        import numpy as np
        pub = rm.FramePublisher("s", 16)
        sub = rm.FrameSubscriber("s")
        pub.send(np.zeros(16, "u1"))
        kept = sub.recv(timeout=30).array
        """
    ).finish()
    assert not list(runtime_dir.glob("*.frames"))


def test_what_the_killed_leave_is_cleaned(child: Callable[..., Any], runtime_dir: Path) -> None:
    both = child(
        """
        import numpy as np
        pub = rm.FramePublisher("s", 16)
        sub = rm.FrameSubscriber("s")
        pub.send(np.zeros(16, "u1"))
        kept = sub.recv(timeout=30).array
        say("ready")
        hear()
        """
    )
    both.line()
    assert rm.clean() == []
    both.kill()
    assert rm.clean() == ["s"]
    assert not list(runtime_dir.glob("*.frames"))


def _send_in_child(pub: rm.FramePublisher, value: int) -> None:
    pub.send(np.full(16, value, "u1"))
    pub.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_publisher_passed_to_a_child_sends_from_there(method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    with rm.FrameSubscriber("s") as sub, rm.FramePublisher("s", 16) as pub:
        worker = context.Process(target=_send_in_child, args=(pub, 5))
        worker.start()
        worker.join(PATIENCE_S)
        assert worker.exitcode == 0
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert set(frame.array) == {5}


def _read_in_child(sub: rm.FrameSubscriber, started: Any, results: Any) -> None:
    sub.try_recv()
    started.set()
    with sub.recv(timeout=PATIENCE_S) as frame:
        results.put((frame.id, int(frame.array[0])))
    sub.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_subscriber_passed_to_a_child_reads_there(method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    started, results = context.Event(), context.Queue()
    with rm.FramePublisher("s", 16) as pub, rm.FrameSubscriber("s") as sub:
        worker = context.Process(target=_read_in_child, args=(sub, started, results))
        worker.start()
        assert started.wait(PATIENCE_S)
        pub.send(np.full(16, 6, "u1"))
        assert results.get(timeout=PATIENCE_S) == (0, 6)
        worker.join(PATIENCE_S)
        assert worker.exitcode == 0
        sub.recv(timeout=PATIENCE_S).release()  # the parent has its own


def _do_nothing() -> None:
    pass


@pytest.mark.parametrize("role", ["publisher", "subscriber"])
def test_an_endpoint_keeps_its_directory_under_a_fork_server(
    role: str, runtime_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has the environment of its start, and the program may change it at any time."""
    context: Any = multiprocessing.get_context("forkserver")
    monkeypatch.setenv("RINGMAIN_DIR", str(runtime_dir / "elsewhere"))
    first = context.Process(target=_do_nothing)
    first.start()
    first.join(PATIENCE_S)
    monkeypatch.setenv("RINGMAIN_DIR", str(runtime_dir))
    with rm.FramePublisher("s", 16) as pub, rm.FrameSubscriber("s") as sub:
        monkeypatch.setenv("RINGMAIN_DIR", str(runtime_dir / "a third"))
        started, results = context.Event(), context.Queue()
        if role == "publisher":
            worker = context.Process(target=_send_in_child, args=(pub, 6))
        else:
            worker = context.Process(target=_read_in_child, args=(sub, started, results))
        worker.start()
        if role == "subscriber":
            assert started.wait(PATIENCE_S)
            pub.send(np.full(16, 6, "u1"))
            assert results.get(timeout=PATIENCE_S) == (0, 6)
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert set(frame.array) == {6}
        worker.join(PATIENCE_S)
        assert worker.exitcode == 0


def test_threads_of_a_child_make_one_pool() -> None:
    with rm.FramePublisher("s", 16, buffers=8) as pub, rm.FrameSubscriber("s") as sub:
        pid = os.fork()
        if pid == 0:
            sent: list[int | None] = []
            together = threading.Barrier(4)

            def send() -> None:
                together.wait(PATIENCE_S)
                sent.append(pub.send(np.full(16, 7, "u1"), timeout=PATIENCE_S))

            threads = [threading.Thread(target=send) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE_S)
            os._exit(7 if sorted(map(str, sent)) == ["0", "1", "2", "3"] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        for _ in range(4):
            with sub.recv(timeout=PATIENCE_S) as frame:
                assert (set(frame.array), frame.lost) == ({7}, 0)


def test_a_passed_publisher_replaces_only_the_one_it_came_from() -> None:
    with rm.FramePublisher("s", 16) as pub:
        passed = pickle.dumps(pub)
        with pickle.loads(passed) as heir:
            heir.send(np.zeros(16, "u1"))
            with pytest.raises(rm.TopicBusy, match="the publisher replaces no other"):
                pickle.loads(passed)
    with pytest.raises(rm.Closed, match="cannot be passed on"):
        pickle.dumps(pub)


def test_a_frame_does_not_cross_a_fork() -> None:
    with rm.FramePublisher("s", 16) as pub, rm.FrameSubscriber("s") as sub:
        pub.send(np.zeros(16, "u1"))
        with sub.recv(timeout=PATIENCE_S) as frame:
            pid = os.fork()
            if pid == 0:
                try:
                    frame.array  # noqa: B018
                except rm.Closed:
                    os._exit(7)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
            assert frame.held


def test_endpoints_pickle() -> None:
    with rm.FrameSubscriber("s", conflate=True, on_change="raise") as sub:
        again = pickle.loads(pickle.dumps(sub))
        assert (again.topic, again.on_change) == ("s", "raise")
        again.close()


def test_asyncio() -> None:
    async def main() -> None:
        with rm.FramePublisher("s", 16, buffers=2) as pub, rm.FrameSubscriber("s") as sub:
            with pytest.raises(rm.Timeout):
                await sub.arecv(timeout=0.01)
            waiting = asyncio.create_task(sub.arecv(timeout=PATIENCE_S))
            await asyncio.sleep(0)
            pub.send(np.full(16, 1, "u1"))
            with await waiting as frame:
                assert set(frame.array) == {1}
            pub.send(np.full(16, 2, "u1"))
            count = 0
            async for frame in sub:
                assert set(frame.array) == {count + 2}
                count += 1
                if count == 5:
                    break
                pub.send(np.full(16, count + 2, "u1"), timeout=0)  # the frames before were given back

    asyncio.run(main())


def test_a_cancelled_receive_has_taken_no_frame() -> None:
    async def main() -> None:
        with rm.FramePublisher("s", 16, buffers=1) as pub, rm.FrameSubscriber("s") as sub:
            waiting = asyncio.create_task(sub.arecv())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            pub.send(np.full(16, 1, "u1"))
            pub.send(np.full(16, 2, "u1"), timeout=0)  # the only buffer is not held
            with await sub.arecv(timeout=PATIENCE_S) as frame:
                assert (frame.id, set(frame.array)) == (1, {2})

    asyncio.run(main())


def test_ctrl_c_ends_a_wait(child: Callable[..., Any]) -> None:
    waiting = child(
        """
        import numpy as np
        with rm.FramePublisher("s", 16, buffers=1) as pub, rm.FrameSubscriber("s") as sub:
            pub.send(np.zeros(16, "u1"))
            with sub.recv(timeout=30) as frame:
                try:
                    say("waiting")
                    pub.frame()
                except KeyboardInterrupt:
                    say("interrupted")
        """
    )
    assert waiting.line() == "waiting"
    waiting.process.send_signal(signal.SIGINT)
    assert waiting.line() == "interrupted"
    waiting.finish()
