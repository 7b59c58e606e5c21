"""The `fake` backend: topics in this process alone, on a virtual clock. `ringmain.testing` is its public face."""

from __future__ import annotations

from ringmain.backends.fake._publisher import FakePublisher
from ringmain.backends.fake._subscriber import FakeSubscriber

__all__ = ["FakePublisher", "FakeSubscriber"]
