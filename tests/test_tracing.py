"""Trace context, with the real OpenTelemetry SDK: what is sent inside a span carries it, and the receiver's span links
to it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import ringmain as rm
from ringmain import _native
from tests.conftest import Child

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ringmain import tracing


class Traces:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("test")

    def span(self, name: str) -> Any:
        (found,) = [span for span in self.exporter.get_finished_spans() if span.name == name]
        return found


@pytest.fixture
def traces() -> Iterator[Traces]:
    tracing.enable()
    yield Traces()
    tracing.disable()


@pytest.mark.parametrize("backend", ["shm", "fake", "zmq"])
def test_the_receivers_span_links_to_the_senders(traces: Traces, backend: Any) -> None:
    with (
        rm.Publisher("traced", backend=backend, type=dict[str, int]) as pub,
        rm.Subscriber("traced", backend=backend, type=dict[str, int]) as sub,
    ):
        pub.wait_for_readers(timeout=30)
        with traces.tracer.start_as_current_span("grab"):
            pub.send({"n": 1}, kind="picture")
        pub.send({"n": 2}, kind="picture")
        inside, outside = sub.recv_message(timeout=30), sub.recv_message(timeout=30)
    for message in (inside, outside):
        with tracing.handling(message, f"detect {message.data['n']}", tracer=traces.tracer):
            pass
        assert message.kind == "picture"
    sent, detected = traces.span("grab"), traces.span("detect 1")
    (link,) = detected.links
    assert (link.context.trace_id, link.context.span_id) == (sent.context.trace_id, sent.context.span_id)
    assert link.context.is_remote
    assert detected.parent is None, "a link, not a parent: one message may have many readers"
    assert detected.attributes["messaging.destination.name"] == "traced"
    assert outside.trace == "" != inside.trace
    assert traces.span("detect 2").links == ()


def test_every_way_to_send_carries_it(traces: Traces) -> None:
    with rm.Publisher("traced") as pub, rm.Subscriber("traced") as sub:
        with traces.tracer.start_as_current_span("work") as span:
            pub.send(b"1", "positional")
            pub.send_many([b"2", b"3"], kind="many")
            with pub.reserve(1) as reservation:
                memoryview(reservation)[:] = b"4"
            with pub.stream(kind="file") as file:
                file.write(b"5")
            asyncio.run(pub.asend(b"6", "async"))
        messages = [sub.recv_message(timeout=10) for _ in range(6)]
    assert [message.data for message in messages] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert [m.kind for m in messages] == ["positional", "many", "many", "", "file", "async"]
    for message in messages:
        context = tracing.context_of(message)
        assert context is not None
        assert context.span_id == span.get_span_context().span_id


@pytest.mark.parametrize("backend", ["shm", "fake"])
def test_screens_compare_the_kind_without_it(traces: Traces, backend: Any) -> None:
    with (
        rm.Publisher("traced", backend=backend) as pub,
        rm.Subscriber("traced", backend=backend, ignore_kinds={"noise"}) as sub,
        traces.tracer.start_as_current_span("work"),
    ):
        pub.send(b"unwanted", kind="noise")
        pub.send(b"wanted", kind="news")
        assert sub.recv(timeout=10) == b"wanted"


def test_a_kind_without_room_has_none(traces: Traces) -> None:
    with rm.Publisher("traced") as pub, rm.Subscriber("traced") as sub:
        with traces.tracer.start_as_current_span("work"):
            pub.send(b"1", kind="k" * 227)
            pub.send(b"2", kind="k" * 228)
        fits, long = sub.recv_message(timeout=10), sub.recv_message(timeout=10)
    assert (fits.kind, tracing.context_of(fits) is None, len(fits.extension)) == ("k" * 227, False, 28)
    assert (long.kind, tracing.context_of(long)) == ("k" * 228, None)


def test_off_means_untouched() -> None:
    tracing.enable()
    tracing.enable()
    assert rm.Publisher.send is not _native.Publisher.send
    tracing.disable()
    assert rm.Publisher.send is _native.Publisher.send
    assert "reserve" in vars(rm.Publisher), "its own methods are back"
    with Traces().tracer.start_as_current_span("work"):
        with rm.Publisher("untraced") as pub, rm.Subscriber("untraced") as sub:
            pub.send(b"x", kind="k")
            assert sub.recv_message(timeout=10).kind == "k"


def test_nothing_is_loaded_unless_it_is_asked_for(child: Any) -> None:
    process: Child = child("say(sorted(name for name in sys.modules if 'opentelemetry' in name))")
    assert process.line() == "[]", sys.executable
