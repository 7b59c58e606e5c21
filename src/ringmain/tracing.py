"""Traces across topics: a message sent inside an OpenTelemetry span carries the span's context, and the receiver's
span links to it. Needs the extra `trace`, and is off until `enable()` is called.

    from ringmain import tracing

    tracing.enable()                                     # in the process that sends
    with tracer.start_as_current_span("grab"):
        pub.send(picture)

    message = sub.recv_message()                         # in the process that receives
    with tracing.handling(message, "detect"):
        ...

The context is beside the message's kind (docs/spec/shared-memory.md), so readers that know nothing of tracing find the
kind that was sent; recordings keep it, and bridges carry it. As text it is `message.trace`.

While it is off, nothing of this is loaded, and `send` is the native method itself: `enable` puts a Python method in
front of it, and `disable` takes it away.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ringmain import _extension
from ringmain._publisher import Publisher
from ringmain.backends._python.publisher import PythonPublisher

__all__ = ["context_of", "disable", "enable", "handling"]

_METHODS = ("send", "send_many", "reserve", "stream", "asend")
_PROPAGATOR = TraceContextTextMapPropagator()
_before: list[tuple[type, str, Any]] = []  # what `disable` puts back; None: the method is inherited


def enable() -> None:
    """From now on, messages that this process sends inside a span carry its context. Publishers that are open already
    do so, too. Frames have none."""
    if _before:
        return
    for owner in (Publisher, PythonPublisher):
        for name in _METHODS:
            _before.append((owner, name, vars(owner).get(name)))
            setattr(owner, name, _traced(getattr(owner, name)))


def disable() -> None:
    """`send` is again what it was."""
    while _before:
        owner, name, method = _before.pop()
        if method is None:
            delattr(owner, name)
        else:
            setattr(owner, name, method)


def context_of(message: Any) -> SpanContext | None:
    """The context of the span in which a `Message`, `Lease` or `RecordedMessage` was sent, None if it was sent outside
    of one."""
    context = getattr(message, "trace", "")
    if not context:
        return None
    found = trace.get_current_span(_PROPAGATOR.extract({"traceparent": context})).get_span_context()
    return found if found.is_valid else None


@contextmanager
def handling(message: Any, name: str, *, tracer: trace.Tracer | None = None) -> Iterator[Span]:
    """A span for the work on a message: it links to the sender's span, if there was one."""
    tracer = tracer or trace.get_tracer("ringmain")
    sent_in = context_of(message)
    links = [] if sent_in is None else [trace.Link(sent_in)]
    attributes = {"messaging.system": "ringmain"}
    for key, attribute in (("topic", "messaging.destination.name"), ("seq", "messaging.message.id")):
        if hasattr(message, key):
            attributes[attribute] = str(getattr(message, key))
    with tracer.start_as_current_span(name, kind=SpanKind.CONSUMER, links=links, attributes=attributes) as span:
        yield span


def _with_context(kind: Any) -> Any:
    """The kind, and the context of the span that is current, if any. A kind that has no room left stays as it is."""
    span = trace.get_current_span()
    if not span.get_span_context().is_valid or not isinstance(kind, str | _extension.Said):
        return kind
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(NonRecordingSpan(span.get_span_context())))
    return _extension.with_trace(kind, carrier["traceparent"])


def _traced(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def with_context(self: Any, *args: Any, **options: Any) -> Any:
        if options.get("kinds") is not None:
            options["kinds"] = [_with_context(kind) for kind in options["kinds"]]
        elif len(args) > 1:
            args = (args[0], _with_context(args[1]), *args[2:])
        else:
            options["kind"] = _with_context(options.get("kind", ""))
        return method(self, *args, **options)

    return with_context
