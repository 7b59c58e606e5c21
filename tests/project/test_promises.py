"""Every promise has a check that exists, and every figure in the pages has a promise, a date, or is a setting.

docs/internals/promises.md is the list. A sentence that is no longer on its page, a check that is gone, a run that no
target runs: each is an error here, so that the list cannot drift from what it lists.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import bars
from bench.harness import Result, Sample
from tests import promises

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *(
        page
        for folder in (".", "concepts", "guide", "recipes")
        for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
]
NEVER_GENERATED = re.compile(r"```.*?```|<!-- (numbers|cores) -->.*?<!-- /\1 -->|<!-- table.*?\n\n", re.DOTALL)
DATE = re.compile(r"20\d\d-\d\d-\d\d")
MEASURED = re.compile(
    r"(?<![\w.,])\d[\d.,]*(?: to \d[\d.,]*)?[kM]? ?"
    r"(?:ns|µs|ms|s|seconds?|minutes?|[a-z]+/s|[kMG]B/s|(?:[a-z]+ ){0,3}(?:per|a|each) (?:second|minute)|×)(?![\w/])"
)
COUNTED = re.compile(
    r"(?<![\w.,:-])\d[\d,]*(?:\.\d+)? ?(?:bytes|[kmg]i?b|participants|readers|writers|workers|clients|topics|buffers"
    r"|descriptors|messages|requests|replies|instructions|system calls)\b"
)
NOT_OURS = {
    "a fleet of 5,000 hosts with 50 topics each": "an example of so many rows",
    "plus 100 bytes": "advice, with room to spare: the rest of a request is 32 bytes, its sender and its kind",
    "One call takes at most 2 GiB of payload": "a `binary` column of Arrow counts its bytes in 31 bits",
    "Rerun's server keeps only 1 GiB": "what Rerun's server is started with",
    "keeps up to 1 GiB for a page that is opened later": "what Rerun's server is started with",
}
"""Counts that no check of ours shows, by what stands around them, and what they are."""
OF_PROSE = re.compile(MEASURED.pattern.replace("|×)", "|×|times|%)"))
BY_HAND = "by hand"
LOWER_IS_BETTER = {"ns", "µs", "ms", "ms/s", "KB", "%", "calls", "ns/message", "x"}


ALL = promises.promises()


def plain(text: str) -> str:
    """Words alone, without marks of emphasis, links, and line ends."""
    text = re.sub(r"\[([^\]]*)\]\([^)\s]*\)", r"\1", text)
    return re.sub(r"\s+", " ", re.sub(r"[`*]", "", text)).lower()


def page_of(name: str) -> str:
    return plain((ROOT / name).read_text())


def test_there_are_promises():
    assert len(ALL) > 40
    assert len(promises.runs()) > 8


@pytest.mark.parametrize("promise", ALL, ids=lambda promise: plain(promise.sentence)[:50])
def test_the_sentence_stands_where_it_is_said_to(promise):
    assert plain(promise.sentence) in page_of(promise.page), f"{promise.page} no longer says: {promise.sentence}"


@pytest.mark.parametrize("promise", ALL, ids=lambda promise: plain(promise.sentence)[:50])
def test_its_checks_are_there(promise):
    cases = (ROOT / "native/explore/cases.cpp").read_text()
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"(explore: |bench: )?`([^`]+)`", promise.checks)
    assert named, f"no check for: {promise.sentence}"
    for kind, name in named:
        if kind == "explore: ":
            assert f'"{name}"' in cases, f"no such case: {name}"
        elif kind == "bench: ":
            assert name in targets(), f"no row of the benchmark with a target: {name}"
        elif name.startswith("make "):
            assert re.search(rf"^{name[5:]}:", makefile, re.MULTILINE), f"no such target: {name}"
        else:
            path, _, test = name.partition("::")
            assert (ROOT / path).is_file(), f"no such file: {path}"
            assert not test or re.search(rf"def {test}\(", (ROOT / path).read_text()), f"{path} has no {test}"


@pytest.mark.parametrize("promise", ALL, ids=lambda promise: plain(promise.sentence)[:50])
def test_its_runs_are_in_the_table_of_runs(promise):
    if not promise.runs.startswith(BY_HAND):
        assert {run.strip() for run in promise.runs.split(",")} <= set(promises.runs())


def test_every_run_is_a_target_with_its_last_run():
    targets = (ROOT / "Makefile").read_text()
    for name, run in promises.runs().items():
        target = run.target.removeprefix("make ")
        assert re.search(rf"^{target}:", targets, re.MULTILINE), f"{name}: no target {target}"
        known = DATE.search(run.seen) and re.search(r"\b(?:commit|state) [0-9a-f]{7}\b", run.seen)
        assert known or run.seen == "every commit of main", f"{name}: when was it last seen to pass, and on what?"


SETTINGS = re.compile(r"default|unless|timeout|interval|tolerance|for example", re.IGNORECASE)


def is_a_setting(line: str) -> bool:
    """A figure that one sets, or that is part of an example, is no claim."""
    return SETTINGS.search(line) is not None or line.startswith("| `")


def blocks(text: str) -> list[str]:
    """The page's sections below each heading: a date stands for the section that it is in."""
    return re.split(r"^#+ ", NEVER_GENERATED.sub("", text), flags=re.MULTILINE)


