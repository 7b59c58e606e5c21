"""A program of real processes takes the steps the test decides, and the same ones every time.

How: children that receive in every way a program can; the test waits until they are paused, publishes, and lets them
continue.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable

import pytest

import ringmain as rm
from ringmain.testing import Lockstep, NotPaused, Sequencer
from tests.conftest import PATIENCE_S, Child

SUMMING = """
    total = 0
    with rm.Subscriber("numbers", name="summer") as sub, rm.Publisher("sums") as pub:
        for data in sub:
            if data == b"end": break
            total += int(data)
            pub.send(b"%d" % total)
"""


def test_a_process_is_paused_until_it_may_continue(child: Callable[..., Child]) -> None:
    with Lockstep(["numbers"]) as step, rm.Publisher("numbers", contract="reliable") as pub:
        with rm.Subscriber("sums", start="oldest") as sums:
            summer = child(SUMMING)
            paused = step.wait_for("numbers")
            assert (paused.call, paused.name, paused.pid, paused.topics) == ("recv", "summer", summer.pid, ("numbers",))
            pub.send(b"5")
            assert sums.try_recv() is None  # the message is there, but the child has not looked
            paused.go()
            step.wait_for("numbers")  # it is back: all it does with the message is done
            assert sums.recv(timeout=0) == b"5"
            with pytest.raises(NotPaused):
                paused.go()
            step.feed(pub, b"7")
            step.feed(pub, b"end")
            summer.finish()
            assert sums.recv_many(10) == [b"12"]
            assert [(taken.call, taken.name) for taken in step.journal] == [("recv", "summer")] * 3


def test_two_processes_replay_the_same_way_every_time(child: Callable[..., Child]) -> None:
    pipeline = """
        with rm.Subscriber(sys.argv[1], name=sys.argv[1]) as sub, rm.Publisher(sys.argv[2], contract="reliable") as pub:
            for data in sub:
                if data == b"end": break
                pub.send(data + sys.argv[2].encode())
    """
    runs = []
    for _ in range(3):
        with Lockstep(["a", "b"]) as step, rm.Publisher("a", contract="reliable") as pub, rm.Subscriber("c") as end:
            first, second = child(pipeline, "a", "b"), child(pipeline, "b", "c")
            step.wait_for("a")
            step.wait_for("b")
            seen = []
            for data in (b"1", b"2"):
                step.feed(pub, data)
                step.wait_for("a")  # the first is back, so its message is there
                step.wait_for("b").go()
                step.wait_for("b")
                seen.append(end.recv(timeout=PATIENCE_S))
            first.kill()
            second.kill()
            runs.append((seen, [(taken.topics, taken.call) for taken in step.journal]))
        rm.clean()
    assert runs[0][0] == [b"1bc", b"2bc"]
    assert runs[0] == runs[1] == runs[2]


def test_a_wait_can_be_made_to_time_out_without_waiting(child: Callable[..., Child]) -> None:
    with Lockstep(["x"]) as step:
        patient = child("""
            with rm.Subscriber("x") as sub:
                try: sub.recv(timeout=3600)
                except rm.Timeout: say("timed out")
                say(rm.wait([sub], timeout=3600))
        """)
        paused = step.wait_for("x")
        assert paused.step.timeout == 3600
        paused.expire()
        assert patient.line() == "timed out"
        step.wait_for("x").expire()
        assert patient.line() == "[]"
        patient.finish()


def test_asyncio_wait_and_latest_are_held(child: Callable[..., Child]) -> None:
    with Lockstep(["x", "y"]) as step:
        with rm.Publisher("x", contract="reliable") as x, rm.Publisher("y", contract="reliable") as y:
            program = child("""
                import asyncio
                async def main():
                    with rm.Subscriber("x") as x, rm.Subscriber("y") as y:
                        async def tick(): say("the loop goes on")
                        ticking = asyncio.ensure_future(tick())
                        say(await x.arecv())
                        async for data in y:
                            say(data)
                            break
                asyncio.run(main())
                with rm.Subscriber("x") as x, rm.Subscriber("y") as y:
                    found = rm.wait([x, y])
                    say([sub.topic for sub in found], found[0].recv())
                with rm.Latest({"x": None, "y": None}) as latest:
                    latest.update()
                    say(latest["x"], latest["y"])
            """)
            assert program.line() == "the loop goes on"
            step.feed(x, b"one")
            assert program.line() == "b'one'"
            step.feed(y, b"two")
            assert program.line() == "b'two'"
            paused = step.wait_for("y")
            assert (paused.call, paused.topics) == ("wait", ("x", "y"))
            y.send(b"three")
            paused.go()
            step.wait_for("y").go()
            assert program.line() == "['y'] b'three'"
            paused = step.wait_for()
            assert (paused.call, paused.topics) == ("wait", ("x", "y"))
            x.send(b"four")
            y.send(b"five")
            paused.go()
            assert program.line() == "b'four' b'five'"
            program.finish()


@pytest.mark.parametrize(
    "call",
    [
        "recv()", "recv_message().data", "recv_many(1, timeout=None)[0]", "recv_into(bytearray(1))",
        "recv_batch(timeout=None)", "borrow().__enter__().seq", "try_recv()", "try_recv_message().data", "__next__()",
    ],
)  # fmt: skip
def test_every_call_is_a_step(call: str, child: Callable[..., Child]) -> None:
    with Lockstep(["x"], polls=True) as step, rm.Publisher("x") as pub:
        program = child(f"""
            with rm.Subscriber("x") as sub:
                result = sub.{call}
                say("got")
                del result
        """)
        step.feed(pub, b"1")
        assert program.line() == "got"
        program.finish()


def test_one_that_dies_while_paused_is_dropped(child: Callable[..., Child]) -> None:
    with Lockstep(["x"]) as step:
        victim = child('rm.Subscriber("x").recv()')
        paused = step.wait_for("x")
        victim.kill()
        with pytest.raises(rm.Timeout, match="paused are none"):
            step.wait_for("x", name="nobody", timeout=0.05)
        with pytest.raises(NotPaused):
            paused.go()


def test_when_the_test_is_over_no_call_is_paused(child: Callable[..., Child]) -> None:
    with rm.Publisher("x", contract="reliable") as pub:
        with Lockstep(["x"]) as step:
            program = child('with rm.Subscriber("x") as sub: say(sub.recv(), sub.recv())')
            step.feed(pub, b"1")
            step.wait_for("x")
        pub.send(b"2")
        assert program.line() == "b'1' b'2'"
        program.finish()


def test_other_topics_do_not_pause_and_cost_nothing() -> None:
    with Lockstep(["x"]):
        with rm.Subscriber("y") as other, rm.Subscriber("x") as paused:
            assert type(other) is rm.Subscriber
            assert type(paused) is not rm.Subscriber
            assert isinstance(paused, rm.Subscriber)
            assert paused.try_recv() is None  # a poll does not pause without polls=True
    with rm.Subscriber("x") as free:
        assert type(free) is rm.Subscriber


def test_a_pausing_subscriber_can_be_passed_on() -> None:
    with Lockstep(["x"]), rm.Subscriber("x") as sub:
        data = pickle.dumps(sub)
        with pickle.loads(data) as again:
            assert type(again) is type(sub)


def test_topics_are_several() -> None:
    with pytest.raises(TypeError, match="single str"):
        Lockstep("x")


def _say_in_order(order: object, queue: object, step: str) -> None:
    with order(step):  # type: ignore[operator]
        queue.put(step)  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_sequencer_forces_an_order_between_processes(method: str) -> None:
    context = multiprocessing.get_context(method)
    steps = ["first", "second", "third"]
    with Sequencer(steps) as order:
        queue = context.SimpleQueue()
        processes = [context.Process(target=_say_in_order, args=(order, queue, step)) for step in reversed(steps)]
        for process in processes:
            process.start()
        assert [queue.get() for _ in steps] == steps
        for process in processes:
            process.join(PATIENCE_S)
            assert process.exitcode == 0
        queue.close()
        with pytest.raises(rm.Timeout, match="it was done already"):
            order.done("first", timeout=0)
        with pytest.raises(ValueError, match="not one of the steps"):
            order.done("fourth")


def test_a_step_that_fails_does_not_pass_the_turn_on() -> None:
    with Sequencer(["a", "b"]) as order:
        with pytest.raises(rm.Timeout, match="'a' has not begun"):
            order.done("b", timeout=0)
        with pytest.raises(KeyError), order("a"):
            raise KeyError
        with pytest.raises(rm.Timeout, match="begun and not ended"):
            order.done("b", timeout=0)
