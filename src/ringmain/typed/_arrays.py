"""numpy arrays as payloads: a small prefix with dtype and shape, then the elements.

    byte 0      1 version, always 1
         1      1 number of dimensions
         2      2 bytes of dtype text
         4      4 offset of the elements
         8     8n shape, int64 each
         8+8n     dtype text: numpy's own ("<f4"), or for records a JSON list of [name, dtype, shape]
         ...      zeros up to the offset
         offset   the elements, C order

All little-endian. Invariant: if a payload begins at an address divisible by 8, so do its elements: the offset is a
multiple of 8, unless the array is inside of another message (`_array_values.py`). `decode` returns a read-only view,
without a copy.
"""

from __future__ import annotations

import functools
import math
import struct
import typing
from collections.abc import Callable
from typing import Any

import msgspec
import numpy

from ringmain.errors import SchemaError
from ringmain.typed import _model
from ringmain.typed._aliases import without_alias
from ringmain.typed._codec import Buffer, Codec, SimpleCodec
from ringmain.typed._schema import Schema

_PREFIX = struct.Struct("<BBHI")
_VERSION = 1


def array_codec(type_: Any) -> Codec:
    """The codec for `numpy.ndarray`, or with a fixed dtype for `numpy.typing.NDArray[numpy.float32]`."""
    return _codec(fixed_dtype(type_))


def fixed_dtype(type_: Any) -> numpy.dtype[Any] | None:
    """That of `numpy.typing.NDArray[numpy.float32]`; None if the type does not say."""
    for argument in map(without_alias, typing.get_args(without_alias(type_))):
        if typing.get_origin(argument) is numpy.dtype:
            (scalar,) = typing.get_args(argument)
            if isinstance(scalar, type):
                return numpy.dtype(scalar)
    return None


def array_codec_from_schema(schema: Schema) -> Codec:
    text = schema.params.get("dtype")
    return _codec(None if text is None else parse_dtype(text, schema))


def parse_dtype(text: str, schema: Schema) -> numpy.dtype[Any]:
    """The dtype a schema names."""
    try:
        return _dtype_from_text(text.encode())
    except ValueError as error:
        raise SchemaError(f"the schema of {schema.type_name!r} has no usable dtype: {error}") from error


def _codec(dtype: numpy.dtype[Any] | None) -> Codec:
    params = {} if dtype is None else {"dtype": dtype_text(dtype).decode()}
    name = "ndarray" if dtype is None else f"ndarray[{dtype.name}]"
    schema = Schema("ndarray", name, _model.ANY, params=params)
    return SimpleCodec(schema, _encoder(dtype), _decoder(dtype), (numpy.ndarray,), keeps_views=True)


def _encoder(expected: numpy.dtype[Any] | None) -> Callable[[Any], Buffer]:
    def encode(array: Any) -> bytes:
        if not isinstance(array, numpy.ndarray):
            raise TypeError(f"expected a numpy.ndarray, got {type(array).__name__}")
        if expected is not None and array.dtype != expected:
            raise TypeError(f"expected an array of {expected}, got {array.dtype}: use array.astype({expected.name!r})")
        return b"".join((prefix_of(array), elements(array)))

    return encode


def prefix_of(array: numpy.ndarray[Any, Any], at: int = 0) -> bytes:
    """The prefix, for an array that begins `at` so many bytes after an address divisible by 8."""
    text = dtype_text(array.dtype)
    unpadded = _PREFIX.size + 8 * array.ndim + len(text)
    offset = unpadded + -(at + unpadded) % 8
    return b"".join((
        _PREFIX.pack(_VERSION, array.ndim, len(text), offset),
        struct.pack(f"<{array.ndim}q", *array.shape),
        text,
        bytes(offset - unpadded),
    ))  # fmt: skip


def elements(array: numpy.ndarray[Any, Any]) -> Buffer:
    return numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8).data if array.nbytes else b""


