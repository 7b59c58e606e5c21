"""Messages as text: decoded by the topic's schema, for people or as JSON.

`Decoder` turns payloads into plain data (dicts, lists, numbers, text; arrays and tables stay) without the class they
were made from. `block` formats a message in several lines, `json_line` in one line of JSON.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ringmain._cli.exit_codes import CommandError
from ringmain._cli.text_format import bytes_text, dim, printable
from ringmain._message import Message
from ringmain.errors import CodecNotFound, SchemaError
from ringmain.frames._descriptor import read_descriptor
from ringmain.typed import Codec, Schema, codec_from_schema

BRIEF_BYTES = 256
"""How many bytes of a payload are shown without --full."""
BRIEF_ITEMS = 16
"""How many items of a list are shown without --full."""
_BRIEF_ELEMENTS = 64  # of an array
_MISREADS = (ValueError, TypeError, KeyError)  # msgspec's, numpy's and Arrow's errors are all one of these


class Decoder:
    """Decodes one topic's payloads. Without a schema, or with a codec that is not installed, they stay bytes. With
    `frames`, a message is the description of its frame."""

    def __init__(self, schema: Schema | None, *, frames: bool = False) -> None:
        self.schema = schema
        self._frames = frames
        self.why_bytes: str | None = None
        self._codec: Codec | None = None
        # Where no record is sent without its field names, msgspec does all of it, which is faster.
        self._plain = plain
        if schema is not None:
            if schema.has_positional:
                self._plain = _by_field
            try:
                self._codec = codec_from_schema(schema)
            except (CodecNotFound, SchemaError, ImportError) as error:
                self.why_bytes = str(error)

    def plain(self, payload: bytes) -> Any:
        """The message as plain data. `ValueError` if it does not decode."""
        if self._codec is None:
            frame = read_descriptor(payload) if self._frames else None
            return payload if frame is None else frame._asdict()
        try:
            return self._plain(self._codec.decode(payload))
        except _MISREADS as error:
            raise ValueError(f"does not decode as {self._codec.schema.type_name}: {error}") from error


def plain(value: Any) -> Any:
    """Records as dicts, tuples as lists; arrays, tables and bytes stay."""
    if _is_record(value):
        from ringmain.typed._structs import to_builtins

        return to_builtins(value)
    if _is_array(value) or _is_table(value):
        return value
    kept = [bytes, bytearray, memoryview]
    if "numpy" in sys.modules:  # otherwise there is no array
        kept.append(sys.modules["numpy"].ndarray)
    return msgspec.to_builtins(value, builtin_types=kept)


def _by_field(value: Any) -> Any:
    """As `plain`; also a record that is sent as an array (an `array_like` Struct, a NamedTuple) is a dict."""
    if isinstance(value, msgspec.Struct):
        tagged = value.__struct_config__
        tag = {} if tagged.tag_field is None else {tagged.tag_field: tagged.tag}
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return tag | {key: _by_field(getattr(value, name)) for key, name in names}
    if isinstance(value, Mapping):
        return {plain(key): _by_field(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_by_field(item) for item in value]
    return plain(value)


def fields_of(message: Message) -> dict[str, Any]:
    """The names in a filter: the message's fields, `data` for all of it, and the envelope as `message.seq` etc."""
    data = message.data
    envelope = {name: getattr(message, name) for name in ("seq", "time_ns", "sender", "kind", "lost")}
    if isinstance(data, bytes):
        envelope["size"] = len(data)
        data = data.decode(errors="replace")
    own = {str(key): value for key, value in data.items()} if isinstance(data, Mapping) else {}
    return {"data": data, "message": envelope, **own}


# ------------------------------------------------------------------------------------------------ for people


def block(message: Message, *, full: bool = False, envelope: bool = True) -> str:
    """A message in several lines: its envelope, then its value."""
    lines = [dim(envelope_line(message))] if envelope else []
    return "\n".join([*lines, *value_lines(message.data, full=full)])


def envelope_line(message: Message) -> str:
    """Sequence number, time of day, sender, kind, and how many messages were lost before it."""
    seconds, rest = divmod(message.time_ns, 1_000_000_000)
    when = time.strftime("%H:%M:%S", time.localtime(seconds))
    parts = [f"#{message.seq}", f"{when}.{rest // 1000:06d}"]
    if message.sender:
        parts.append(f"from {printable(message.sender)}")
    if message.kind:
        parts.append(f"kind {printable(message.kind)}")
    if message.reply_to is not None:
        parts.append(f"reply to #{message.reply_to}")
    if message.lost:
        parts.append(f"({message.lost} lost before)")
    return "  ".join(parts)


def value_lines(value: Any, *, full: bool = False) -> list[str]:
    """A value as indented lines."""
    if isinstance(value, bytes | bytearray | memoryview):
        return hex_lines(bytes(value), full=full)
    if _is_array(value):
        return _array_lines(value, full)
    if _is_table(value):
        return _table_lines(value, full)
    if _is_nested(value):
        return list(_tree(value, full))
    return [inline(value, full)]


