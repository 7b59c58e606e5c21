"""A work queue: three workers share tasks. One is killed in the middle of a task, which another one does."""

import multiprocessing
import os
import signal
from collections import Counter

import ringmain as rm

TASKS = 30
DEADLY = 7  # the worker that gets this task first is killed while it works


def worker(name: str) -> None:
    with rm.Subscriber("tasks", name=name) as tasks, rm.Publisher("results", contract="bus", sender=name) as results:
        results.wait_for_readers(1, timeout=30)
        while True:
            # The task is done when the block ends. If the block raises, or the process dies, it goes to another worker.
            with tasks.borrow() as task:
                number = int(bytes(task.data))
                if number < 0:
                    return
                if number == DEADLY and task.redelivered == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                results.send(b"%d %d" % (number, number * number))


def main() -> None:
    context = multiprocessing.get_context("spawn")
    with rm.Publisher("tasks", contract="work") as tasks, rm.Subscriber("results") as results:
        tasks.send_many([b"%d" % number for number in range(TASKS)])  # they wait for the first worker
        workers = [context.Process(target=worker, args=(name,)) for name in ("ada", "bob", "cyd")]
        for process in workers:
            process.start()

        squares: dict[int, int] = {}
        done_by: Counter[str] = Counter()
        while len(squares) < TASKS:
            message = results.recv_message(timeout=60)
            number, square = map(int, message.text.split())
            squares[number] = square
            done_by[message.sender] += 1

        tasks.send_many([b"-1"] * 2)  # one for each worker that is left
        for process in workers:
            process.join()

    print(f"done: {dict(done_by)}")
    assert squares == {number: number * number for number in range(TASKS)}
    assert sorted(process.exitcode or 0 for process in workers) == [-signal.SIGKILL, 0, 0]


if __name__ == "__main__":
    main()
