"""The `zmq` backend: topics over ZeroMQ, between the processes of a machine or between machines."""

from __future__ import annotations

from ringmain.backends.zmq._publisher import ZmqPublisher
from ringmain.backends.zmq._registry import Address
from ringmain.backends.zmq._subscriber import ZmqSubscriber, wait

__all__ = ["Address", "ZmqPublisher", "ZmqSubscriber", "wait"]
