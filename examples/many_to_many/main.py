"""Many to many: several processes write to one reliable topic, several read all of it, in the same order."""

import hashlib
import multiprocessing

import ringmain as rm

WRITERS, READERS, EACH = 3, 2, 200


def write(name: str) -> None:
    with rm.Publisher("events", contract="reliable", sender=name) as pub:
        pub.wait_for_readers(READERS, timeout=30)
        for number in range(EACH):
            pub.send(f"{name} {number}".encode())


def read(results) -> None:
    digest, senders = hashlib.sha256(), {}
    with rm.Subscriber("events", start="oldest") as sub:
        for _ in range(WRITERS * EACH):
            message = sub.recv_message(timeout=30)
            senders[message.sender] = senders.get(message.sender, 0) + 1
            digest.update(message.data)
    results.put((senders, digest.hexdigest()))


def main() -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with rm.Publisher("events", contract="reliable"):  # keeps the topic from the first process to the last
        everybody = [context.Process(target=read, args=(results,)) for _ in range(READERS)]
        everybody += [context.Process(target=write, args=(f"writer{n}",)) for n in range(WRITERS)]
        for process in everybody:
            process.start()
        seen = [results.get(timeout=60) for _ in range(READERS)]
        for process in everybody:
            process.join()
    print(f"each reader got {seen[0][0]}")
    assert seen[0] == seen[1], "the same messages in the same order"
    assert set(seen[0][0].values()) == {EACH}


if __name__ == "__main__":
    main()
