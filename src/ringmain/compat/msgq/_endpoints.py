"""Where msgq's endpoints are on ringmain.

`OPENPILOT_PREFIX` keeps programs apart as it does there: those with another prefix have other endpoints.
"""

from __future__ import annotations

import os

from ringmain.compat._names import escaped, text

_PREFIX = "OPENPILOT_PREFIX"


def place(endpoint: str | bytes, kind: str = "msgq") -> str:
    """The topic of an endpoint: `msgq/carState`, or with a prefix `msgq/<prefix>/carState`."""
    prefix = os.environ.get(_PREFIX)
    return "/".join(
        [kind, *([escaped(prefix, keep="/")] if prefix else []), escaped(text(endpoint).strip("/"), keep="/")]
    )
