"""Extensions: what ringmain's own parts say of a message beside its kind, which belongs to the user
(docs/spec/shared-memory.md). Bytes as in native/format/extension.hpp; a few messages have one: requests their terms,
replies the number of their request, and what was sent inside a span its trace context.

The invariant owned here: what was read of an extension is what a sender of ringmain can have written; of anything else
nothing is read.
"""

from __future__ import annotations

import re
import struct
from typing import Literal, NamedTuple

MARK = b"\xff"
"""Begins an extension. No UTF-8 has this byte."""
_HEAD = 2  # the mark, and how many bytes of items follow
_TERMS, _ANSWER, _TRACE = 1, 2, 3
_TERMS_ITEM, _ANSWER_ITEM, _TRACE_ITEM = struct.Struct("<BqB"), struct.Struct("<BQB"), struct.Struct("<B16s8sB")
_BYTES = {_TERMS: _TERMS_ITEM.size, _ANSWER: _ANSWER_ITEM.size, _TRACE: _TRACE_ITEM.size}
_FOREVER_NS = 2**63 - 1
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_OLD_KIND = re.compile(r".*;(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})", re.DOTALL)
MOST_BYTES = 255
"""Of extension and kind together."""

Outcome = Literal["", "failed", "gone"]
"""Of a reply: a result, the text of a failure, or: the server that had the request is gone."""
_OUTCOMES: tuple[Outcome, ...] = ("", "failed", "gone")


class Said(bytes):
    """Extension and kind together, as they are in a message. What sends takes it in place of a kind."""


class Answer(NamedTuple):
    """Which request a reply is for, and what kind of reply it is."""

    number: int
    outcome: Outcome


def said(extension: bytes, kind: str) -> Said | str:
    """What is sent in place of a kind, by a bridge for example."""
    return Said(extension + kind.encode(errors="replace")) if extension else kind


def encoded(kind: Said | str) -> bytes:
    return kind if isinstance(kind, Said) else kind.encode()


def parts(said: bytes) -> tuple[bytes, str]:
    """(extension, kind). An extension that contradicts itself is none, and then there is no kind."""
    if not said.startswith(MARK):
        return b"", said.decode(errors="replace")
    end = _HEAD + said[1] if len(said) >= _HEAD else _HEAD
    return (b"", "") if end > len(said) else (bytes(said[:end]), said[end:].decode(errors="replace"))


def parts_of(kind: Said | str) -> tuple[bytes, str]:
    return parts(kind) if isinstance(kind, Said) else (b"", kind)


def _items(extension: bytes) -> dict[int, bytes]:
    """By type. What comes after an item of a later version is not read."""
    found, at = dict[int, bytes](), _HEAD
    while at < len(extension):
        size = _BYTES.get(extension[at], 0)
        if size == 0 or at + size > len(extension):
            break
        found.setdefault(extension[at], extension[at : at + size])
        at += size
    return found


def _made(items: bytes) -> bytes:
    return MARK + bytes([len(items)]) + items if items else b""


# ---------------------------------------------------------------------------------------------------- traces


def trace_of(extension: bytes) -> str:
    """The `traceparent` of W3C Trace Context; empty if there is none."""
    item = _items(extension).get(_TRACE) if extension else None
    if item is None:
        return ""
    _, trace, span, flags = _TRACE_ITEM.unpack(item)
    return f"00-{trace.hex()}-{span.hex()}-{flags:02x}"


def with_trace(kind: Said | str, traceparent: str) -> Said | str:
    """With this context, unless there is one, or no room."""
    extension, name = parts_of(kind)
    fields = _TRACEPARENT.fullmatch(traceparent)
    if fields is None or _TRACE in _items(extension):
        return kind
    trace, span, flags = map(bytes.fromhex, fields.groups())
    item = _TRACE_ITEM.pack(_TRACE, trace, span, flags[0])
    longer = said(_made(extension[_HEAD:] + item), name)
    return longer if len(longer) <= MOST_BYTES else kind


def trace_in_kind(kind: str) -> str:
    """Recordings of ringmain before format 4 have it at the end of the kind."""
    found = _OLD_KIND.fullmatch(kind)
    return "" if found is None else found[1]


# -------------------------------------------------------------------------------------- requests and replies


def of_request(deadline_ns: int | None, retry: bool) -> Said | str:
    """`deadline_ns`: when the client gives up, by the monotonic clock."""
    if deadline_ns is None and not retry:
        return ""
    limit = _FOREVER_NS if deadline_ns is None else min(deadline_ns, _FOREVER_NS)
    return Said(_made(_TERMS_ITEM.pack(_TERMS, limit, retry)))


def of_reply(number: int, outcome: Outcome) -> Said:
    return Said(_made(_ANSWER_ITEM.pack(_ANSWER, number, _OUTCOMES.index(outcome))))


def answer_of(extension: bytes) -> Answer | None:
    """None: not a reply of a server."""
    item = _items(extension).get(_ANSWER)
    if item is None:
        return None
    _, number, outcome = _ANSWER_ITEM.unpack(item)
    return Answer(number, _OUTCOMES[outcome]) if outcome < len(_OUTCOMES) else None


def without_terms(extension: bytes) -> bytes:
    """Of a message that is sent again: its client does not wait any more, and its clock may be that of another boot."""
    items = _items(extension)
    if _TERMS not in items:
        return extension
    return _made(b"".join(item for type, item in items.items() if type != _TERMS))
