"""How many take part in a topic is said when it is created: `max_participants`. These fill rosters, small and large,
and show that all of them take part.
"""

import pytest

import ringmain as rm
from tests import contracts

READERS = """
    subs = [rm.Subscriber("t") for _ in range(int(sys.argv[1]))]
    say("in"); hear()
    say(sum(sub.recv(timeout=0) == b"all" for sub in subs))
    for sub in subs: sub.close()
"""


@pytest.mark.parametrize("contract", contracts.TO_ALL)
def test_a_full_roster_says_how_to_make_it_larger(contract):
    with (
        rm.Publisher("t", contract=contract, max_participants=3) as pub,
        rm.Subscriber("t") as one,
        rm.Subscriber("t") as two,
    ):
        assert rm.info("t").max_participants == 3
        with pytest.raises(rm.RosterFull, match=r"all of its 3 slots .* a larger max_participants \(up to 4096\)"):
            rm.Subscriber("t")
        pub.send(b"x")
        assert one.recv(timeout=0) == two.recv(timeout=0) == b"x"
        two.close()
        rm.Subscriber("t").close()


def test_a_topic_has_128_unless_it_is_told():
    with rm.Publisher("t", contract="bus"), rm.Publisher("t", contract="bus", max_participants=128):
        assert rm.info("t").max_participants == 128


def test_an_existing_topic_with_another_limit_is_not_taken_for_it():
    """As with the capacity: a topic that is in use stays, and one that is not is made again."""
    with rm.Publisher("t", contract="bus", max_participants=200), rm.Publisher("t", contract="bus"):
        with pytest.raises(rm.TopicMismatch, match=r"max_participants 200; requested .* max_participants 1000"):
            rm.Publisher("t", contract="bus", max_participants=1000)
    rm.Publisher("t", contract="bus", max_participants=200, persist=True).close()
    with rm.Publisher("t", contract="bus", max_participants=1000):
        assert rm.info("t").max_participants == 1000
    rm.unlink("t") if rm.topics() else None


@pytest.mark.parametrize("wrong", [0, 1, 4097, -1])
def test_a_number_out_of_range_is_refused(wrong):
    with pytest.raises(ValueError, match=f"max_participants is from 2 to 4096, not {wrong}"):
        rm.Publisher("t", max_participants=wrong)


@pytest.mark.parametrize("wrong", ["128", 128.0, True])
def test_what_is_no_number_is_refused(wrong):
    with pytest.raises(TypeError, match="max_participants is a number"):
        rm.Publisher("t", max_participants=wrong)


def test_min_readers_may_be_as_many():
    with pytest.raises(ValueError, match=r"min_readers is from 0 to 127.*max_participants= makes it more"):
        rm.Publisher("t", min_readers=500)
    with (
        rm.Publisher("t", min_readers=500, max_participants=501) as pub,
        pytest.raises(rm.Full, match="0 of 500 readers"),
    ):
        pub.send(b"x", timeout=0)


def test_frames_and_queues_pass_it_on():
    with rm.FramePublisher("f", size=16, max_participants=300), rm.SyncQueue("q", "me", max_participants=301):
        assert rm.info("f").max_participants == 300
        assert rm.info("q").max_participants == 301


@pytest.mark.descriptors(4096)
def test_readers_wait_for_a_topic_of_many():
    """More than 128 readers, each of them there before the topic: all get its first message."""
    subs = [rm.Subscriber("t") for _ in range(200)]
    with rm.Publisher("t", contract="reliable", capacity=4096, max_participants=300) as pub:
        assert pub.wait_for_readers(200, timeout=10)
        pub.send(b"first")
        assert [sub.recv(timeout=0) for sub in subs] == [b"first"] * 200
        for sub in subs:
            sub.close()


@pytest.mark.descriptors(4096)
@pytest.mark.parametrize("contract", contracts.TO_ALL)
def test_560_participants_of_one_process(contract):
    with rm.Publisher("t", contract=contract, capacity=4096, max_participants=561) as pub:
        subs = [rm.Subscriber("t") for _ in range(560)]
        with pytest.raises(rm.RosterFull, match="561 slots"):
            rm.Subscriber("t")
        for number in range(100):
            pub.send(b"%d" % number, timeout=0)
            assert {sub.recv(timeout=0) for sub in subs} == {b"%d" % number}
        for sub in subs:
            sub.close()


@pytest.mark.descriptors(4096)
def test_4096_participants_of_a_few_processes(child):
    with rm.Publisher("t", contract="reliable", capacity=4096, max_participants=4096) as pub:
        processes = [child(READERS, str(count)) for count in (1024, 1024, 1024, 1023)]
        for each in processes:
            assert each.line(timeout=120) == "in"
        assert len(rm.info("t").readers) == 4095
        with pytest.raises(rm.RosterFull, match="4096 slots"):
            rm.Subscriber("t")
        pub.send(b"all")
        for each in processes:
            each.tell()
        assert [each.line(timeout=120) for each in processes] == ["1024", "1024", "1024", "1023"]
        for each in processes:
            each.finish(timeout=120)
