"""The documentation is correct: every Python snippet runs, every link works, and what is generated is fresh.

A page's snippets are one program, run from top to bottom in a process of its own. A snippet that cannot run here is
preceded by `<!-- not run: why -->`. Guides that are more than one program are run by a test of their own.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ringmain._cli.main import COMMANDS, command_parser, load
from ringmain._contracts import CONTRACTS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?P<mark><!-- not run: [^\n]+ -->\n)?```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SITE = "https://"
WIDEST_CODE = 88
PLAIN_PARAMETERS = {"topic", "path", "recording", "writer", "paused"}  # their name says it all
RUN_BY = {  # what they print is compared, or their snippets are the files of an example project
    "docs/guide/recording.md": "tests/recording/test_guide.py",
    "docs/guide/testing.md": "tests/project/test_guides.py",
}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def program(page: Path) -> str:
    """The page's snippets as one program, each on the lines it has in the page."""
    text = page.read_text()
    lines: list[str] = []
    for found in FENCE.finditer(text):
        if found["mark"] is None:
            start = text.count("\n", 0, found.start("code"))
            lines += [""] * (start - len(lines)) + found["code"].splitlines()
    return "\n".join(lines) + "\n"


RUN_HERE = [page for page in PAGES if name(page) not in RUN_BY and program(page).strip()]


def marked(page: Path):
    needs_spark = re.search(r"\b(spark|pipeline)\b", program(page)) is not None
    return pytest.param(page, marks=[pytest.mark.spark] if needs_spark else [], id=name(page))


@pytest.mark.parametrize("page", [marked(page) for page in RUN_HERE])
def test_snippets_run(page, tmp_path):
    code = program(page)
    for module in ("pyspark", "zmq", "numpy", "pyarrow"):
        if re.search(rf"\b{module}\b", code) and importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    script = tmp_path / f"page_{page.stem}.py"  # not the name of a module that the page imports
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, f"line numbers are those of {name(page)}\n{done.stderr}"


