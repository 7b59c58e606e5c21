"""A small team, written for pysyncq and nothing else: `team.py fork|spawn|forkserver`.

Workers in processes of their own open the queue, hear the parent's numbers, tell each other and the parent their
squares, and sign off. Nobody says anything before all have opened it: pysyncq wants it so. What it prints is the same
at every run.
"""

import multiprocessing
import sys

from pysyncq import pysyncq as pq

PATIENCE_S = 30
WORKERS, NUMBERS = 3, 5


def work(q, name, opened):
    q.open(name)
    q.scrntype.add("gossip")
    opened.wait(PATIENCE_S)
    opened.wait(PATIENCE_S)  # the parent fills the queue meanwhile
    squares = 0
    for sender, kind, body in q(block=True, timer=PATIENCE_S):
        match sender, kind:
            case "parent", "number":
                q.append("gossip", f"{name} has {body}", block=True, timer=PATIENCE_S)
                q.append("square", int(body) ** 2, block=True, timer=PATIENCE_S)
            case _, "square":
                squares += 1
            case "parent", "stop":
                break
    q.append("bye", f"{name} heard {squares}", block=True, timer=PATIENCE_S)
    q.close()


def hear(q, kind, count):
    """So many messages of a kind, in the order of their senders; the others are passed over."""
    heard = []
    while len(heard) < count:
        message = q.pop(block=True, timer=PATIENCE_S)
        if message is None:
            raise SystemExit(f"no {kind} came")
        if message[1] == kind:
            heard.append(message)
    return sorted(heard)


def main():
    method = sys.argv[1]
    multiprocessing.set_start_method(method)
    q = pq.PySyncQ("team", size=65536)
    opened = multiprocessing.Barrier(WORKERS + 1)
    workers = [multiprocessing.Process(target=work, args=(q, f"worker-{i}", opened)) for i in range(WORKERS)]
    for worker in workers:
        worker.start()
    q.open("parent")
    q.scrntype.add(b"gossip")
    opened.wait(PATIENCE_S)
    try:
        while True:
            q.append("flood", "x" * 1000)
    except MemoryError:
        print("full")
    opened.wait(PATIENCE_S)
    for number in range(NUMBERS):
        q.append("number", number, block=True, timer=PATIENCE_S)
    squares = sorted(int(body) for _, _, body in hear(q, "square", WORKERS * NUMBERS))
    print("squares:", *squares)
    q.append("stop", block=True, timer=PATIENCE_S)
    for _, kind, body in hear(q, "bye", WORKERS):
        print(kind, body)
    for worker in workers:
        worker.join(PATIENCE_S)
        print("worker ended:", worker.exitcode)
    print("left over:", list(q), q.pop())
    q.close()


if __name__ == "__main__":
    main()