def _decoder(expected: numpy.dtype[Any] | None) -> Callable[[Buffer], Any]:
    def decode(buffer: Buffer) -> numpy.ndarray[Any, Any]:
        array = read_array(buffer)
        if expected is not None and array.dtype != expected:
            raise ValueError(f"expected an array of {expected}, got {array.dtype}")
        return array

    return decode


def read_array(buffer: Buffer) -> numpy.ndarray[Any, Any]:
    """The array that begins with its prefix, as a read-only view."""
    dtype, shape, offset = _read_prefix(memoryview(buffer))
    if math.prod(shape) * dtype.itemsize == 0:
        array = numpy.zeros(shape, dtype)
    else:
        array = numpy.ndarray(shape, dtype, buffer=buffer, offset=offset)
    array.flags.writeable = False
    return array


def _read_prefix(view: memoryview) -> tuple[numpy.dtype[Any], tuple[int, ...], int]:
    """(dtype, shape, offset) from the prefix, checked for consistency and against the payload's size."""
    if view.nbytes < _PREFIX.size:
        raise ValueError(f"an array's prefix has at least {_PREFIX.size} bytes, the payload has {view.nbytes}")
    version, dimensions, text_bytes, offset = _PREFIX.unpack_from(view)
    if version != _VERSION:
        raise ValueError(f"not an array, or one of version {version}; this ringmain reads version {_VERSION}")
    text_at = _PREFIX.size + 8 * dimensions
    if dimensions > 64 or not text_at + text_bytes <= offset <= view.nbytes:
        raise ValueError("the array's prefix is inconsistent")
    shape = struct.unpack_from(f"<{dimensions}q", view, _PREFIX.size)
    dtype = _dtype_from_text(bytes(view[text_at : text_at + text_bytes]))
    if any(length < 0 for length in shape):
        raise ValueError(f"an array cannot have the shape {shape}")
    if dtype.itemsize == 0 and math.prod(shape) > 0:  # numpy.zeros would allocate a byte for each
        raise ValueError(f"an array of {dtype} and shape {shape} has elements without bytes")
    if math.prod(shape) * dtype.itemsize != view.nbytes - offset:
        raise ValueError(
            f"an array of {dtype} and shape {shape} has {math.prod(shape) * dtype.itemsize} bytes, "
            f"the payload has {view.nbytes - offset}"
        )
    return dtype, shape, offset


# Cached: parsing a dtype costs more than making the array, and a topic has few dtypes.
@functools.lru_cache(maxsize=256)
def dtype_text(dtype: numpy.dtype[Any]) -> bytes:
    text = dtype.str.encode() if dtype.names is None else msgspec.json.encode(dtype.descr)
    if dtype.hasobject or len(text) > 0xFFFF or _dtype_from_text(text) != dtype:
        raise TypeError(
            f"an array of {dtype} cannot travel between processes: use a dtype of numbers, bools, "
            "fixed-length strings, times, or records of these"
        )
    return text


@functools.lru_cache(maxsize=256)
def _dtype_from_text(text: bytes) -> numpy.dtype[Any]:
    """numpy's parser accepts more forms than `dtype_text` writes; JSON lists are converted here, not evaluated."""
    try:
        spec = _tuples(msgspec.json.decode(text)) if text[:1] == b"[" else text.decode("ascii")
        dtype = numpy.dtype(spec)
    except (TypeError, ValueError, SyntaxError, RecursionError, msgspec.DecodeError) as error:
        raise ValueError(f"the array's dtype is not one numpy knows: {text[:80]!r}") from error
    if dtype.hasobject:
        raise ValueError("the array's dtype contains Python objects, which cannot be sent")
    return dtype


def _tuples(descr: Any) -> Any:
    """JSON has lists where numpy's `descr` has tuples: each field, and a field's shape."""
    fields = []
    for name, kind, *shape in descr:
        made = _tuples(kind) if isinstance(kind, list) else kind
        fields.append((tuple(name) if isinstance(name, list) else name, made, *(tuple(s) for s in shape)))
    return fields
