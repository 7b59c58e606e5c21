"""A reader counts once it receives what is sent: one that has its slot and not yet a place to begin is in no list.

Shown with a process that is stopped in the middle of joining, at a labelled step.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

import ringmain as rm
from ringmain.testing import stop_at
from tests import contracts

JOINS = """
import ringmain as rm
with rm.Subscriber("t") as sub:
    print(sub.recv(timeout=60), flush=True)
"""


@pytest.mark.parametrize("contract", contracts.ALL)
def test_a_reader_that_is_still_joining_is_not_listed(contract, until):
    with rm.Publisher("t", contract=contract) as pub:
        environment = {**os.environ, **stop_at("join: complete, not announced")}
        reader = subprocess.Popen([sys.executable, "-c", JOINS], env=environment, stdout=subprocess.PIPE)
        try:
            _, status = os.waitpid(reader.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            assert rm.info("t").readers == []
            reader.send_signal(signal.SIGCONT)
            until(lambda: rm.info("t").readers)
            pub.send(b"for whom is listed", timeout=60)
            assert reader.stdout.read() == b"b'for whom is listed'\n"
        finally:
            reader.kill()
            reader.communicate()
