"""The `zmq` backend: topics over ZeroMQ, between the processes of a machine or between machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringmain.backends.zmq._address import Address
    from ringmain.backends.zmq._publisher import ZmqPublisher
    from ringmain.backends.zmq._subscriber import ZmqSubscriber

__all__ = ["Address", "ZmqPublisher", "ZmqSubscriber"]

_HOMES = {"Address": "_address", "ZmqPublisher": "_publisher", "ZmqSubscriber": "_subscriber"}


def __getattr__(name: str) -> Any:
    # Imported when they are first used, so that a program which only inspects topics does not load ZeroMQ.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
