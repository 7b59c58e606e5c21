"""What the fake's publishers and subscribers share: they live in a world, and can be killed there."""

from __future__ import annotations

from typing import Any, NoReturn

from ringmain.backends import check_no_address
from ringmain.backends._python.endpoint import PythonEndpoint
from ringmain.backends.fake import _world as worlds
from ringmain.backends.fake._world import Killed


class FakeEndpoint(PythonEndpoint):
    """Mixed into both. They provide `_leave`."""

    _backend = "fake"
    _dead = False

    def _enter_world(self, address: Any) -> None:
        check_no_address(address)
        self._world = worlds.current()
        self._world.pause()

    def _opened(self) -> None:
        self._world.endpoints.append(self)
        super()._opened()

    def _check_open(self, while_waiting: bool = False) -> None:
        if self._dead:
            raise Killed(f"the {self._role} {self.name!r} of topic '{self.topic}' was killed")
        super()._check_open(while_waiting)

    def die(self) -> None:
        """Leave as a process that dies does: nothing is published that was not committed."""
        self._dead = True
        self._close()

    def _close(self) -> None:
        self._is_closed = True
        self._leave()
        if self in self._world.endpoints:
            self._world.endpoints.remove(self)

    def _leave(self) -> None:
        """Give the slot back."""
        raise NotImplementedError

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be passed to another process: a fake world exists in one process alone. "
            "Use ringmain.testing.Lockstep to test several processes"
        )
