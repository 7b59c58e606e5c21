"""Publishing makes no system call while no reader sleeps, nor does a wait for several that finds a message.

How: a child puts itself under a seccomp filter that kills it for any call but the `write` with which it reports and the
`exit_group` with which it ends; then it sends, finds and receives thirty thousand messages. Had it called the kernel
even once, the child would have died of SIGSYS, as its twin does that calls the kernel on purpose.
"""

from __future__ import annotations

import platform

import pytest

import ringmain as rm
from tests import contracts

SCRIPT = """
import ctypes, struct
topics = [rm.Publisher(c, contract=c, capacity=65536) for c in sys.argv[3:]]
subs = [rm.Subscriber(p.topic) for p in topics]
data = b"x" * 100
def publish(times):
    for _ in range(times):
        for pub, sub in zip(topics, subs):
            pub.send(data)
            if rm.wait(subs) != [sub]: os._exit(1)
            pub.send_many((data, data))
            sub.recv(); sub.recv(); sub.recv()
publish(100)  # whatever is done once, is done now

x86 = sys.argv[1] == "x86_64"
allowed = [231, 1] if x86 else [94, 64]  # exit_group, write
def instruction(code, k, yes=0, no=0): return struct.pack("HBBI", code, yes, no, k)
LOAD, EQUAL, RETURN, ALLOW, KILL = 0x20, 0x15, 0x06, 0x7FFF0000, 0x80000000
program = instruction(LOAD, 0)
for index, number in enumerate(allowed):
    program += instruction(EQUAL, number, len(allowed) - index, 0)
program += instruction(RETURN, KILL) + instruction(RETURN, ALLOW)
buffer = ctypes.create_string_buffer(program, len(program))
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)), 16)
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
prctl = libc.prctl
prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
if prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
    say("no seccomp"); os._exit(0)
import gc; gc.disable()
if prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(filter), 0, 0) != 0:
    say("no seccomp"); os._exit(0)
if sys.argv[2] == "publish":
    publish(2500)
else:
    os.getpid()
os.write(1, b"alive\\n")
os._exit(0)
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="the filter knows these two")
def test_publishing_calls_the_kernel_not_once(child):
    said = child(SCRIPT, platform.machine(), "publish", *contracts.UNSHARED).finish()
    if said == ["no seccomp"]:
        pytest.skip("seccomp is not allowed here")
    assert said == ["alive"]
    control = child(SCRIPT, platform.machine(), "call the kernel", *contracts.UNSHARED)
    assert control.process.wait(30) == -31, "the filter does kill a process that calls"
    assert rm.clean() == sorted(contracts.UNSHARED)