@pytest.mark.parametrize(("page", "test"), RUN_BY.items())
def test_what_is_not_run_here_is_run_there(page, test):
    assert Path(page).name in (ROOT / test).read_text()


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as MkDocs and GitHub name them."""
    found = set()
    for line in page.read_text().splitlines():
        if match := re.match(r"#+ +(.*)", line):
            plain = re.sub(r"[`*]|\[|\]\([^)]*\)", "", match[1]).lower()
            found.add(re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", plain).strip()))
    return found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    outside_code = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in LINK.findall(re.sub(r"`[^`]*`", "", outside_code)):
        if target.startswith((SITE, "http://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name(page)} links to {target}, which is not there"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{name(page)} links to {target}: {there.name} has no such heading"


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    there = {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]}
    assert there - listed == set(), "pages that no menu leads to"
    assert listed - there == set(), "menu entries without a page"


def test_every_page_is_on_the_first_page():
    first = ROOT / "docs/index.md"
    linked = {(first.parent / link.partition("#")[0]).resolve() for link in LINK.findall(first.read_text())}
    assert {
        name(page) for page in (ROOT / "docs").rglob("*.md") if page != first and page.resolve() not in linked
    } == set()


def test_commands_that_are_named_exist():
    for page in PAGES:
        text = page.read_text()
        said = "".join(re.findall(r"```console\n.*?```", text, re.DOTALL))
        for command in re.findall(r"^ringmain ([a-z]+)", said, re.MULTILINE) + re.findall(r"`ringmain ([a-z]+)", text):
            assert command in COMMANDS, f"{name(page)} names `ringmain {command}`, which does not exist"


def test_commands_in_the_pages_parse():
    """Every line of a console block that calls ringmain, by the parser of its command."""
    seen = 0
    for page in PAGES:
        for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
            for line in block.splitlines():
                if not line.startswith("ringmain "):
                    continue
                lexer = shlex.shlex(line.removeprefix("ringmain "), posix=True, punctuation_chars="|>()")
                lexer.whitespace_split = True  # a '#' begins a comment
                command, *words = list(lexer)
                end = next((at for at, word in enumerate(words) if word in ("|", ">", ">>", "(")), len(words))
                try:
                    command_parser(command, load(command)).parse_intermixed_args(words[:end])
                except SystemExit:
                    pytest.fail(f"{name(page)}: {line}")
                seen += 1
    assert seen > 50


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_code_fits_the_page(page):
    """No code block needs a scroll bar: at most 88 characters a line. Drawings of memory in a spec may be wider."""
    inside, wide = False, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```"):
            inside = not inside and not (line == "```" and page.parent.name == "spec")
        elif inside and len(line) > WIDEST_CODE:
            wide.append(f"{name(page)}:{number}: {len(line)} characters")
    assert not wide, "\n".join(wide)


def test_the_generated_reference_is_fresh():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/reference.py"), "--check"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("made", ["Publisher", "Subscriber", "FramePublisher", "FrameSubscriber", "Recorder", "Player"])
def test_the_reference_explains_every_parameter(made):
    """Docstrings list parameters as `name: text` lines. Others would have no meaning here."""
    page = (ROOT / "docs/reference/python.md").read_text()
    entry = page.partition(f"\n### {made}\n")[2].partition("\n### ")[0]
    table = entry.partition("| parameter |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", table, re.MULTILINE)
    assert rows
    unexplained = {parameter for parameter, meaning in rows if not meaning.strip()}
    assert unexplained <= PLAIN_PARAMETERS, f"{made} does not say what these are: {', '.join(sorted(unexplained))}"


def test_the_figures_are_those_of_the_newest_run():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/readme_numbers.py"), "--check"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", ["README.md", "docs/concepts/contracts.md"])
def test_the_table_of_contracts_is_that_of_the_code(page):
    """Writers, readers, and when a reader holds, as native/format/layout.hpp has them."""
    rows = re.findall(r"^\| `(\w+)` \| (one|many) \| (one|many) \| .* \|$", (ROOT / page).read_text(), re.MULTILINE)
    expected = [
        (one.name, "one" if one.one_writer else "many", "one" if one.one_reader else "many")
        for one in CONTRACTS.values()
    ]
    assert rows == expected
    for one in CONTRACTS.values():
        row = re.search(rf"^\| `{one.name}` .*$", (ROOT / page).read_text(), re.MULTILINE)
        assert row is not None
        held = {"never": "never", "while borrowed": "while it borrows", "always": "always"}[one.holds]
        assert row[0].split(" | ")[4].rstrip(" |") == held, f"{page}: when a reader of {one.name} holds"


def test_the_table_of_extras_is_that_of_the_project():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (ROOT / "docs/start.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", page, re.MULTILINE))
    for_work_on_ringmain = {"dev", "test", "bench", "docs", "wheels"}
    assert set(rows) == set(extras) - for_work_on_ringmain
    assert all(f"`{extra}`" in page for extra in for_work_on_ringmain)

    def packages(extra: str) -> set[str]:
        own = [one for one in extras[extra] if not one.startswith("ringmain[")]
        of_others = [packages(one[len("ringmain[") : -1]) for one in extras[extra] if one not in own]
        return {re.split(r"[<>=\[]", requirement)[0] for requirement in own}.union(*of_others)

    for extra, brings in rows.items():
        also = [packages(other) for other in re.findall(r"and what `(\w+)` brings", brings)]
        plain = re.sub(r"and what `\w+` brings|\(a Java runtime\)", "", brings)
        assert set(re.findall(r"[\w-]+", plain)).union(*also) == packages(extra), extra


def test_contributing_maps_every_folder():
    """One line for each folder with sources: a newcomer finds out where things are without opening files."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60).stdout.split()
    sources = [Path(path) for path in tracked if path.endswith((".py", ".cpp", ".hpp", ".md"))]
    folders = {path.parent for path in sources if path.parts[0] != "examples" and len(path.parts) > 1}
    with_their_parent = ("docs", "tests/compat/programs", "src/ringmain/compat/stand_ins")
    missing = [
        str(folder)
        for folder in sorted(folders)
        if f"`{folder}/`" not in text and not str(folder).startswith(with_their_parent)
    ]
    assert not missing, f"CONTRIBUTING.md does not say what is in {', '.join(missing)}"
