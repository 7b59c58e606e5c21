"""`Handshake`: does the publisher at an address accept this subscriber?

ZeroMQ does not say: it connects again and again, or after a refused key never again, and `recv` waits. Owns this
invariant: a subscriber that waits for a publisher which refuses it raises or warns, with what to change.
"""

from __future__ import annotations

import warnings
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from ringmain.backends.zmq._address import Address
from ringmain.errors import NotAllowed

_ENDED_EARLY = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_OTHER_MECHANISM = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_KEY_REFUSED = zmq.EVENT_HANDSHAKE_FAILED_AUTH
_DONE = zmq.EVENT_HANDSHAKE_SUCCEEDED
PATIENCE = 5
"""How many connections in a row may end early and give no reason: a tunnel or a publisher may be about to start."""


class Handshake:
    """Watches the handshakes of one socket."""

    def __init__(self, topic: str, socket: zmq.Socket[bytes], address: Address) -> None:
        self._topic, self._socket, self._address = topic, socket, address
        self._monitor: Any = socket.get_monitor_socket(_ENDED_EARLY | _OTHER_MECHANISM | _KEY_REFUSED | _DONE)
        self._ended_early = 0
        self.trouble = ""
        """Why nothing comes, for the text of a timeout."""

    def check(self) -> None:
        """Raises `NotAllowed` when the publisher refuses this subscriber, and warns when it seems to."""
        try:
            while True:
                self._take(recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"])
        except zmq.Again:
            return

    def _take(self, event: int) -> None:
        who = f"the publisher at {self._address.endpoint}"
        if event == _DONE:
            self._ended_early, self.trouble = 0, ""
        elif event == _KEY_REFUSED:
            raise NotAllowed(
                f"topic '{self._topic}': {who} does not admit this subscriber: its public key must be among the "
                "publisher's clients",
                topic=self._topic,
            )
        elif event == _OTHER_MECHANISM:
            raise NotAllowed(
                f"topic '{self._topic}': {who} refuses the connection: {self._remedy()}", topic=self._topic
            )
        else:
            self._ended_early += 1
            if self._ended_early == PATIENCE:
                self.trouble = f"{who} ends every connection before it answers: {self._remedy()}"
                warnings.warn(f"topic '{self._topic}': {self.trouble}", RuntimeWarning, stacklevel=2)

    def _remedy(self) -> str:
        if self._address.server_key:
            return "perhaps it has no keys, or server_key is not its public key"
        return "it probably has keys, and then this subscriber's Address needs server_key=, its public key"

    def close(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close()
