"""Participants in other pid namespaces, as in containers: their pids are never taken for processes of ours.

How: real namespaces, made with `unshare`. A child there is pid 1 or a small number, which here is an unrelated process.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable

import pytest

import ringmain as rm
from ringmain import _names
from ringmain._cli.topic_checks import diagnose

UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def _why_not() -> str:
    """Why no pid namespace can be made here; '' if one can."""
    if shutil.which("unshare") is None:
        return "there is no program `unshare`"
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    return tried.stderr.strip() if tried.returncode else ""


WHY_NOT = _why_not()
pytestmark = [
    pytest.mark.privileged,
    pytest.mark.skipif(bool(WHY_NOT), reason=f"no pid namespace can be made: {WHY_NOT}"),
]

SAY_WHO = "say(os.getpid(), os.stat('/proc/self/ns/pid').st_ino)"


@pytest.fixture
def elsewhere(child) -> Callable[..., tuple[object, int, int]]:
    """Starts a script in a pid namespace of its own, which first says who it is: the child, its pid and namespace."""

    def start(script: str, **options):
        there = child(script, within=UNSHARE, **options)
        pid, namespace = map(int, there.line().split())
        return there, pid, namespace

    return start


def test_info_says_which_pids_are_ours(elsewhere):
    with rm.Publisher("x"):
        there, pid, namespace = elsewhere(f"sub = rm.Subscriber('x', name='far'); {SAY_WHO}; hear(); sub.close()")
        (writer,), (reader,) = rm.info("x").writers, rm.info("x").readers
        assert (writer.pid, writer.pid_namespace, writer.same_namespace) == (os.getpid(), _names.pid_namespace(), True)
        assert (reader.pid, reader.pid_namespace, reader.same_namespace) == (pid, namespace, False)
        assert reader.alive
        assert writer.pid_text == f"pid {os.getpid()}"
        assert reader.pid_text == f"pid {pid} in another pid namespace ({namespace})"
        assert writer.started_ticks == int(_stat_fields(os.getpid())[19])
        there.tell()
        there.finish()


def _stat_fields(pid: int) -> list[str]:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


def test_both_sides_see_each_other_as_elsewhere(elsewhere):
    with rm.Publisher("x", name="here"):
        there, _, _ = elsewhere(f"{SAY_WHO}; say(rm.info('x').writers[0].pid_text)\n"
                                "try: rm.Publisher('x')\nexcept rm.TopicBusy as error: say(error)")  # fmt: skip
        ours = f"pid {os.getpid()} in another pid namespace ({_names.pid_namespace()})"
        assert there.line() == ours
        assert f"writer 'here' (user {os.geteuid()}, {ours})" in there.line()
        there.finish()


def test_a_full_topic_names_its_reader_and_doctor_advises_no_signal(elsewhere):
    """The reader's pid exists here too, as a process that must not be killed."""
    with rm.Publisher("x", contract="reliable", capacity=4096, name="here") as pub:
        there, pid, namespace = elsewhere(f"sub = rm.Subscriber('x', name='far'); {SAY_WHO}; hear(); sub.close()")
        who = f"reader 'far' (user {os.geteuid()}, pid {pid} in another pid namespace ({namespace}))"
        with pytest.raises(rm.Full, match=re.escape(who)):
            while True:
                pub.send(bytes(500), timeout=0)
        os.kill(pid, 0)
        before = rm.info("x")
        waiting = _waits(before, "far")
        findings = list(diagnose(waiting, waiting, 1.0))
        assert findings[0].what == "stuck"
        assert who in findings[0].text
        assert not any("kill" in finding.remedy for finding in findings)
        there.tell()
        there.finish()


def _waits(topic: rm.TopicInfo, reader: str) -> rm.TopicInfo:
    """The topic as it is while its writer waits for this reader."""
    writers = [dataclasses.replace(writer, waits_for=reader) for writer in topic.writers]
    return dataclasses.replace(topic, writers=writers)


def test_a_roster_that_stays_locked_advises_a_signal_only_where_the_pid_is_ours(child, until):
    stop = {"RINGMAIN_LAB": "1", "RINGMAIN_CRASH": "stop:join: roster locked"}
    with rm.Publisher("x", contract="bus"):
        # A shell is pid 1 there: the first process of a namespace does not stop itself.
        for within in ((*UNSHARE, "sh", "-c", '"$@"; true', "sh"), ()):
            there = child(f"{SAY_WHO}; sub = rm.Subscriber('x')", env=stop, within=within)
            pid, namespace = map(int, there.line().split())
            process = _only_child(_only_child(there.pid)) if within else there.pid
            until(lambda process=process: _stat_fields(process)[0] == "T")
            with pytest.raises(rm.Timeout) as raised:
                rm.Subscriber("x")
            if within:
                assert f"stayed locked by pid {pid} in another pid namespace ({namespace})" in str(raised.value)
                assert str(raised.value).endswith("resume it or kill it from its own pid namespace")
            else:
                assert f"stayed locked by pid {pid}, which has stopped" in str(raised.value)
                assert f"kill -CONT {pid}" in str(raised.value)
            there.kill()


def _only_child(pid: int) -> int:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return int(file.read())


def test_doctor_looks_only_at_the_process_that_joined(until):
    """A pid that belongs to a later process says nothing of the participant."""
    with rm.Publisher("x", name="w"):
        topic = rm.info("x")
        stopped = subprocess.Popen(["sleep", "60"])
        try:
            stopped.send_signal(signal.SIGSTOP)
            until(lambda: _stat_fields(stopped.pid)[0] == "T")
            other = dataclasses.replace(topic, writers=[dataclasses.replace(topic.writers[0], pid=stopped.pid)])
            assert [f.what for f in diagnose(other, other, 1.0)] == ["idle", "readers"]
            began = int(_stat_fields(stopped.pid)[19])
            writer = dataclasses.replace(other.writers[0], started_ticks=began)
            same = dataclasses.replace(topic, writers=[writer])
            assert [f.what for f in diagnose(same, same, 1.0)] == ["idle", "not running", "readers"]
        finally:
            stopped.kill()
            stopped.wait()


def test_a_child_with_the_pid_of_its_parent_is_still_a_child(elsewhere):
    """Both are pid 1, each in its own namespace. The child takes a slot of its own, and the parent is told."""
    there, pid, _ = elsewhere(f"""
        import ctypes
        from ringmain._recording import Spool
        pub = rm.Publisher("x"); spool = Spool()
        {SAY_WHO}
        assert ctypes.CDLL(None).unshare(0x20000000) == 0  # CLONE_NEWPID: of the children from now on
        if os.fork() == 0:
            pub.send(b"child")
            say(os.getpid(), sorted((w.pid, w.same_namespace) for w in rm.info("x").writers))
            try: spool.wait()
            except ProcessLookupError: say("the thread is the parent's")
            os._exit(0)
        os.wait()
        try: pub.send(b"parent")
        except rm.TakenOver: say("taken over")
        pub.close()
    """)
    assert pid == 1
    assert there.line() == "1 [(1, False), (1, True)]"
    assert there.line() == "the thread is the parent's"
    assert there.line() == "taken over"
    there.finish()
