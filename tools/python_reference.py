"""The Python reference as Markdown: signatures, parameters and methods, taken from the code and its docstrings.

A docstring describes parameters as `name: text` lines, several names at once as `name, other: text`, and several
parameters on one line with three spaces between them. `parse` takes these apart; what is left is the description.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

WIDTH = 88
# Heading, introduction, module, and names of that module; no names: all of its `__all__` that no section above has.
SECTIONS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("Sending", "", "ringmain", ("Publisher", "Reservation", "MessageStream")),
    ("Receiving", "", "ringmain", ("Subscriber", "Message", "Lease", "Batch", "wait")),
    ("Several topics at once", "", "ringmain", ("Latest", "SyncQueue")),
    (
        "Requests",
        "",
        "ringmain",
        ("Server", "Request", "Client", "Draft", "service", "services", "ServiceInfo", "ServerReport"),
    ),
    ("Frames", "They need `ringmain[numpy]`.", "ringmain.frames", ()),
    ("Inspect and remove topics", "", "ringmain", ("topics", "info", "TopicInfo", "Participant", "unlink", "clean")),
    ("Between backends", "", "ringmain", ("bridge", "Bridge")),
    ("Record and replay", "They need `ringmain[record]`.", "ringmain", ("Recorder", "Recording", "Player", "replay")),
    ("ringmain.recording", "", "ringmain.recording", ()),
    ("ringmain.typed", "Codecs and schemas.", "ringmain.typed", ()),
    ("ringmain.testing", "For your own tests.", "ringmain.testing", ()),
    ("ringmain.spark", "It needs `ringmain[spark]`.", "ringmain.spark", ()),
    ("ringmain.pipeline", "It needs `ringmain[spark]`; engine \"local\" only `[lake]`.", "ringmain.pipeline", ()),
    ("ringmain.datasets", "It needs `ringmain[datasets]`.", "ringmain.datasets", ()),
    ("ringmain.lake", "It needs `ringmain[lake]`, and no Spark.", "ringmain.lake", ()),
)  # fmt: skip
SOURCES = Path(__file__).resolve().parent.parent / "src" / "ringmain"
OBVIOUS = {
    "app_name": "the application's name",
    "bag": "the MCAP file or ROS bag",
    "directory": "the recording's directory",
    "flush_interval_s": "messages older than this survive a crash of the recorder",
    "force": "also while it has participants",
    "fsync": "what survives a power failure",
    "keep_age_s": "delete sealed segments that are older; None: keep all",
    "keep_bytes": "delete the oldest sealed segments beyond this size; None: keep all",
    "keep_force": "delete also what a registered consumer still needs",
    "label": "one of `crash_points()`",
    "lake": "the lake, or where it is",
    "name": "its name",
    "nth": "at which passage",
    "others": "the tables to align, by name",
    "out": "the file to write",
    "path": "where the recording is",
    "paused": "begin paused",
    "progress": "called with the status as it goes",
    "reader": "the schema that a reader expects",
    "recording": "the recording, or where it is",
    "sealed_uri": "where sealed segments go: any URI that `pyarrow.fs` opens",
    "seed": "decides the order of everything that may happen in several",
    "segment_age_s": "when a segment is finished and sealed, in seconds",
    "segment_bytes": "when a segment is finished and sealed, in bytes",
    "source": "what is read: a subscriber, or a topic's name",
    "spark": "the session",
    "storage_options": "of an object store, such as AWS_REGION",
    "subscribers": "those to wait for",
    "table": "its name, such as silver/imu",
    "target": "what is written: a publisher, or a topic's name",
    "timeout": "seconds; None: no limit",
    "title": "the page's title",
    "tolerance_s": "how far apart in time two rows may be, in seconds",
    "topic": "the topic's name",
    "version": "which version of the table; None: the newest",
    "writer": "the schema that a writer sends with",
}
# Attributes that mean the same in every class that does not say it itself.
SAME_EVERYWHERE = {
    "alive": "Does its process live?",
    "all_alive": "Is every topic alive?",
    "backend": "What carries the topic.",
    "buffer_bytes": "The size of a buffer.",
    "buffers": "How many buffers the pool has.",
    "bytes": "Bytes of payload.",
    "bytes_per_s": "Bytes a second.",
    "capacity": "The size of the ring in bytes.",
    "clients": "How many clients take part.",
    "closed": "Has it been closed?",
    "contract": "The topic's contract.",
    "damage": "What cannot be read.",
    "data": "The payload: bytes, or the object on a typed topic.",
    "disk_free_bytes": "Free space where the recording is.",
    "dropped": "Not sent, or not delivered, counted.",
    "dtype": "The numpy type of an element.",
    "elapsed_s": "Seconds since it began.",
    "end_ns": "When it ended, as its publisher says.",
    "epoch": "Which creation of the topic: the wall-clock time when it was created, in ns.",
    "error": "Why it failed, if it did.",
    "expired": "Requests not computed, because their clients had given up.",
    "failed": "Requests that failed.",
    "gone": "Requests given up, because the server that had them was gone.",
    "handler_p50_us": "From when a request was taken to when it was answered, in µs.",
    "handler_p99_us": "From when a request was taken to when it was answered, in µs.",
    "height": "In pixels.",
    "id": "A number of the publisher's own.",
    "joined_ns": "When it joined: wall clock, in ns.",
    "kind": "What the message is, as its sender says.",
    "lag_bytes": "How far a reader is behind, in bytes.",
    "lag_messages": "How far a reader is behind, in messages.",
    "late_max_s": "How late a message was published at most, in seconds.",
    "layout": "Shape, type and planes of a frame.",
    "lost": "Messages lost, counted.",
    "messages": "How many messages.",
    "meta": "The small dict that was sent along.",
    "name": "Its name.",
    "next_sequence": "The number of the next message.",
    "number": "The number of the segment.",
    "path": "Where it is.",
    "paused": "Is it paused?",
    "persist": "Does the topic stay when its last participant leaves?",
    "pid": "The process.",
    "position": "Where it is in the recording: segment and row.",
    "quarantined": "Rows that did not decode.",
    "queue_p50_us": "From when a request was sent to when it was taken, in µs.",
    "queue_p99_us": "From when a request was sent to when it was taken, in µs.",
    "rate_hz": "Messages or requests a second.",
    "readers": "Its readers and observers.",
    "reason": "Why.",
    "record_time_ns": "When it was recorded: wall clock, in ns.",
    "reply": "The type of the replies.",
    "request": "The type of the requests.",
    "role": "Writer, reader or observer.",
    "row": "The number of a message in its segment.",
    "rows": "How many rows.",
    "schema": "What the messages contain; None if the topic has no type.",
    "sealed": "Is it finished, and rewritten as Parquet?",
    "segment": "The number of a file of the recording.",
    "segments": "How many segments.",
    "sender": "Which program sent it.",
    "seq": "Its number in the topic, from 0.",
    "server": "The server's name.",
    "shape": "As numpy's.",
    "size_bytes": "Its size in bytes.",
    "start_ns": "When it began, as its publisher says.",
    "state": "What it is doing.",
    "time_ns": "When it was published: wall clock, nanoseconds since 1970.",
    "topic": "The topic's name.",
    "topics": "Of each topic, the same.",
    "used": "Bytes of the ring that are in use.",
    "user": "The user id of its process.",
    "valid": "Is it worth using, as its publisher says?",
    "why_raw": "Why its messages stay bytes; empty if they are decoded.",
    "width": "In pixels.",
    "writers": "Its writers.",
}
Parameters = dict[str, inspect.Parameter]


def cell(text: str) -> str:
    """Code for a table, to be put between backticks."""
    return " ".join(text.split()).replace("|", "\\|")


def text_cell(text: str) -> str:
    """Prose for a table. Outside of backticks, `<` would begin a tag."""
    parts = re.split(r"(`[^`]*`)", cell(text))
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


def shown_default(parameter: inspect.Parameter) -> str:
    value = parameter.default
    if value is inspect.Parameter.empty:
        return ""
    if parameter.name == "mode" and isinstance(value, int):
        return oct(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}"
    text = repr(value).replace("'", '"')
    return "..." if "<" in text else text


def annotation(text: Any, module: str) -> str:
    """As written, without the names of modules; an alias of a Literal as its values."""
    if text is inspect.Parameter.empty:
        return ""
    text = getattr(text, "__forward_arg__", text)
    name = text if isinstance(text, str) else getattr(text, "__name__", str(text))
    name = re.sub(r"\b_?[a-z_]+(?:\.[a-z_]+)*\.(?=[A-Z])", "", name)

    def values(found: re.Match[str]) -> str:
        alias = getattr(sys.modules.get(module), found[0], None) or getattr(
            sys.modules["ringmain.backends"], found[0], None
        )
        is_alias = get_origin(alias) is Literal
        return " | ".join(f'"{value}"' for value in get_args(alias)) if is_alias else found[0]

    name = re.sub(r"Literal\[([^\]]*)\]", lambda found: found[1].replace(", ", " | "), name)
    return re.sub(r"\b[A-Z]\w+", values, name).replace("'", '"')


def parameters_of(thing: Any) -> Parameters | None:
    """None where Python knows no signature, and for types that only the library makes."""
    try:
        signature = inspect.signature(thing.__init__ if inspect.isclass(thing) else thing)
    except (TypeError, ValueError):
        return None
    found = {name: one for name, one in signature.parameters.items() if name not in ("self", "cls", "_", "__")}
    return None if list(found) == ["args", "kwargs"] else found


def call(name: str, parameters: Parameters) -> str:
    """`name(a, *, b=1)`: names and defaults; the types are in the table."""
    parts: list[str] = []
    starred = False
    for one in parameters.values():
        if one.kind is one.VAR_POSITIONAL:
            parts.append(f"*{one.name}")
            starred = True
        elif one.kind is one.VAR_KEYWORD:
            parts.append(f"**{one.name}")
        else:
            if one.kind is one.KEYWORD_ONLY and not starred:
                parts.append("*")
                starred = True
            parts.append(one.name + ("" if one.default is one.empty else f"={shown_default(one)}"))
    return f"{name}({', '.join(parts)})"


def parse(docstring: str, names: set[str]) -> tuple[str, dict[str, str]]:
    """A docstring's description, and what it says of each of these parameters."""
    described: dict[str, str] = {}
    rest: list[str] = []
    current: list[str] = []  # the parameters that the last line was about
    entry = re.compile(r"(?:^|(?<=\s{3})|(?<=[.;] ))(\w+(?:, \w+)*): +")
    for line in inspect.cleandoc(docstring).splitlines():
        entries = [found for found in entry.finditer(line) if set(found[1].split(", ")) <= names]
        if entries and (entries[0].start() == 0 or current):
            before = line[: entries[0].start()].strip()
            for name in current if before else ():
                described[name] += f" {before}"
            ends = [*(found.start() for found in entries[1:]), len(line)]
            for found, end in zip(entries, ends, strict=True):
                current = found[1].split(", ")
                described |= dict.fromkeys(current, line[found.end() : end].strip())
        elif current and line and (line[0] == " " or not described[current[0]].endswith((".", ":"))):
            for name in current:
                described[name] += f" {line.strip()}"
        else:
            current = []
            rest.append(line)
    return "\n".join(rest).strip(), described