def hex_lines(payload: bytes, *, full: bool = False) -> list[str]:
    """Bytes as hex and text, 16 in a line."""
    if not payload:
        return ["(empty)"]
    shown = payload if full else payload[:BRIEF_BYTES]
    lines = []
    width = min(16, len(payload)) * 3
    for at in range(0, len(shown), 16):
        row = shown[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):<{width}} |{text}|")
    if len(shown) < len(payload):
        lines.append(f"... {bytes_text(len(payload) - len(shown))} more (--full shows all)")
    return lines


def inline(value: Any, full: bool = False) -> str:
    """A value in one line."""
    if isinstance(value, bytes | bytearray | memoryview):
        size = len(value)
        head = bytes(value[: size if full else 32]).hex(" ")
        return f"{head}{'' if full or size <= 32 else ' ...'} ({size} B)" if size else "(empty)"
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list | tuple):
        items = value if full else value[:BRIEF_ITEMS]
        more = f", ... {len(value) - len(items)} more" if len(items) < len(value) else ""
        return f"[{', '.join(inline(item, full) for item in items)}{more}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{inline(key)}: {inline(item, full)}" for key, item in value.items()) + "}"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if _is_array(value):
        return " ".join(_array_text(value, full).split())
    return printable(str(value))


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list | tuple) and any(map(_is_nested, value)))


def _tree(value: Any, full: bool) -> Iterator[str]:
    """Nested records, indented as in YAML."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if _is_nested(item) and item:
                yield f"{inline(key)}:"
                yield from (f"  {line}" for line in _tree(item, full))
            else:
                yield f"{inline(key)}: {inline(item, full)}"
        return
    items = value if full else value[:BRIEF_ITEMS]
    for item in items:
        lines = _tree(item, full) if _is_nested(item) and item else [inline(item, full)]
        for number, line in enumerate(lines):
            yield f"{'  ' if number else '- '}{line}"
    if len(items) < len(value):
        yield f"... {len(value) - len(items)} more (--full shows all)"


def _is_record(value: Any) -> bool:
    """Of a structured dtype: a message of a struct."""
    return type(value).__module__ == "numpy" and type(value).__name__ == "void"


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy"


def _is_table(value: Any) -> bool:
    return type(value).__module__.startswith("pyarrow")


def _array_lines(array: Any, full: bool) -> list[str]:
    lines = [f"{array.dtype}{list(array.shape)}", *_array_text(array, full).splitlines()]
    return lines if full or not any("..." in line for line in lines) else [*lines, "... (--full shows all)"]


def _array_text(array: Any, full: bool) -> str:
    """With `full` all elements, also those of arrays inside records, which numpy counts apart from the records."""
    import numpy

    most = sys.maxsize if full else _BRIEF_ELEMENTS
    return numpy.array2string(numpy.asarray(array), threshold=most, edgeitems=3, max_line_width=110)


def _table_lines(table: Any, full: bool) -> list[str]:
    rows = table.num_rows
    lines = [f"{rows} row{'s' * (rows != 1)} of {', '.join(f'{f.name}: {f.type}' for f in table.schema)}"]
    shown = table if full else table.slice(0, BRIEF_ITEMS)
    lines += [inline(row, full) for row in shown.to_pylist()]
    return lines if shown.num_rows == rows else [*lines, f"... {rows - shown.num_rows} more (--full shows all)"]


# ---------------------------------------------------------------------------------------------- for programs


def json_line(message: Message) -> str:
    """A message as one line of JSON: the envelope and `data`. Bytes are `text` if they are UTF-8, else `base64`.

    It holds all of the message, or this raises. (NaN and infinity, which JSON does not have, are null.)
    """
    out: dict[str, Any] = {"topic": message.topic} if message.topic else {}
    out.update(seq=message.seq, time_ns=message.time_ns)
    out.update({name: value for name in ("sender", "kind", "trace", "lost") if (value := getattr(message, name))})
    data = message.data
    if isinstance(data, bytes):
        try:
            out["text"] = data.decode()
        except UnicodeDecodeError:
            out["base64"] = data
    elif _is_array(data):
        out["data"] = {"dtype": str(data.dtype), "shape": list(data.shape), "values": data.tolist()}
    elif _is_table(data):
        out["data"] = data.to_pylist()
    else:
        out["data"] = data
    try:
        return msgspec.json.encode(out, enc_hook=_json_value).decode()
    except TypeError as error:
        raise CommandError(
            f"message {message.seq} has no form as JSON: {error}; echo --raw, and export to .parquet, keep its bytes"
        ) from error


def _json_value(value: Any) -> Any:
    """What msgspec does not know. Never the `str` of an array, which leaves elements out."""
    if _is_array(value) and value.ndim:
        return value.tolist()
    if _is_array(value) or isinstance(value, complex):
        return str(value)  # a number that Python's float does not hold: numpy.longdouble, complex
    raise TypeError(f"JSON has no form for {type(value).__name__}")
