"""Publish and subscribe: one process sends, two read, each at its own pace. No process waits for another."""

import multiprocessing

import ringmain as rm

COUNT = 1000


def read(name: str, results) -> None:
    with rm.Subscriber("position", name=name) as sub:
        total = 0
        while (message := sub.recv_message(timeout=30)).kind != "end":
            total += 1
        results.put((name, total, sub.lost, message.seq))


def main() -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with rm.Publisher("position", capacity="256KiB") as pub:
        readers = [context.Process(target=read, args=(name, results)) for name in ("left", "right")]
        for reader in readers:
            reader.start()
        pub.wait_for_readers(2, timeout=30)
        for number in range(COUNT):
            pub.send(number.to_bytes(8, "little"))
        pub.send(b"", kind="end")
        for _ in readers:
            name, total, lost, sent = results.get(timeout=30)
            print(f"{name} read {total} messages and lost {lost}")
            assert total + lost == sent == COUNT
        for reader in readers:
            reader.join()


if __name__ == "__main__":
    main()
