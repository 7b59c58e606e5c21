"""The topics of msgq's endpoints.

`OPENPILOT_PREFIX` separates programs as it does in msgq: with another prefix, an endpoint is another topic.
"""

from __future__ import annotations

import os

from ringmain.compat._names import escaped, text

_PREFIX = "OPENPILOT_PREFIX"


def topic_of(endpoint: str | bytes, kind: str = "msgq") -> str:
    """The topic of an endpoint: `msgq/carState`, or with a prefix `msgq/<prefix>/carState`."""
    prefix = os.environ.get(_PREFIX)
    parts = [prefix] if prefix else []
    return "/".join([kind, *(escaped(part, keep="/") for part in [*parts, text(endpoint).strip("/")])])
