"""What the publishers and subscribers written in Python share. They check arguments as the native types do."""

from __future__ import annotations

import functools
import inspect
import operator
from abc import abstractmethod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ringmain import _extension, _names
from ringmain._endpoint import Endpoint
from ringmain._extension import Said
from ringmain._topic_info import parse_schema
from ringmain.errors import Closed

if TYPE_CHECKING:
    from ringmain.typed import Schema

FOREVER_S = 9e9


def parse_timeout(timeout: float | None) -> int | None:
    """Nanoseconds; None: wait without a limit."""
    if timeout is None:
        return None
    if not timeout >= 0:
        raise ValueError("timeout is a number of seconds, 0 or more, or None to wait without a limit")
    return None if timeout > FOREVER_S else int(timeout * 1e9)


def seconds(timeout_ns: int | None) -> float | None:
    """A timeout, for an error."""
    return None if timeout_ns is None else timeout_ns / 1e9


@functools.cache
def _signature(public: Any) -> inspect.Signature:
    return inspect.signature(public.__init__)


class PythonEndpoint(Endpoint):
    """Options, schema and closing. A backend provides `_close`, `contract`, `epoch` and `_schema`."""

    _is_closed = True

    def _set_options(self, public: type, topic: str, options: dict[str, Any]) -> None:
        """Keep the options, and check those that both endpoints have. The signature is that of the public class."""
        asked = _signature(public).bind(None, topic, **options)
        asked.apply_defaults()
        self._options = {key: value for key, value in asked.arguments.items() if key not in ("self", "backend")}
        self._asked = SimpleNamespace(**self._options)
        self.topic = _names.check_topic(topic)
        sender = _names.check_envelope("sender", self._options.get("sender", ""))
        self.name = _names.participant_name(self._asked.name, sender)
        _names.parse_spin(self._asked.spin)
        self._codec: Any = None
        if self._asked.type is not None:
            from ringmain import typed

            self._codec = typed.codec_for(self._asked.type)

    def _opened(self) -> None:
        self._is_closed = False
        self._forks = _names.forks()
        super()._opened()

    @abstractmethod
    def _schema(self) -> bytes:
        """The topic's schema, or nothing."""

    @property
    def schema(self) -> Schema | None:
        """What the topic's messages look like, if it exists and is typed."""
        return parse_schema(self._schema())

    def _check_open(self, while_waiting: bool = False) -> None:
        if self._is_closed:
            state = "was closed while it waited" if while_waiting else "is closed"
            raise Closed(f"the {self._role} of topic '{self.topic}' {state}", topic=self.topic)

    @abstractmethod
    def _close(self) -> None:
        """Leave the topic."""

    @property
    def closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """Leave the topic. Closing twice is harmless."""
        if not self._is_closed:
            self._close()


def check_count(name: str, count: int) -> int:
    """A number of bytes or messages."""
    count = operator.index(count)
    if count < 0:
        raise ValueError(f"{name} must be 0 or more, not {count}")
    return count


def check_kind(kind: Said | str) -> None:
    if not isinstance(kind, str | Said):
        raise TypeError(f"kind is a str, not {type(kind).__name__}")
    size = len(_extension.encoded(kind))
    if size > _extension.MOST_BYTES:
        raise ValueError(f"kind is at most 255 bytes of UTF-8, this one has {size}")
