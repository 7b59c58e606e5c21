"""A sync queue: every participant hears all others. Three workers find each other and agree on a leader."""

import multiprocessing

import ringmain as rm

MEMBERS = {"ada", "bob", "cyd"}


def member(name: str, results) -> None:
    with rm.SyncQueue("team", sender=name) as queue:
        present, greeted = {name}, set()
        queue.append("hello", name, block=True, timeout=30)
        while present != MEMBERS or greeted != MEMBERS - {name}:
            message = queue.pop(block=True, timeout=30)
            if message is None:
                raise TimeoutError(f"{name} heard nothing from {MEMBERS - present}")
            if message.kind == "hello":  # a new worker, which may not have heard us
                queue.append("welcome", message.sender, block=True, timeout=30)
            if message.kind == "hello" or message.text == name:
                present.add(message.sender)
                greeted.add(message.sender)
        results.put((name, min(present)))


def main() -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    # The process that starts a queue stays until all are done: the last to leave removes the queue.
    with rm.SyncQueue("team", sender="starter", ignore_kinds={"hello", "welcome"}) as queue:
        workers = [context.Process(target=member, args=(name, results)) for name in sorted(MEMBERS)]
        for worker in workers:
            worker.start()
        leaders = {}
        while len(leaders) < len(workers):
            name, leader = results.get(timeout=60)
            leaders[name] = leader
            queue.pop()  # skips what it ignores
        for worker in workers:
            worker.join()
    print(f"all agree: {leaders}")
    assert set(leaders.values()) == {"ada"}


if __name__ == "__main__":
    main()
