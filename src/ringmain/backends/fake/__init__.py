"""The `fake` backend: topics in this process alone, on a virtual clock. See `ringmain.testing`."""

from __future__ import annotations

from ringmain.backends.fake._publisher import FakePublisher
from ringmain.backends.fake._subscriber import FakeSubscriber, wait

__all__ = ["FakePublisher", "FakeSubscriber", "wait"]
