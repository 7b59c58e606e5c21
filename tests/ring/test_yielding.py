"""Two processes on one core yield to each other, where they would otherwise go to sleep and be woken for each message.

How: both run on one core with a real-time policy, so that no third process runs in between. For the kernel a yield is
an involuntary switch and a sleep a voluntary one, and it counts both.
"""

from __future__ import annotations

import os
import resource

import pytest

import ringmain as rm

ROUND_TRIPS = 2_000
LAST = b"last"


def take_one_core() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def answer() -> None:
    with rm.Subscriber("there") as there, rm.Publisher("back", contract="pipe") as back:
        for message in there:
            back.send(message)
            if message == LAST:
                break


def converse() -> float:
    """How often it slept for a round trip."""
    with rm.Publisher("there", contract="pipe") as there, rm.Subscriber("back") as back:
        there.wait_for_readers(1, timeout=60)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        for _ in range(ROUND_TRIPS):
            there.send(b"x")
            assert back.recv(timeout=60) == b"x"
        slept = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before
        there.send(LAST)
        back.recv(timeout=60)
    return slept / ROUND_TRIPS


@pytest.mark.privileged
def test_on_one_core_they_seldom_sleep():
    cpus, policy = os.sched_getaffinity(0), os.sched_getscheduler(0)
    try:
        take_one_core()
    except PermissionError:
        os.sched_setaffinity(0, cpus)
        pytest.skip("a real-time policy needs a privilege")
    try:
        child = os.fork()
        if child == 0:
            try:
                answer()
                os._exit(0)
            finally:
                os._exit(1)
        slept = converse()
    finally:
        os.sched_setscheduler(0, policy, os.sched_param(0))
        os.sched_setaffinity(0, cpus)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert slept < 0.1
