"""What `list`, `info`, `top` and `doctor` say of a work topic: what waits, who has what, and who sits on the tail."""

from __future__ import annotations

import dataclasses
import json

import pytest

import ringmain as rm
from ringmain._cli.live import view
from ringmain._cli.live.model import Model, Seen
from ringmain._cli.observe import read_counters
from ringmain._cli.topic_checks import diagnose


@pytest.fixture
def jobs():
    """anna has one message, which was given back before; two wait."""
    with rm.Publisher("jobs", contract="work", sender="boss", capacity=4096) as pub:
        pub.send_many([b"0", b"1", b"2"])
        with rm.Subscriber("jobs", name="anna") as anna, rm.Subscriber("jobs", name="ben") as ben:
            ben.reject(ben.recv(timeout=1))
            assert anna.recv_message(timeout=1).redelivered == 1
            yield pub
    rm.unlink("jobs")


def test_list_has_columns_for_work_where_there_is_any(ringmain, jobs):
    with rm.Publisher("imu"):
        lines = ringmain("list").out.splitlines()
    assert lines[0].split()[-2:] == ["WAITING", "TAKEN"]
    assert lines[1].split()[-1] == "0"  # imu: the cells are empty, and LOST is last
    assert lines[2].split()[-2:] == ["2", "1"]
    (told,) = json.loads(ringmain("list", "--json").out)
    assert told["waiting"] == 2
    assert [(reader["name"], reader["taken"], reader["redelivered"]) for reader in told["readers"]] == [
        ("anna", 1, 1),
        ("ben", 0, 0),
    ]


def test_info_shows_what_each_worker_has(ringmain, jobs):
    out = ringmain("info", "jobs").out
    assert "work      2 waiting, 1 taken, one by anna for " in out
    (heads,) = [line.split() for line in out.splitlines() if line.startswith("WHO")]
    assert heads[-2:] == ["TAKEN", "REDELIVERED"]
    rows = {line.split()[0]: line.split()[-2:] for line in out.splitlines() if line.startswith(("anna", "ben"))}
    assert rows == {"anna": ["1", "1"], "ben": ["0", "0"]}


def test_doctor_names_the_worker_that_sits_on_the_tail(ringmain, jobs):
    out = ringmain("doctor", "jobs", "--interval", "0.01").out
    assert "2 messages wait for a worker, 1 are taken" in out
    assert "reader 'anna'" in out
    assert "which has had a message for " in out
    assert "was given 1 messages that another worker had given back" in out


def test_doctor_says_for_how_long_a_writer_waits_for_it(jobs):
    with rm.Subscriber("jobs", name="eager") as eager, pytest.raises(rm.Full):
        while True:
            jobs.send(bytes(500), timeout=0)
            eager.recv(timeout=1)
    before = rm.info("jobs")
    writer = dataclasses.replace(before.writers[0], waits_for="anna")
    found = next(iter(diagnose(before, dataclasses.replace(before, writers=[writer]), 0.5)))
    assert (found.what, found.state) == ("stuck", "bad")
    assert "waits for reader 'anna'" in found.text
    assert "which has had a message for " in found.text


def test_top_shows_what_waits_and_who_has_the_oldest(jobs):
    with rm.Subscriber("jobs", name="eager") as eager, pytest.raises(rm.Full):
        while True:
            jobs.send(bytes(500), timeout=0)
            eager.recv(timeout=1)
    model = Model()
    model.look([Seen(rm.info("jobs"), read_counters("jobs"))])
    (row,) = model.rows()
    assert row.behind == rm.info("jobs").waiting
    assert view.trouble(row) == "anna has the oldest message"
    assert "TAKEN" in view.details(row, 0)


def test_a_queue_whose_work_is_done_is_empty(ringmain):
    with rm.Publisher("q", contract="work", capacity=65536) as pub, rm.Subscriber("q") as worker:
        for _ in range(1000):
            pub.send(bytes(100))
            worker.recv(timeout=1)
        worker.try_recv()
        assert "0 B of 64.0 KiB used (0%)" in ringmain("info", "q").out
        assert "used" not in ringmain("doctor", "q", "--interval", "0.01").out
