"""What participants cost in descriptors: one for each topic of a process, and at most half of what it may have."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.conftest import Child

LIMIT = """
    import resource
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, hard))
    def descriptors(): return len(os.listdir("/proc/self/fd"))
    first = rm.Publisher("first")  # has the directory's, too
    before = descriptors()
"""


def test_a_thousand_participants_and_a_thousand_topics_within_1024_descriptors(child: Callable[..., Child]) -> None:
    script = (
        LIMIT.format(limit=1024)
        + """
    pub = rm.Publisher("t", max_participants=1024, capacity=4096)
    subs = [rm.Subscriber("t") for _ in range(1000)]
    say(descriptors() - before)
    pub.send(b"x")
    assert all(sub.recv(timeout=20) == b"x" for sub in subs)
    for endpoint in (*subs, pub): endpoint.close()
    pubs = [rm.Publisher(f"t{number}", capacity=4096) for number in range(1000)]
    say(descriptors() - before)
    for each in pubs[:10]:  # those whose descriptors were closed
        with rm.Subscriber(each.topic) as sub:
            each.send(b"y")
            assert sub.recv(timeout=20) == b"y" and len(rm.info(each.topic).writers) == 1
    for each in pubs: each.close()
    say(descriptors() - before)
    say([topic.name for topic in rm.topics()])
    """
    )
    one_topic, many_topics, none, left = child(script).finish()
    assert int(one_topic) == 1
    assert 500 <= int(many_topics) <= 512
    assert int(none) == -1, "that of the first was closed, too"
    assert left == "['first']"


def test_a_death_in_a_topic_whose_descriptor_was_closed(child: Callable[..., Child]) -> None:
    writer = child(
        LIMIT.format(limit=64)
        + """
    pub = rm.Publisher("t", contract="reliable", capacity=4096)
    others = [rm.Publisher(f"t{number}", capacity=4096) for number in range(60)]
    say("open"); hear()
    for _ in range(10): pub.send(bytes(1000), timeout=20)
    """
    )
    assert writer.line() == "open"
    reader = child("""
    sub = rm.Subscriber("t"); say("joined"); hear()
    """)
    assert reader.line() == "joined"
    reader.kill()
    writer.tell()
    writer.finish()


def test_without_a_descriptor_to_be_had_the_error_says_what_to_set(child: Callable[..., Child]) -> None:
    """Wherever one is wanted: to open, to list, to wait in an event loop."""
    script = """
        import asyncio, resource
        with rm.Publisher("t") as pub, rm.Subscriber("t") as sub:
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            others = [rm.Publisher(f"t{number}", capacity=4096) for number in range(60)]
            files = []
            try:
                while True: files.append(os.dup(0))
            except OSError: pass
            for call in (sub.fileno, rm.topics, lambda: rm.Publisher("new")):
                try: call()
                except rm.SystemFailure as error: say(error)
            for each in (*files, *others): os.close(each) if type(each) is int else each.close()
            pub.send(b"x")
            say(sub.recv())
    """
    *errors, data = child(script).finish()
    assert data == "b'x'"
    assert len(errors) == 3
    for error in errors:
        used = re.search(r"Too many open files. This process may have 64 descriptors and uses (\d+) for topics", error)
        assert used, error
        assert 30 <= int(used[1]) <= 35
        assert "ulimit -n" in error
