"""Of many seeds or cases of one kind, `make test` runs some, and `make test-many` the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some(values: Iterable[Any], count: int) -> list[Any]:
    """So many of them, the first, in every run."""
    return [pytest.param(one, marks=[] if at < count else [pytest.mark.many]) for at, one in enumerate(values)]