def prose(text: str) -> list[str]:
    """Paragraphs of a docstring; lines that are code stay apart."""
    made: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.splitlines()
        if lines and all(re.match(r"\s{4}|\w[\w.]*\(.*\)$", line) for line in lines):
            made += ["```text", *(line.strip() for line in lines), "```", ""]
        elif lines:
            made += [*textwrap.wrap(" ".join(paragraph.split()), WIDTH, break_long_words=False), ""]
    return made


def parameter_table(parameters: Parameters, described: dict[str, str], module: str) -> list[str]:
    shown = [one for one in parameters.values() if described.get(one.name) or one.default is not one.empty]
    if not shown:
        return []
    lines = ["| parameter | type | default | meaning |", "|---|---|---|---|"]
    for one in parameters.values():
        type_, default = annotation(one.annotation, module), shown_default(one)
        columns = [one.name, type_, default]
        quoted = " | ".join(f"`{cell(text)}`" if text else "" for text in columns)
        lines.append(f"| {quoted} | {text_cell(described.get(one.name) or OBVIOUS.get(one.name, ''))} |")
    return [*lines, ""]


def is_record(made: type) -> bool:
    return dataclasses.is_dataclass(made) or hasattr(made, "_fields") or hasattr(made, "__struct_fields__")


def public_attributes(made: type) -> Iterator[tuple[str, Any]]:
    """Those that ringmain defines, in the order of the source; what a base of the standard library adds is not ours."""
    seen: set[str] = set()
    for base in made.__mro__:
        if base.__module__.partition(".")[0] != "ringmain":
            continue
        for name in [*inspect.get_annotations(base), *vars(base)]:
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, inspect.getattr_static(made, name, None)


