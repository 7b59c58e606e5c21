"""numpy arrays inside of MessagePack: in a dict, a list, or the field of a Struct.

An array is an extension (code 78) with the prefix of `_arrays.py`, zeros, and the elements. The zeros make the elements
begin at an offset in the payload that is divisible by 8. Invariant: a payload that begins at such an address has
aligned arrays, and `decode` gives views of it, without a copy.

msgspec does not say where in its output an extension will be. So it writes a token for each array, and the token is
replaced afterwards: containers count their items, not their bytes, so what is around a token stays as it is.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from ringmain.typed._codec import Buffer

CODE = 78
_EXT32 = struct.Struct(">BIb")
_TOKEN = os.urandom(8)


def encoder(*, expected: bool) -> Callable[[Any], Buffer]:
    """For types that may hold arrays. `expected`: one that does; otherwise most messages have none."""
    if expected:
        return _encode
    plain = msgspec.msgpack.Encoder().encode

    def encode(value: Any) -> Buffer:
        try:
            return plain(value)
        except TypeError:
            if "numpy" not in sys.modules:
                raise
        return _encode(value)

    return encode


def _encode(value: Any) -> bytes:
    import numpy

    from ringmain.typed._arrays import elements, prefix_of

    arrays: list[Any] = []

    def hook(item: Any) -> Any:
        if isinstance(item, numpy.ndarray):
            arrays.append(item)
            return msgspec.msgpack.Ext(CODE, _TOKEN + struct.pack("<Q", len(arrays)))
        if isinstance(item, numpy.generic) and isinstance(number := item.item(), bool | int | float | str | bytes):
            return number
        raise TypeError(f"Encoding objects of type {type(item).__name__} is unsupported")

    packed = msgspec.msgpack.Encoder(enc_hook=hook).encode(value)
    parts: list[Any] = []
    size = done = 0
    for number, array in enumerate(arrays, 1):
        token = b"\xd8%c%s%s" % (CODE, _TOKEN, struct.pack("<Q", number))
        at = packed.index(token, done)
        size += at - done + _EXT32.size
        prefix = prefix_of(array, size)
        head = _EXT32.pack(0xC9, len(prefix) + array.nbytes, CODE)
        parts += (packed[done:at], head, prefix, elements(array))
        size += len(prefix) + array.nbytes
        done = at + len(token)
    parts.append(packed[done:])
    return b"".join(parts)


def ext_hook(code: int, data: memoryview) -> Any:
    """For a `msgspec.msgpack.Decoder`."""
    if code != CODE:
        return msgspec.msgpack.Ext(code, bytes(data))
    from ringmain.typed._arrays import read_array

    return read_array(data)


def dec_hook(type_: Any, value: Any) -> Any:
    """For a `msgspec.msgpack.Decoder`: a field that is an array has an array of its dtype."""
    import numpy

    from ringmain.typed._arrays import fixed_dtype

    if not isinstance(value, numpy.ndarray):
        raise ValueError(f"expected an array, got {type(value).__name__}")
    dtype = fixed_dtype(type_)
    if dtype is not None and value.dtype != dtype:
        raise ValueError(f"expected an array of {dtype}, got {value.dtype}")
    return value


def to_json(value: Any) -> Any:
    """For a `msgspec.json.Encoder`: an array as nested lists."""
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
