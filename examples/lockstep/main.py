"""A test in lockstep: a program in its own process pauses at `recv`, gets exactly one message, and continues. So it
runs the same way every time, however fast the machine is."""

import subprocess
import sys

import ringmain as rm
from ringmain.testing import Lockstep

COUNTER = """
import ringmain as rm

total = 0
with rm.Subscriber("numbers") as numbers, rm.Publisher("totals") as totals:
    while (message := numbers.recv_message()).kind != "stop":
        total += int(message.data)
        totals.send(str(total).encode())
"""


def run_once() -> list[bytes]:
    """The program's answer to each message, taken before it may ask for the next one."""
    answers = []
    with Lockstep(["numbers"]) as step, rm.Publisher("numbers") as numbers, rm.Subscriber("totals") as totals:
        with subprocess.Popen([sys.executable, "-c", COUNTER]) as program:
            for number in (1, 2, 3):
                step.feed(numbers, str(number).encode())  # waits until it pauses, publishes, continues it
                step.wait_for("numbers")  # it pauses again: this message is handled
                answers.append(totals.recv(timeout=0))
            step.feed(numbers, b"", kind="stop")
            assert program.wait(timeout=30) == 0
    return answers


def main() -> None:
    first, second = run_once(), run_once()
    print(f"answered {first}, and again {second}")
    assert first == second == [b"1", b"3", b"6"]


if __name__ == "__main__":
    main()
