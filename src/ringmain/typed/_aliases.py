"""What an alias stands for: `type Image = NDArray[uint8]`, and `NDArray` itself, which is one from numpy 2.5 on.

An alias is known by its `__value__`: `typing.TypeAliasType` came with Python 3.12, and typing_extensions has its own.
"""

from __future__ import annotations

import typing
from typing import Any


def without_alias(type_: Any) -> Any:
    """The type itself, where this is an alias of it, or of an alias of it; its arguments may be aliases still."""
    while True:
        origin, arguments = typing.get_origin(type_), typing.get_args(type_)
        if hasattr(origin, "__value__"):
            type_ = origin.__value__[arguments]
        elif hasattr(type_, "__value__"):
            type_ = type_.__value__
        else:
            return type_
