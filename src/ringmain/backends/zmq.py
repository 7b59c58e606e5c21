"""The `zmq` backend: topics over ZeroMQ, between the processes of a machine or between machines."""

from __future__ import annotations

from ringmain.backends.zmq_place import Address
from ringmain.backends.zmq_publisher import ZmqPublisher
from ringmain.backends.zmq_subscriber import ZmqSubscriber, wait

__all__ = ["Address", "ZmqPublisher", "ZmqSubscriber", "wait"]
