"""The futures of a client, and the thread that settles them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from ringmain import _native

if TYPE_CHECKING:
    from ringmain.backends._requests import Done


class Futures:
    """Of one client. Their thread receives replies only while some are in flight and no caller does."""

    def __init__(self, service: str, end: _native.ClientEnd) -> None:
        self._service, self._end, self._waiter = service, end, end.new_waiter()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._settles = False  # the thread, all that is sent

    def submit(self, start: Callable[[Any, Done], Any], result: Callable[[Any], Any]) -> Future[Any]:
        future: Future[Any] = Future()

        def done(call: _native.Call, error: BaseException | None) -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                if error is not None:
                    raise error
                value = result(call)
            except BaseException as raised:
                future.set_exception(raised)
            else:
                future.set_result(value)

        start(self._waiter, done)
        with self._lock:
            if not self._settles:
                name = f"ringmain replies of '{self._service}'"
                self._thread = threading.Thread(target=self._settle_all, name=name, daemon=True)
                self._thread.start()
                self._settles = True
        return future

    def _settle_all(self) -> None:
        try:
            while True:
                for call in self._wait():
                    _settle(call, None)
        # Also `Closed`: a request may be sent while the client closes. None settles what is sent from now on: the next
        # `submit` starts another thread.
        except BaseException as error:
            with self._lock:
                self._settles = False
            for call in self._end.forget(self._waiter):
                _settle(call, error)

    def _wait(self) -> list[_native.Call]:
        return self._end.wait_for_any(self._waiter)

    def join(self) -> None:
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join()


def _settle(call: _native.Call, error: BaseException | None) -> None:
    """`Future` passes on what a callback raises, if it is no `Exception`: it must not cost others their results."""
    try:
        call.done(call, error)
    except BaseException:
        logging.getLogger("concurrent.futures").exception("exception calling callback")
