"""One topic as text: what it is, who takes part, and its schema. `ringmain info` and the live view show it."""

from __future__ import annotations

from collections.abc import Iterator

import ringmain as rm
from ringmain._cli.text_format import Right, bold, bytes_text, count_text, duration_text, printable, rate_text, table
from ringmain._cli.topic_summary import layout_text, oldest_task, type_name
from ringmain.typed import Schema
from ringmain.typed._model import show
from ringmain.typed._struct_layout import Layout, layout_of

_HEADS = ("WHO", "ROLE", "PID", "STATE", "MESSAGES", "BYTES", "BEHIND", "LOST")
_WORK_HEADS = ("WHO", "ROLE", "PID", "STATE", "MESSAGES", "BYTES", "TAKEN", "REDELIVERED")


def describe(topic: rm.TopicInfo, now_ns: int, frames: rm.FrameTopic | None = None) -> str:
    """The topic in a few lines and a table."""
    age = duration_text(now_ns - topic.epoch)
    full = 100 * topic.used / topic.capacity
    participants = [*topic.writers, *topic.readers]
    roster = f"  roster    {len(participants)} of {topic.max_participants} slots taken"
    lines = [
        f"{bold(topic.name)}: {topic.contract}, {type_name(topic, frames)}",
        f"  created   {age} ago{', stays without participants' if topic.persist else ''}",
        f"  messages  {topic.next_sequence}",
        f"  ring      {bytes_text(topic.used)} of {bytes_text(topic.capacity)} used ({full:.0f}%)",
        *([roster] if topic.max_participants else ()),
        *(_kept_lines(topic) if topic.kept_kinds is not None else ()),
        *(_frame_lines(frames) if frames else ()),
        *(_work_lines(topic) if topic.waiting is not None else ()),
        "",
    ]
    heads, row = (_HEADS, _row) if topic.waiting is None else (_WORK_HEADS, _work_row)
    lines.append(table(heads, map(row, participants)) if participants else "no participants")
    if topic.schema:
        lines += ["", *_schema_lines(topic.schema)]
    return "\n".join(lines)


def _frame_lines(frames: rm.FrameTopic) -> list[str]:
    held = ", ".join(f"{printable(who)} {count}" for who, count in frames.held.items())
    lines = [
        f"  frames    {layout_text(frames)}, {bytes_text(frames.layout.size)} each",
        f"  published {count_text(frames.frames)}, at {rate_text(frames.rate)} Hz, {frames.dropped} dropped",
        f"  buffers   {frames.buffers} of {bytes_text(frames.buffer_bytes)}, held by {held or 'no reader'}",
    ]
    return lines if frames.alive else [*lines, "  publisher gone"]


def _kept_lines(topic: rm.TopicInfo) -> list[str]:
    missed = f", {count_text(topic.not_kept)} messages of others not kept" if topic.not_kept else ""
    return [f"  kept      the last message of each kind; {topic.kept_kinds} of {topic.max_kept_kinds} kinds{missed}"]


def _work_lines(topic: rm.TopicInfo) -> list[str]:
    taken = sum(reader.taken for reader in topic.readers)
    oldest = oldest_task(topic)
    since = f", one by {printable(oldest.name)} for {duration_text(oldest.taken_for_ns)}" if oldest else ""
    return [f"  work      {topic.waiting} waiting, {taken} taken{since}"]


def _work_row(participant: rm.Participant) -> list[object]:
    worker = participant.role == "reader"
    return [
        *_who(participant),
        Right(count_text(participant.taken) if worker else ""),
        Right(count_text(participant.redelivered) if worker else ""),
    ]


def _who(participant: rm.Participant) -> list[object]:
    return [
        participant.name,
        participant.role,
        participant.pid if participant.same_namespace else participant.pid_text.removeprefix("pid "),
        _state(participant),
        Right(count_text(participant.messages)),
        Right(bytes_text(participant.bytes)),
    ]


def _row(participant: rm.Participant) -> list[object]:
    reader = participant.role != "writer"
    return [
        *_who(participant),
        Right(f"{participant.lag_messages} ({bytes_text(participant.lag_bytes)})" if reader else ""),
        Right(count_text(participant.lost) if reader else ""),
    ]


def _state(participant: rm.Participant) -> str:
    if not participant.alive:
        return "dead"
    if participant.waits_for:
        return f"waits for {participant.waits_for}"
    return "holds" if participant.holding else "ok"


def _schema_lines(schema: Schema) -> Iterator[str]:
    """The type and its fields, written like the class."""
    yield f"schema: {schema.type_name} ({schema.codec})"
    if schema.codec == "struct":
        yield from _layout_lines(layout_of(schema), "  ")
        return
    for name, record in schema.records.items():
        yield f"  {name}:"
        for field in record.fields:
            default = "" if field.required else " = ..."
            if isinstance(field.default, bytes):
                default = f" = {field.default.decode()}"
            yield f"    {field.name}: {show(field.type)}{default}"
    yield from (f"  {key} = {value}" for key, value in schema.params.items() if len(value) <= 100)


def _layout_lines(layout: Layout, indent: str) -> Iterator[str]:
    """The fields of a struct and where they lie, those of a nested one below it."""
    yield f"{indent}{layout.size} bytes"
    for field in layout.fields:
        nested = isinstance(field.type, Layout)
        type_ = f"struct{field.shape_text}" if nested else field.text
        yield f"{indent}{field.name}: {type_} at {field.offset}"
        if isinstance(field.type, Layout):
            yield from _layout_lines(field.type, indent + "  ")
