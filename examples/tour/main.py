"""A tour of the contracts, between real processes: who waits, who is lapped, and what a crash does.

python examples/tour/main.py
"""

import multiprocessing
import os
import signal
import time

import ringmain as rm

CONTEXT = multiprocessing.get_context("spawn")
COUNT = 2000
SIZE = 200
WAIT_S = 30


def read_all(topic: str, pause_s: float, results) -> None:
    """Reads until the end, and returns what came and what was lost."""
    with rm.Subscriber(topic, start="oldest", name=f"{topic} reader") as sub:
        got = 0
        while sub.recv_message(timeout=WAIT_S).kind != "end":
            got += 1
            if pause_s and got % 20 == 0:
                time.sleep(pause_s)
        results.put((got, sub.lost))


def write_some(topic: str, contract: str, sender: str) -> None:
    with rm.Publisher(topic, contract=contract, sender=sender) as pub:
        for _ in range(COUNT // 2):
            pub.send(bytes(SIZE), timeout=WAIT_S)


def sit_still(topic: str) -> None:
    with rm.Subscriber(topic, name="sitting"):
        time.sleep(WAIT_S)


def broadcast() -> str:
    """One writer that never waits, and a reader that is too slow."""
    results = CONTEXT.Queue()
    with rm.Publisher("tour/broadcast", capacity="16KiB") as pub:
        reader = CONTEXT.Process(target=read_all, args=("tour/broadcast", 0.002, results))
        reader.start()
        pub.wait_for_readers(1, timeout=WAIT_S)
        for number in range(COUNT):
            pub.send(bytes(SIZE))
            if number % 50 == 0:
                time.sleep(0.001)
        pub.send(b"", kind="end")
        got, lost = results.get(timeout=WAIT_S)
        reader.join()
    assert got + lost == COUNT
    return f"the writer never waited; the slow reader got {got} and was told that it lost {lost}"


def pipe() -> str:
    """One writer, one reader, and the writer waits."""
    results = CONTEXT.Queue()
    reader = CONTEXT.Process(target=read_all, args=("tour/pipe", 0.001, results))
    reader.start()
    with rm.Publisher("tour/pipe", contract="pipe", capacity="16KiB") as pub:
        for _ in range(COUNT):
            pub.send(bytes(SIZE), timeout=WAIT_S)
        pub.send(b"", kind="end", timeout=WAIT_S)
        got, lost = results.get(timeout=WAIT_S)
    reader.join()
    assert (got, lost) == (COUNT, 0)
    return f"the writer waited for the slow reader, who got all {got}"


def bus() -> str:
    """Two writers; a message that a reader has borrowed is never overwritten."""
    with rm.Publisher("tour/bus", contract="bus", capacity="16KiB") as pub, rm.Subscriber("tour/bus") as sub:
        pub.send(b"precious", timeout=WAIT_S)
        with sub.borrow(timeout=WAIT_S) as message:
            sent = 0
            try:
                while True:
                    pub.send(bytes(SIZE), timeout=0.05)
                    sent += 1
            except rm.Full as error:
                assert bytes(message.data) == b"precious"
                reason = str(error).split(";")[0]
    return f"{sent} messages went round to the borrowed one and no further ({reason})"


def reliable() -> str:
    """Two writers, one reader, every message; and a second reader that is killed."""
    results = CONTEXT.Queue()
    with rm.Publisher("tour/reliable", contract="reliable", capacity="16KiB") as pub:
        readers = [
            CONTEXT.Process(target=read_all, args=("tour/reliable", 0, results)),
            CONTEXT.Process(target=sit_still, args=("tour/reliable",)),
        ]
        for reader in readers:
            reader.start()
        pub.wait_for_readers(2, timeout=WAIT_S)
        writers = [CONTEXT.Process(target=write_some, args=("tour/reliable", "reliable", n)) for n in ("one", "two")]
        for writer in writers:
            writer.start()
        while not any(writer.waits_for for writer in rm.info("tour/reliable").writers):
            time.sleep(0.01)
        waited_for = next(w.waits_for for w in rm.info("tour/reliable").writers if w.waits_for)
        os.kill(readers[1].pid, signal.SIGKILL)
        for writer in writers:
            writer.join()
        pub.send(b"", kind="end", timeout=WAIT_S)
        got, lost = results.get(timeout=WAIT_S)
        for reader in readers:
            reader.join()
    assert (got, lost) == (COUNT, 0)
    return f"the writers waited for '{waited_for}' until it was killed with -9; the other reader got all {got}"


def take_one(topic: str) -> None:
    with rm.Subscriber(topic, name="sitting") as sub:
        sub.recv(timeout=WAIT_S)
        time.sleep(WAIT_S)


def work() -> str:
    """Each message goes to one worker; one of them is killed with a message in hand."""
    results = CONTEXT.Queue()
    sitting = CONTEXT.Process(target=take_one, args=("tour/work",))
    diligent = CONTEXT.Process(target=read_all, args=("tour/work", 0, results))
    with rm.Publisher("tour/work", contract="work", capacity="16KiB") as pub:
        sitting.start()
        pub.send(bytes(SIZE))
        while not any(worker.taken for worker in rm.info("tour/work").readers):
            time.sleep(0.01)
        os.kill(sitting.pid, signal.SIGKILL)
        diligent.start()
        for _ in range(COUNT - 1):
            pub.send(bytes(SIZE), timeout=WAIT_S)
        pub.send(b"", kind="end", timeout=WAIT_S)
        done, _ = results.get(timeout=WAIT_S)
        diligent.join()
    assert done == COUNT
    return f"what the worker had that was killed with -9 went to the other, which did all {done}"


TOUR = (broadcast, pipe, bus, reliable, work)


def main() -> None:
    for contract in TOUR:
        print(f"{contract.__name__:<10} {contract.__doc__}")
        print(f"{'':<10} -> {contract()}")
    assert rm.topics() == [] or all(not topic.name.startswith("tour/") for topic in rm.topics())
    print("Nothing is left behind. `ringmain demo` shows a whole robot.")


if __name__ == "__main__":
    main()