def said_of_a_page(page: str) -> str:
    return " ".join(plain(promise.sentence) for promise in ALL if promise.page == page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_time_a_rate_or_a_count_on_a_page_has_a_promise_or_a_date(page):
    name = str(page.relative_to(ROOT))
    promised = " ".join([said_of_a_page(name), *map(plain, NOT_OURS)])
    unfounded = []
    for block in blocks(page.read_text()):
        if DATE.search(block):
            continue
        for line in block.splitlines():
            words = plain(re.sub(r"`[^`]*`", "", line))
            unfounded += [
                f"{figure[0]!r} in: {line.strip()}"
                for figure in (*MEASURED.finditer(words), *COUNTED.finditer(words))
                if not (is_a_setting(line) or figure[0] in promised)
            ]
    assert not unfounded, f"{name} states what no promise, no date stands behind:\n" + "\n".join(unfounded)


COMMITS = re.compile(r"\b(?:commits?|code of commit) ([0-9a-f]{7})(?: and ([0-9a-f]{7}))?\b")
OF_FIGURES = ("docs/internals/performance.md", "docs/guide/requests.md", "docs/guide/pipeline.md")
"""Their tables are written from a run, or say which; so must their prose, which is soon older than the tables."""


def sentences(text: str) -> list[str]:
    """The page in paragraphs and items of lists; a table is part of the paragraph before it."""
    found: list[str] = []
    for part in re.split(r"\n\s*\n|\n(?=- |#+ )", NEVER_GENERATED.sub("\n\n", text)):
        if part.startswith("|") and found:
            found[-1] += f"\n{part}"
        else:
            found.append(part)
    return found


def undated(page: str, text: str) -> list[str]:
    """What is said there of how long or how often something takes, without the day and the commit it was true for."""
    promised = said_of_a_page(page)
    return [
        f"{figure[0]!r} in: {line.strip()}"
        for part in sentences(text)
        if not (DATE.search(part) and COMMITS.search(part))
        for line in part.splitlines()
        for figure in OF_PROSE.finditer(plain(re.sub(r"`[^`]*`", "", line)))
        if not (is_a_setting(line) or figure[0] in promised)
    ]


@pytest.mark.parametrize("page", OF_FIGURES)
def test_prose_about_figures_has_a_date_and_a_commit(page):
    found = undated(page, (ROOT / page).read_text())
    assert not found, f"{page} states figures without a date and a commit (2026-11-19, commit 0123abc):\n" + "\n".join(
        found
    )


def test_prose_without_a_date_is_found():
    page = OF_FIGURES[0]
    table = "Measured:\n\n| what | 3 ms |\n|---|---|\n"
    for text in (
        "It takes 3 ms.",
        "- It takes 3 ms (2026-11-19).\n- It (2026-11-19, commit 0123abc).",
        "30 % less",
        table,
    ):
        assert len(undated(page, text)) == 1, text
    dated = "It takes 3 ms (2026-11-19, commit 0123abc).", "`3 ms`", f"Measured 2026-11-19, commit 0123abc. {table}"
    assert [undated(page, text) for text in dated] == [[]] * 3


@pytest.mark.parametrize("page", OF_FIGURES)
def test_these_commits_are_in_the_history(page):
    named = {commit for found in COMMITS.findall((ROOT / page).read_text()) for commit in found if commit}
    known = subprocess.run(["git", "rev-list", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    if known.returncode or (ROOT / ".git/shallow").exists():
        pytest.skip("this is no clone with its history")
    assert named <= {line[:7] for line in known.stdout.splitlines()}


FIGURES = json.loads((ROOT / "bench/figures.json").read_text())
MEASURED_ROWS = [
    Result(cell["name"], cell["unit"], False, cell["unit"] in LOWER_IS_BETTER, [Sample(cell["median"])])
    for cell in FIGURES["cells"]
    if cell["median"] is not None
]


def test_every_row_of_the_benchmark_has_a_target_or_a_reason():
    """Those that the pages show, and those that were not measured yet."""
    listed = subprocess.check_output([sys.executable, "-m", "bench", "--list"], cwd=ROOT, text=True).splitlines()
    known = {row.name for row in MEASURED_ROWS}
    new = [Result(name, "", False, False, [Sample(1.0)]) for name in listed if name not in known]
    assert len(listed) > 100
    assert bars.without_target([*MEASURED_ROWS, *new]) == [], "rows without a target or a reason in bench/bars.py"


def test_a_row_without_a_target_is_found():
    assert bars.without_target([*MEASURED_ROWS, Result("new | ringmain", "ms", False, True, [Sample(1.0)])])


def targets() -> set[str]:
    made = bars.bars(MEASURED_ROWS)
    return {bar.what for bar in made} | {bar.group for bar in made}
