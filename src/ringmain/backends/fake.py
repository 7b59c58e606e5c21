"""The `fake` backend: topics in this process alone, on a virtual clock. See `ringmain.testing`."""

from __future__ import annotations

from ringmain.backends.fake_publisher import FakePublisher
from ringmain.backends.fake_subscriber import FakeSubscriber, wait

__all__ = ["FakePublisher", "FakeSubscriber", "wait"]