@functools.cache
def class_source(made: type) -> str:
    """Found by name and docstring: exported classes say that their module is `ringmain`, where `inspect` finds none."""
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text()
        if f"class {made.__name__}" in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef) and node.name == made.__name__ and same_docstring(node, made):
                    return textwrap.dedent(ast.get_source_segment(text, node) or "")
    return ""


def same_docstring(node: ast.ClassDef, made: type) -> bool:
    written = ast.get_docstring(node)
    return written is None or written == inspect.getdoc(made)


def field_meanings(made: type) -> dict[str, str]:
    """Of a record's fields: the comment behind a field, or the string below it."""
    source = class_source(made)
    behind = re.findall(r"^    (\w+): [^#\n]*#+ (.*)$", source, re.MULTILINE)
    below = re.findall(r'^    (\w+): [^\n]*\n    """([^"]*)"""', source, re.MULTILINE)
    return dict([*behind, *below])


def is_value(raw: Any) -> bool:
    """A number, a text: its docstring is that of its class."""
    return not hasattr(raw, "__get__")


def class_body(made: type) -> list[str]:
    attributes, methods = [], []
    meanings = field_meanings(made)
    annotations = inspect.get_annotations(made)
    for name, raw in public_attributes(made):
        if raw is None and name not in annotations:
            continue
        function = raw.__func__ if isinstance(raw, classmethod | staticmethod) else raw
        if inspect.isroutine(function):
            documented = getattr(made, name)
            if not function.__doc__ and any(name in vars(base) for base in made.__mro__ if base.__module__ == "_io"):
                continue  # what any file has
            shown = call(name, parameters_of(documented) or {})
            shown = f"await {shown}" if inspect.iscoroutinefunction(function) else shown
            methods.append(f"| `{cell(shown)}` | {text_cell(inspect.getdoc(documented) or '')} |")
        elif not inspect.isclass(raw):
            meaning = meanings.get(name) or ("" if name in annotations or is_value(raw) else inspect.getdoc(raw) or "")
            meaning = meaning or SAME_EVERYWHERE.get(name, "")
            type_ = annotation(annotations[name], made.__module__) if name in annotations else ""
            type_ = f"`{cell(type_)}`" if type_ and is_record(made) else ""
            attributes.append((name, type_, text_cell(meaning)))
    lines: list[str] = []
    if any(type_ for _, type_, _ in attributes):
        lines += ["| attribute | type | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | {type_} | {meaning} |" for name, type_, meaning in attributes] + [""]
    elif attributes:
        lines += ["| attribute | meaning |", "|---|---|"]
        lines += [f"| `{name}` | {meaning} |" for name, _, meaning in attributes] + [""]
    if methods:
        lines += ["| method | what it does |", "|---|---|", *methods, ""]
    return lines


