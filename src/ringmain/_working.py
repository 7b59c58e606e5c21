"""`Working`: what subscribers of a `work` topic do besides receiving. Mixed into the subscribers of all backends."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from ringmain._contracts import CONTRACTS
from ringmain._endpoint import Endpoint
from ringmain.errors import TopicMismatch

DEAD_SUFFIX = ".dead"


class Working(Endpoint):
    """On `work`, a message that was received is done at the next receiving call, or at `close()`. One whose `with`
    block raises, or whose program ends first, is given back."""

    _dead_letters: Any = None

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
        if CONTRACTS[contract].keeps_unread and options["start"] == "last" and options["observe"] == "never":
            raise TopicMismatch(
                f"'{self.topic}' is a {contract} topic: its unread messages wait for a reader, so start='last', which "
                "skips them, is not for it. Leave it out, or observe with observe='always'"
            )
        if CONTRACTS[contract].shared and options["conflate"]:
            raise TopicMismatch(
                f"'{self.topic}' is a work topic: each of its messages is done by one worker, so conflate=True, which "
                "skips messages, is not for it"
            )

    def _bury(self, data: bytes, sender: str, kind: str, seq: int, redelivered: int) -> None:
        """Move a message that was given back too often to topic `NAME.dead`. `Full` if that has no room."""
        if self._dead_letters is None:
            from ringmain._publisher import Publisher

            backend: Any = self._backend
            self._dead_letters = Publisher(self.topic + DEAD_SUFFIX, contract="work", persist=True, backend=backend)
            self._dead_letters._set_schema(self._schema())  # type: ignore[attr-defined]
        self._dead_letters._set_sender(sender)
        self._dead_letters.send(data, kind, 0)
