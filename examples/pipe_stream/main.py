"""A pipe with streamed messages: one writer, one reader, and messages whose size is not known in advance.

The writer waits when the reader is slow, so nothing is lost; the text below grows in the ring, in place.
"""

import json
import multiprocessing

import ringmain as rm


def write_reports() -> None:
    with rm.Publisher("reports", contract="pipe", capacity="64KiB") as pub:
        for number in range(20):
            with pub.stream(kind="report") as out:
                out.write(b'{"number": %d, "rows": [' % number)
                for row in range(number * 10):
                    out.write(b"%s%d" % (b"," if row else b"", row * row))
                out.write(b"]}")
        with pub.stream(kind="end"):
            pass


def main() -> None:
    writer = multiprocessing.get_context("spawn").Process(target=write_reports)
    writer.start()
    with rm.Subscriber("reports") as sub:
        rows = 0
        while (message := sub.recv_message(timeout=30)).kind != "end":
            rows += len(json.loads(message.data)["rows"])
        assert sub.lost == 0
    writer.join()
    print(f"{rows} rows in 20 reports, nothing lost")
    assert rows == sum(number * 10 for number in range(20))


if __name__ == "__main__":
    main()