def entry(prefix: str, name: str, thing: Any) -> list[str]:
    lines = [f"### {name}", ""]
    if not callable(thing):
        return [*lines, f"`{prefix}.{name}`, a constant.", ""]
    made_by_users = not (inspect.isclass(thing) and (is_record(thing) or issubclass(thing, BaseException)))
    parameters = parameters_of(thing) if made_by_users else None
    description, described = parse(thing.__doc__ or "", set(parameters or ()))
    if parameters is not None and made_by_users:
        signature = call(f"{prefix}.{name}", parameters)
        lines += ["```text", *textwrap.wrap(signature, WIDTH, subsequent_indent="    "), "```", ""]
    if not (dataclasses.is_dataclass(thing) and description.startswith(f"{name}(")):
        lines += prose(description)
    lines += parameter_table(parameters or {}, described, thing.__module__)
    return lines + (class_body(thing) if inspect.isclass(thing) else [])


def python_page(head: str) -> str:
    lines = [
        head,
        "# Python",
        "",
        "The names of the first sections are `import ringmain as rm`, `rm.NAME`. Timeouts are in",
        "seconds: `None` waits without a limit, `0` does not wait (a send, up to a millisecond for the",
        "message that another writer is in). [Errors](errors.md) have a page.",
        "",
    ]
    shown: set[str] = set()
    for title, introduction, module_name, names in SECTIONS:
        module = importlib.import_module(module_name)
        exported = importlib.import_module("ringmain").__all__
        lines += [f"## {title}", "", *([introduction, ""] if introduction else [])]
        for name in names or [name for name in module.__all__ if name not in shown]:
            shown.add(name)
            lines += entry("rm" if name in exported else module_name, name, getattr(module, name))
    return "\n".join(lines).rstrip() + "\n"
