"""The benchmark reports what happened: a sample that does not count is repeated and marked, a missing message fails the
cell, an interrupted run keeps what it has, and some cells can be measured again into the file of another run.

The figures and the distance of the cores are invented; the one exchange between processes is real.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from bench import bars, harness, instructions, pair, runs  # noqa: E402
from bench.peers.ring import Batching, Frames, Iterating, Single  # noqa: E402


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[float]], None]:
    """Sets how many ns apart the cores are, probe after probe, over and over."""

    def set_probes(probes: list[float]) -> None:
        endless: Iterator[float] = cycle(probes)
        monkeypatch.setattr(harness, "floor", lambda *_: next(endless))

    return set_probes


def figures(values: list[float]) -> Callable[[float], float]:
    left = iter(values)
    return lambda budget_s: next(left)


def test_a_sample_during_which_the_cores_moved_is_taken_again(apart: Callable[[list[float]], None]) -> None:
    apart([97, 470, 97, 97])
    [result] = harness.measure([harness.Cell("32 B | x", "µs", figures([9.0, 1.0]), True)], 1, 0)
    assert [sample.value for sample in result.samples] == [9.0, 1.0]
    assert result.samples[0].discarded == "the cores moved: 97 ns apart before, 470 ns after"
    assert result.median == 1.0
    assert result.placement == "near 1/2"


def test_far_samples_do_not_count_where_there_are_near_ones_and_say_so(apart: Callable[[list[float]], None]) -> None:
    apart([470, 470, 97, 97])
    [result] = harness.measure([harness.Cell("32 B | x", "µs", figures([9.0, 1.0]), True)], 2, 0)
    assert result.samples[0].discarded == "far, and there are near ones"
    assert result.median == 1.0


def test_on_a_machine_that_is_always_crowded_there_is_a_figure_with_that_name(
    apart: Callable[[list[float]], None],
) -> None:
    apart([50_000])
    [result] = harness.measure([harness.Cell("32 B | x", "µs", figures([3.0, 4.0, 5.0]), True)], 1, 0)
    assert (result.median, result.placement) == (4.0, "crowded")


def test_cells_that_follow_have_the_placement_of_the_first(apart: Callable[[list[float]], None]) -> None:
    apart([97, 470, 97, 97])
    first = harness.Cell("p50", "µs", figures([9.0, 1.0]), True)
    second = harness.Cell("p99", "µs", figures([90.0, 10.0]), True, follows=True)
    found = harness.measure([first, second], 1, 0)
    assert [result.median for result in found] == [1.0, 10.0]
    assert found[1].samples[0].discarded


def test_a_cell_that_fails_is_reported_and_costs_the_others_nothing() -> None:
    def fails(budget_s: float) -> float:
        raise pair.Wrong("message 3 is not what was sent")

    bad, good = harness.measure([harness.Cell("bad", "ns", fails), harness.Cell("good", "ns", figures([1.0]))], 1, 0)
    assert (bad.median, bad.error) == (None, "Wrong: message 3 is not what was sent")
    assert good.median == 1.0


def test_ctrl_c_keeps_what_was_measured() -> None:
    def interrupted(budget_s: float) -> float:
        raise KeyboardInterrupt

    said: list[str] = []
    cells = [harness.Cell("first", "ns", figures([1.0])), harness.Cell("second", "ns", interrupted)]
    assert [result.name for result in harness.measure(cells, 3, 0, said.append)] == ["first"]
    assert said[-1] == "interrupted: what was measured so far is kept"


def result_of(name: str, value: float, lower_is_better: bool = True) -> harness.Result:
    return harness.Result(name, "µs", False, lower_is_better, [harness.Sample(value)])


def test_some_cells_go_into_the_file_of_another_run(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    first = {**runs.circumstances("everything"), "date": "yesterday"}
    runs.write(path, first, [result_of("a | x", 1.0), result_of("b | x", 2.0)], [], {})
    before, again = runs.load(path), runs.circumstances("only b")
    merged = runs.merged(before, [result_of("b | x", 3.0), result_of("c | x", 4.0)], again)
    runs.write(path, again, merged, [], {}, before)
    cells = {cell["name"]: cell for cell in json.loads(path.read_text())["cells"]}
    assert [(name, cell["median"]) for name, cell in cells.items()] == [("a | x", 1.0), ("b | x", 3.0), ("c | x", 4.0)]
    assert [cell["by"]["command"] for cell in cells.values()] == ["everything", "only b", "only b"]
    with pytest.raises(SystemExit, match="machine differs"):
        runs.merged({**before, "machine": "another"}, [], again)


@pytest.mark.parametrize(("lower", "ahead"), [(True, 2.0), (False, 0.5)])
def test_bars_are_against_the_best_peer(lower: bool, ahead: float) -> None:
    best, worst = (4.0, 40.0) if lower else (4.0, 0.4)
    found = [result_of(f"1 KB | {who}", value, lower) for who, value in (("ringmain", 2.0), ("a", best), ("b", worst))]
    [bar] = bars.bars(found)
    assert (bar.rival, bar.found, bar.met) == ("a", ahead, lower)


@pytest.mark.parametrize("harm", ["drop", "double", "change"])
def test_a_message_that_is_lost_doubled_or_changed_is_found(harm: str) -> None:
    messages = pair.pool(32)
    sent = messages * 4
    at = 70
    if harm == "change":
        sent = [*sent[:at], *(bytes(32),) * pair.STEP, *sent[at + pair.STEP :]]
    else:
        sent = sent[:at] + sent[at + 1 :] if harm == "drop" else sent[:at] + sent[at - 1 :]
    with pytest.raises((pair.Wrong, StopIteration)):
        pair.consume(iter(sent).__next__, messages, len(messages) * 4)


@pytest.mark.parametrize(
    ("kind", "size"),
    [(Single, 32), (Iterating, 32), (Batching, 32), (Frames, pair.LARGE_BYTES)],
    ids=lambda one: str(one),
)
def test_processes_exchange_and_check(runtime_dir: Any, kind: Any, size: int) -> None:
    messages = pair.pool(size)
    assert pair.throughput(kind(str(runtime_dir), size), messages, 2 * len(messages)) > 0


def test_only_the_native_modules_own_instructions_are_counted(tmp_path: Path) -> None:
    (tmp_path / "callgrind.1").write_text(
        "desc: Trigger: dump send\n\n"
        "ob=(1) /lib/libpython.so\nfn=(1) eval\n10 500\ncob=(2) /x/_ring.abi3.so\ncfn=(2) send\ncalls=1 0\n11 70\n"
        "ob=(2)\nfn=(2)\n0 40\n+3 30\ncob=(1)\ncfn=(3) malloc\ncalls=1 0\n* 25\n"
        "ob=(1)\nfn=(3)\n0 25\ntotals: 595\n"
    )
    assert instructions._dumped(tmp_path / "callgrind.1") == ("send", (70, 595))
