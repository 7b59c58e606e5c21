"""`Working`: what subscribers of a `work` topic do besides receiving. Mixed into the subscribers of all backends."""

from __future__ import annotations

import warnings
from contextlib import suppress
from types import TracebackType
from typing import Any

from ringmain import _extension, _inspect
from ringmain._contracts import CONTRACTS
from ringmain._endpoint import Endpoint
from ringmain.errors import RingmainError, TopicMismatch

DEAD_SUFFIX = ".dead"


class Working(Endpoint):
    """On `work`, a message that was received is done at the next receiving call, or at `close()`. One whose `with`
    block raises, or whose program ends first, is given back."""

    _dead_letters: Any = None
    dead_letters_lost: int = 0
    """On `work` with `max_deliveries`: messages that were to go to topic `NAME.dead`, and could not. They are dropped:
    one that stayed would come back again and again, and no other would be done."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._abandon()
        self.close()

    def close(self) -> None:
        if self._dead_letters is not None:
            self._dead_letters.close()
        super().close()

    def reject(self, task: Any) -> None:
        """On `work`: give a message back at once, so that another worker gets it. `task` is what was received and is
        not finished: the data, the `Message`, or what `borrow` gave."""
        lease_rejects = getattr(task, "_reject", None)
        if lease_rejects is not None:
            lease_rejects()
        elif not self._reject(task):  # type: ignore[attr-defined]
            raise ValueError(
                f"{task!r:.80} is not a message that this subscriber of topic '{self.topic}' has received and not "
                "finished"
            )

    def _abandon(self) -> None:
        self._give_back_all()  # type: ignore[attr-defined]

    def _check_contract(self, contract: str | None, options: dict[str, Any]) -> None:
        """`TopicMismatch` if what was asked for makes no sense on this contract."""
        if contract is None:
            return
        if CONTRACTS[contract].keeps_unread and options["start"] == "newest" and options["observe"] == "never":
            raise TopicMismatch(
                f"'{self.topic}' is a {contract} topic: its unread messages wait for a reader, so start='newest', "
                "which skips them, is not for it. Leave it out, or observe with observe='always'"
            )
        if CONTRACTS[contract].shared and options["conflate"]:
            raise TopicMismatch(
                f"'{self.topic}' is a work topic: each of its messages is done by one worker, so conflate=True, which "
                "skips messages, is not for it"
            )

    def _send_dead_letter(
        self, data: bytes, sender: str, kind: str, extension: bytes, seq: int, redelivered: int
    ) -> None:
        """Move a message that was given back too often to topic `NAME.dead`, or drop it, if that does not take it."""
        try:
            if self._dead_letters is None:
                self._dead_letters = self._open_dead_letters()
                self._dead_letters._set_schema(self._schema())  # type: ignore[attr-defined]
            self._dead_letters._set_sender(sender)
            self._dead_letters._send_as(data, -1, 0, _extension.said(extension, kind), 0)
        except RingmainError as error:
            self.dead_letters_lost += 1
            if self.dead_letters_lost == 1:
                text = f"message {seq} of topic '{self.topic}' failed {redelivered} times and is dropped: {error}"
                warnings.warn(text, RuntimeWarning, stacklevel=3)

    def _open_dead_letters(self) -> Any:
        """With the capacity of the topic itself, so that each of its messages fits; or as it is, if it is there."""
        from ringmain._publisher import Publisher

        options: Any = {"contract": "work", "persist": True, "backend": self._backend}
        capacity = None
        with suppress(RingmainError):
            capacity = _inspect.info(self.topic).capacity
        try:
            return Publisher(self.topic + DEAD_SUFFIX, capacity=capacity, **options)
        except TopicMismatch:
            return Publisher(self.topic + DEAD_SUFFIX, **options)
