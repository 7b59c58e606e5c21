"""`Receiver`: a client's way back. Receives replies and gives each to its call, whichever thread or task waits for it.

Owns this invariant: at any moment at most one of these receives, and it does so for all: a thread that waits for a call
of its own, the thread for the futures of `submit`, or a task of an event loop.
"""

from __future__ import annotations

import threading
from typing import Any

from ringmain._service import _endpoints
from ringmain._service._calls import Call, Calls
from ringmain._service._sending import Sender
from ringmain._subscriber import Subscriber
from ringmain.errors import Closed, ServerGone

SLICE_S = 0.1
"""How long a client waits for replies before it looks whether its requests are still to be answered."""
_FIRST_SLICE_S = 0.01
_AT_ONCE = 64
"""Replies that are received in one call."""


class Receiver:
    """Of one client."""

    def __init__(self, service: str, calls: Calls, sender: Sender, replies: Subscriber) -> None:
        self._service, self._calls, self._sender = service, calls, sender
        self.replies = replies
        self._closed = False
        self._turn = threading.Condition()
        self._receives = False  # does a thread that waits for its call?
        self._followers = 0
        self._thread: threading.Thread | None = None

    @property
    def has_thread(self) -> bool:
        """Does a thread receive for all?"""
        return self._receives or self._thread is not None

    def outcome(self, call: Call) -> Any:
        """Wait for the reply. One thread receives for all that wait: this one, if no other does."""
        try:
            while not call.finished and not self._sender.is_late(call):
                with self._turn:
                    receives = not self.has_thread
                    if receives:
                        self._receives = True
                    elif not call.finished:
                        self._followers += 1
                        self._turn.notify_all()  # the thread may not know of this call yet
                        self._turn.wait(self._left_s(call))
                        self._followers -= 1
                if receives:
                    try:
                        self._receive_for(call)
                    finally:
                        with self._turn:
                            self._receives = False
                            self._turn.notify_all()
            if not call.finished:
                raise self._sender.timed_out(call)
        finally:
            self._calls.drop(call)
        return call.outcome()

    def _left_s(self, call: Call) -> float:
        """Until it is late, but no more than a slice."""
        if call.deadline_s is None:
            return SLICE_S
        return min(SLICE_S, max(0.0, call.deadline_s - self._sender.clock_s()))

    def _receive_for(self, call: Call) -> None:
        slice_s = _FIRST_SLICE_S
        while not call.finished and not self._sender.is_late(call):
            if not self.receive(min(slice_s, self._left_s(call))):
                slice_s = min(2 * slice_s, SLICE_S)
                self.give_up_lost([call])

    def receive(self, timeout: float) -> bool:
        """Give replies to their calls. False: there was none."""
        leases = _endpoints.borrow_many(self.replies, _AT_ONCE, timeout)
        for lease in leases:
            kind, payload = lease.kind, bytes(memoryview(lease))
            lease.release()
            self._calls.give(kind, payload)
        if leases and self._followers:
            self.notify()
        return bool(leases)

    def give_up_lost(self, calls: list[Call]) -> None:
        """`ServerGone` for calls whose server died: no other will run them."""
        for call in calls:
            if not call.finished and self._sender.is_lost(call):
                self.receive(0)  # it may have replied before it died
                gone = f"service '{self._service}': the server that had the request died, or left without an answer"
                self._calls.fail(call, ServerGone(gone, service=self._service))

    def notify(self) -> None:
        """To those that wait: there is another call, or a reply, or the client is closed."""
        with self._turn:
            self._turn.notify_all()

    # ------------------------------------------------------------------------- the thread of `submit`

    def start_thread(self) -> None:
        with self._turn:
            if self._thread is None:
                name = f"ringmain replies of '{self._service}'"
                self._thread = threading.Thread(target=self._receive_in_thread, name=name, daemon=True)
                self._thread.start()
            self._turn.notify_all()

    def _receive_in_thread(self) -> None:
        looked_s = self._sender.clock_s()
        try:
            while not self._closed:
                with self._turn:
                    self._turn.wait_for(lambda: self._closed or (len(self._calls) and not self._receives))
                calls = self._calls.all()
                found = self.receive(min((self._left_s(call) for call in calls), default=0.0))
                if not found or self._sender.clock_s() - looked_s > SLICE_S:  # also while other replies keep coming
                    self.give_up_lost(calls)
                    self._give_up_late(calls)
                    looked_s = self._sender.clock_s()
        except Closed:
            pass
        except BaseException as error:  # no thread would settle them; the next `submit` starts another
            failure = error
            self._calls.fail_all(lambda: failure)
        finally:
            self._thread = None

    def _give_up_late(self, calls: list[Call]) -> None:
        for call in calls:
            if call.done is not None and self._sender.is_late(call):
                self._calls.fail(call, self._sender.timed_out(call))

    # ------------------------------------------------------------------------------------- closing

    def end_calls(self) -> None:
        """The client closes: calls that wait raise `Closed`."""
        self._closed = True
        closed = f"the client of service '{self._service}' was closed"
        self._calls.fail_all(lambda: Closed(closed, service=self._service))
        self.notify()

    def close(self) -> None:
        self.replies.close()
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join()
