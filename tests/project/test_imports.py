"""Imports point one way: there is no import cycle in `ringmain`, and no layer imports a layer above it.

Imports inside functions count, because they are imports all the same; those under `if TYPE_CHECKING` do not, because
they never run. `ringmain/__init__.py` re-exports from every layer, so importing the package itself is not counted.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

PACKAGE = "ringmain"
ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / PACKAGE

# From low to high. A module belongs to the longest prefix that matches, and imports only from its own layer or below.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "_extension", "_message", "_closing", "_crash", "_file_lock", "_reporting", "_expression"),
    ("_native", "_contracts", "_names"),
    ("typed",),  # codecs and schemas know nothing of topics, and every endpoint uses them
    (
        "backends",
        "_topic_info",
        "_message_stream",
        "_screens",
        "_service._topics",  # of a service, on any backend
    ),  # the table of backends, which loads one when it is chosen
    ("_endpoint", "_working", "_publisher", "_subscriber", "_inspect", "_aio", "_syncqueue"),
    # the backends themselves
    (
        "backends._python",
        "backends.shm._backend",
        "backends.shm._requests",
        "backends.shm._futures",
        "backends.zmq",
        "backends.fake",
    ),
    ("frames", "_latest", "_bridge", "_bridge_ends", "_service"),
    ("recording",),
    ("lake",),  # needs no Spark
    ("_metrics",),
    ("spark",),
    ("pipeline", "view", "datasets"),
    ("_cli", "_demo", "__main__"),
)
# For users' programs and their tests. No other part of the package imports them.
FOR_USERS = ("testing", "compat", "tracing")


def module_name(path: Path, root: Path = SOURCE, package: str = PACKAGE) -> str:
    parts = [package, *path.relative_to(root).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(tree: ast.Module) -> set[str]:
    """Dotted names that a module imports when it runs: `from a import b` gives `a.b`, a module or a name in one."""
    found: set[str] = set()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            pending += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import, line {node.lineno}: this package imports by full name"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        pending += ast.iter_child_nodes(node)
    return found


def import_graph(root: Path = SOURCE, package: str = PACKAGE) -> dict[str, set[str]]:
    paths = {module_name(path, root, package): path for path in sorted(root.rglob("*.py"))}
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        targets = set()
        for imported in imported_modules(ast.parse(path.read_text())):
            target = imported if imported in paths else imported.rpartition(".")[0]
            if target in paths and target not in (name, package):
                targets.add(target)
        graph[name] = targets
    graph.pop(package, None)
    return graph


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or not: strongly connected components of two or more."""

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        pending = [start]
        while pending:
            for target in graph.get(pending.pop(), set()) - seen:
                seen.add(target)
                pending.append(target)
        return seen

    reach = {name: reachable(name) for name in graph}
    groups = {
        frozenset(other for other in reach[name] if name in reach[other]) for name in graph if name in reach[name]
    }
    return sorted(sorted(group) for group in groups)


def layer_of(module: str) -> int | None:
    """The number of a module's layer; None for what is there for users alone."""
    name = module.removeprefix(f"{PACKAGE}.")
    if name.split(".")[0] in FOR_USERS:
        return None
    prefixes = {
        prefix: number
        for number, parts in enumerate(LAYERS)
        for prefix in parts
        if name == prefix or name.startswith(f"{prefix}.")
    }
    assert prefixes, f"{module} has no layer: add it to LAYERS"
    return prefixes[max(prefixes, key=len)]


def test_there_is_no_import_cycle() -> None:
    found = cycles(import_graph())
    assert not found, "modules that import each other:\n" + "\n".join(" ".join(group) for group in found)


def test_no_layer_imports_a_layer_above_it() -> None:
    wrong = []
    for module, targets in import_graph().items():
        own = layer_of(module)
        for target in sorted(targets):
            above = layer_of(target)
            if own is not None and above is not None and above > own:
                wrong.append(f"{module} imports {target}: {'/'.join(LAYERS[own])} is below {'/'.join(LAYERS[above])}")
    assert not wrong, "\n".join(wrong)


def test_production_code_imports_neither_testing_nor_compat() -> None:
    wrong = [
        f"{module} imports {target}"
        for module, targets in import_graph().items()
        for target in sorted(targets)
        if layer_of(module) is not None and layer_of(target) is None
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_of_the_project_depends_on_compat() -> None:
    """The drop-in modules and their tools are apart: their tests, and the page for those who come from elsewhere."""
    apart = [
        path
        for folder in ("bench", "examples", "tools", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "compat" not in path.relative_to(ROOT).parts
        and re.search(rf"^\s*(from|import) {PACKAGE}(\.| import .*\b)compat\b", path.read_text(), re.MULTILINE)
    ]
    assert apart == []


def test_the_graph_sees_lazy_imports_and_skips_type_checking(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("from pkg.a import x\n")
    (tmp_path / "a.py").write_text("def f():\n    from pkg import b\n")
    (tmp_path / "b.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pkg.c\nelse:\n    from pkg.a import f\n"
    )
    (tmp_path / "c.py").write_text("import pkg.b\n")
    graph = import_graph(tmp_path, "pkg")
    assert graph == {"pkg.a": {"pkg.b"}, "pkg.b": {"pkg.a"}, "pkg.c": {"pkg.b"}}
    assert cycles(graph) == [["pkg.a", "pkg.b"]]
