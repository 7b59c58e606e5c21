"""The ledger of the lab's readers claims what is promised where a topic is removed and made anew: no more, no less.

How: a writer writes in three lives of a topic, and the reader joins some of them, or is told of their losses.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest

import ringmain as rm

from .actors import CAPACITY, TOPIC, WAITING, Board, Follower, Ledger, Wrong, compose

WRITER, OTHER = 1, 10
FIRST, SECOND, THIRD = 1001, 1002, 1003


@pytest.fixture
def board() -> Board:
    """The writer sends 0 to 3 in the first life, 4 to 7 in the second, and the rest in the third."""
    board = Board()
    for epoch, counter in ((FIRST, 0), (SECOND, 4), (THIRD, 8)):
        board.lives(WRITER).begin(epoch, counter)
    return board


@pytest.fixture
def ledger(board: Board) -> Ledger:
    """Of a reader that had part in the first life, and has read it to its end."""
    ledger = Ledger("reliable", board)
    enter(ledger, FIRST, range(4))
    return ledger


def enter(ledger: Ledger, epoch: int, counters: range, *, seq: int = 0, lost: int = 0, writer: int = WRITER) -> None:
    for i, counter in enumerate(counters):
        ledger.enter(rm.Message(compose(writer, counter), seq + i, 0, lost=0 if i else lost), epoch)


@pytest.mark.parametrize("contract", WAITING)
def test_a_life_that_the_reader_never_joined_is_not_lost(contract: str) -> None:
    board = Board()
    ledger = Ledger(contract, board)
    with ExitStack() as stack:
        for life in range(3):
            pub = stack.enter_context(rm.Publisher(TOPIC, contract=contract, capacity=CAPACITY))  # type: ignore[arg-type]
            if life == 0:
                sub = stack.enter_context(Follower(ledger, TOPIC))
            board.lives(WRITER).begin(pub.epoch, 4 * life)
            for counter in range(4 * life, 4 * life + 4):
                pub.send(compose(WRITER, counter), timeout=0)
            if life < 2:
                rm.unlink(TOPIC, force=True)
        got = []
        while len(got) < 8:
            message = sub.recv_message(timeout=0)
            assert sub.epoch is not None
            got.append(ledger.enter(message, sub.epoch)[1])
        assert got == [0, 1, 2, 3, 8, 9, 10, 11]
        assert sub.lost == 0


def test_what_the_reader_had_part_in_is_read_to_its_end(board: Board) -> None:
    ledger = Ledger("reliable", board)
    enter(ledger, FIRST, range(3))
    with pytest.raises(Wrong, match=f"message 3 is missing, of life {FIRST}"):
        enter(ledger, THIRD, range(8, 9))


def test_also_if_nothing_of_it_came(ledger: Ledger) -> None:
    ledger.join(SECOND)
    with pytest.raises(Wrong, match=f"message 4 is missing, of life {SECOND}"):
        enter(ledger, THIRD, range(8, 9))


def test_the_next_life_is_read_from_its_first_message(ledger: Ledger) -> None:
    with pytest.raises(Wrong, match=f"message 8 is missing, of life {THIRD}"):
        enter(ledger, THIRD, range(9, 10))


def test_what_is_gone_of_the_next_life_is_reported(ledger: Ledger) -> None:
    with pytest.raises(Wrong, match="begins with message 2, but lost is 1"):
        enter(ledger, THIRD, range(10, 11), seq=2, lost=1)
    enter(ledger, THIRD, range(10, 12), seq=2, lost=2)


def test_to_the_message_whichever_writer_sent_it(ledger: Ledger) -> None:
    enter(ledger, THIRD, range(1), seq=2, lost=2, writer=OTHER)
    enter(ledger, THIRD, range(10, 12), seq=3)  # 8 and 9 were the two
    with pytest.raises(Wrong, match="message 12 is missing"):
        enter(ledger, THIRD, range(13, 14), seq=5)


def test_a_reported_loss_counts_in_its_own_life(ledger: Ledger) -> None:
    enter(ledger, SECOND, range(1), seq=4, lost=4, writer=OTHER)  # all that the writer sent there
    enter(ledger, THIRD, range(8, 10))


def test_a_writer_that_stays_in_one_life_need_not_say_which(ledger: Ledger) -> None:
    enter(ledger, SECOND, range(2), writer=OTHER)
    with pytest.raises(Wrong, match=f"writer {OTHER}'s message 2 is missing, of life {SECOND}"):
        enter(ledger, SECOND, range(3, 4), seq=2, writer=OTHER)
