"""The Python reference as Markdown: signatures, parameters and methods, taken from the code and its docstrings.

A docstring describes parameters as `name: text` lines, several names at once as `name, other: text`, and several
parameters on one line with three spaces between them. `parse` takes these apart; what is left is the description.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
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
    ("ringmain.pipeline", "It needs `ringmain[spark]`.", "ringmain.pipeline", ()),
)  # fmt: skip
OBVIOUS = {"topic": "the topic's name", "timeout": "seconds; None: no limit"}
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


def field_meanings(made: type) -> dict[str, str]:
    """Of a record's fields: the comment behind a field, or the string below it."""
    try:
        source = inspect.getsource(made)
    except (OSError, TypeError):
        return {}
    behind = re.findall(r"^    (\w+): [^#\n]*#+ (.*)$", source, re.MULTILINE)
    below = re.findall(r'^    (\w+): [^\n]*\n    """([^"]*)"""', source, re.MULTILINE)
    return dict([*behind, *below])


def class_body(made: type) -> list[str]:
    attributes, methods = [], []
    meanings = field_meanings(made) if is_record(made) else {}
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
            meaning = meanings.get(name) or ("" if name in annotations else inspect.getdoc(raw) or "")
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
        "seconds: `None` waits without a limit, `0` does not wait. [Errors](errors.md) have a page.",
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
