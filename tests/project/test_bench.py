"""The benchmark reports what happened: a sample that does not count is repeated and marked, a missing message fails the
cell, an interrupted run keeps what it has, and some cells can be measured again into the file of another run.

The figures and the distance of the cores are invented; the one exchange between processes is real.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from bench import (  # noqa: E402
    bars,
    dropping,
    floors,
    frames_gpu,
    harness,
    idle,
    instructions,
    least,
    pair,
    placement,
    rates,
    runs,
    work,
)
from bench.peers.ring import Batching, Broadcast, Frames, Iterating, Single  # noqa: E402


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[float]], None]:
    """Sets how many ns apart the cores are, probe after probe, over and over."""

    def set_probes(probes: list[float]) -> None:
        endless: Iterator[float] = cycle(probes)
        monkeypatch.setattr(harness, "floor", lambda *_, **__: next(endless))

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


def test_windows_are_held_against_the_best_peer_and_a_batch_against_the_copy_of_its_pixels() -> None:
    batches = "16-step windows in batches of 8"
    rates = {
        "16-step windows | ringmain": 500.0, "16-step windows | pandas": 8.0, "16-step windows | datasets": 170.0,
        f"{batches} | ringmain": 9.0, f"{batches} | pandas": 4.0, f"limit: {batches}": 10.0,
    }  # fmt: skip
    found = {bar.what: bar for bar in bars.bars([result_of(name, rate, False) for name, rate in rates.items()])}
    assert [(bar.found, bar.limit, bar.met) for bar in found.values()] == [
        (0.9, 0.85, True),
        (pytest.approx(500 / 170), 3.0, False),
        (2.25, 2.0, True),
    ]


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


@pytest.mark.parametrize("kind", [work.Ring, work.RingBatch, work.Queue], ids=lambda kind: kind.name)
def test_work_is_done_once_by_three_workers(runtime_dir: Any, kind: type[work.Sharing]) -> None:
    messages = pair.pool(work.SIZE)
    assert work.share(kind(str(runtime_dir), 2), messages, 2, whole=True) > 0


def test_work_that_is_done_twice_is_found(runtime_dir: Any) -> None:
    class Twice(work.Queue):
        @contextmanager
        def sender(self, index: int) -> Iterator[Any]:
            with super().sender(index) as send:
                yield lambda messages: (send(messages), send(messages[:1]))

    with pytest.raises(pair.Wrong, match="not what was sent"):
        work.share(Twice(str(runtime_dir), 1), pair.pool(work.SIZE), 1, whole=True)


DUMP = """desc: Trigger: dump send

ob=(1) /lib/libpython.so
fn=(1) eval
0x10 10 500
cob=(2) /x/_ring.abi3.so
cfn=(2) send
calls=1 0x40 0
0x11 11 70
ob=(2)
fn=(2)
0x40 0 40
0x44 3 30
cob=(1)
cfn=(3) malloc
calls=1 0x20 0
0x48 3 25
ob=(1)
fn=(3)
0x44 0 25
totals: 595
"""
LISTING = """
   40:\tlock xadd %rax,0x40(%rbx)
   44:\txchg   %rax,(%rdx)
   48:\txchg   %ax,%ax
   4c:\tmov    %rax,(%rdx)
   50:\tmfence
   54:\tlock cmpxchg %rcx,(%rdx)
"""


def test_only_the_native_modules_own_instructions_are_counted(tmp_path: Path) -> None:
    (tmp_path / "callgrind.1").write_text(DUMP)
    assert instructions.dumped(tmp_path / "callgrind.1", None) == ("send", (70, 595, None))


def test_locked_instructions_are_found_and_counted_as_often_as_they_were_executed(tmp_path: Path) -> None:
    locked = instructions.locked_in(LISTING)
    assert locked == {0x40, 0x44, 0x50, 0x54}
    (tmp_path / "callgrind.1").write_text(DUMP)
    assert instructions.dumped(tmp_path / "callgrind.1", locked - {0x40}) == ("send", (70, 595, 30))


@pytest.mark.parametrize(("path", "allowed"), [("send, pipe", 0.0), ("recv, work", 1.0), ("typed send", 1.0)])
def test_more_locked_instructions_than_recorded_or_than_the_bar_fail(path: str, allowed: float) -> None:
    """None on the calls of every contract; where workers compete, and on other paths, as many as are recorded."""
    before = instructions.Record({path: 100.0}, {path: 1.0})
    assert instructions.too_many({path: instructions.Count(109, 500, allowed)}, before) == []
    assert instructions.too_many({path: instructions.Count(111, 500, allowed + 0.02)}, before) == [
        f"{path}: 111.0 instructions a message, recorded 100.0",
        f"{path}: {allowed + 0.02:.2f} locked instructions a message, allowed {allowed:.2f}",
    ]


def cpu_tree(root: Path, l2: dict[int, str]) -> Path:
    """A /sys that says which CPUs share an L2."""
    for cpu, shared in l2.items():
        for index, level, sharing in ((0, 1, str(cpu)), (2, 2, shared), (3, 3, "0-15")):
            cache = root / f"cpu{cpu}" / "cache" / f"index{index}"
            cache.mkdir(parents=True)
            (cache / "level").write_text(f"{level}\n")
            (cache / "shared_cpu_list").write_text(f"{sharing}\n")
    return root


def test_near_cpus_share_an_l2_and_far_ones_do_not(tmp_path: Path) -> None:
    root = cpu_tree(tmp_path, {cpu: f"{cpu % 8},{cpu % 8 + 8}" for cpu in range(16)})
    found = placement.machine(range(16), root)
    assert [str(one) for one in found.placements] == ["near: CPUs 0, 8", "far: CPUs 0, 1, 2, 3, 4, 5, 6, 7"]
    assert (found.skipped, found.far_cpus) == ((), 8)
    allowed = placement.machine([1, 2, 3, 4, 9], root)  # of which only 1 and 9 share one
    assert [one.cpus for one in allowed.placements] == [(1, 9), (1, 2, 3, 4)]


def test_where_the_kernel_says_nothing_of_caches_hyperthreads_are_near(tmp_path: Path) -> None:
    for cpu in range(8):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}\n")
    assert [one.cpus for one in placement.machine(range(8), tmp_path).placements] == [(0, 1), (0, 2, 4, 6)]


def test_a_machine_without_a_placement_says_so(tmp_path: Path) -> None:
    root = cpu_tree(tmp_path, {cpu: str(cpu) for cpu in range(8)})
    assert placement.machine(range(8), root).skipped == ("near: skipped, no two CPUs share an L2",)
    few = placement.machine(range(2), root)
    assert [one.name for one in few.placements] == ["near"]
    assert few.skipped == ("far: skipped, that needs 4 CPUs with an L2 each, and there are 2",)


def test_a_cell_is_measured_at_each_placement_that_has_room() -> None:
    near, far = placement.Placement("near", (0, 8)), placement.Placement("far", (0, 1, 2, 3))
    alone = harness.Cell("memcpy", "µs", figures([]))
    two = harness.Cell("32 B | x", "µs", figures([]), True)
    four = harness.Cell("one → three | x", "µs", figures([]), True, processes=4)
    found = harness.placed([alone, two, four], [near, far])
    assert [(cell.name, cell.at) for cell in found] == [
        ("memcpy", None),
        ("32 B | x", near),
        ("32 B, far | x", far),
        ("one → three, far | x", far),
    ]
    assert harness.placed([four], [near]) == [four]  # where no placement has room, the kernel chooses


def test_processes_run_where_they_are_put(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = max(os.sched_getaffinity(0))
    monkeypatch.setattr(pair, "cpus", (cpu,))
    assert pair.run_all([lambda ready: os.sched_getaffinity(0)]) == [{cpu}]
    monkeypatch.setattr(pair, "cpus", ())
    assert pair.run_all([lambda ready: os.sched_getaffinity(0)]) == [os.sched_getaffinity(0)]


def test_bars_for_real_cores_are_looked_at_where_there_are_eight() -> None:
    found = [
        result_of("32 B, far | ringmain", 9.1e6, False),
        result_of("round trip p50, spinning, far | ringmain", 1.0),
        result_of("round trip p50, spinning, far | kickmsg", 2.0),
    ]
    assert not any(bar.what.startswith("far: ") for bar in bars.bars(found, far_cpus=4))
    met = {bar.what: bar.met for bar in bars.bars(found, far_cpus=8)}
    assert met["far: 32 B on a pipe, messages/s"] is True
    assert met["far: round trip, kickmsg / ringmain"] is False


def test_what_arrives_and_what_is_lost_is_counted(runtime_dir: Any) -> None:
    messages = pair.pool(32)
    found = dropping.one_way(Broadcast(str(runtime_dir), 32), messages, len(messages) * 64)
    assert found.messages_per_s > 0
    assert 0 <= found.lost_percent <= 100


def test_without_torch_nothing_is_measured_on_a_gpu_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # what an import finds that is not installed
    monkeypatch.setattr(sys, "argv", ["frames_gpu"])
    assert frames_gpu.main() == 0
    assert capsys.readouterr().out == "frames_gpu: nothing measured, torch is not installed\n"


@pytest.mark.parametrize("processes", [1, 2])
def test_the_processor_time_of_subscribers_that_wait_is_measured(
    runtime_dir: Any, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    monkeypatch.setattr(idle, "SUBSCRIBERS", 2 * idle.ON_A_TOPIC)
    monkeypatch.setattr(idle, "SETTLE_S", 0.05)
    monkeypatch.setattr(idle, "WAIT_S", 0.1)
    assert idle.idle_ms(idle.Ring(), processes)(0) >= 0


def test_the_native_helper_builds() -> None:
    """It uses the ring's own headers, which no other build of the project does in this way."""
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("there is no compiler here")
    floors.build_floor()
    cpu = max(os.sched_getaffinity(0))
    assert floors.floor("cacheline") > 0
    assert floors.floor("throughput", 1000) > 0
    for what in (("large", 1 << 16, 30), ("wake", 200, 99.9), ("crowd", 3, 20)):
        assert floors.number_from(floors.LIMITS, *what) > 0
    with pytest.raises(subprocess.CalledProcessError):
        floors.floor("cacheline", cpus=(cpu, 1 << 16 | cpu))
    for what in ("duties-oneway", "duties-roundtrip"):
        assert floors.number_from(floors.FACE, what, 1000) > 0


@pytest.fixture
def built() -> None:
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("there is no compiler here")
    floors.build_floor()


@pytest.mark.usefixtures("built")
def test_what_rows_are_held_against_passes_on_all_messages(runtime_dir: Any) -> None:
    messages = pair.pool(least.SIZE)
    assert pair.throughput(least.Least(str(runtime_dir), least.SIZE), messages, 4 * len(messages)) > 0
    for spinning in (True, False):
        assert len(pair.round_trips(least.Least(str(runtime_dir), least.SIZE, spinning), messages[0], 200)) == 3
    assert least.batches(0) > 0
    assert work.share(least.LeastWork(str(runtime_dir), 3), messages, 40, whole=True) > 0


@pytest.mark.usefixtures("built")
def test_at_a_fixed_rate_all_take_part_in_each_round(runtime_dir: Any) -> None:
    chosen = {"9/s, looking | ringmain": lambda _: [1.0, 4.0, 9.0], "limit: 9/s, looking": lambda _: [1.0, 2.0, 3.0]}
    found = rates.measure({**chosen, "9/s, looking | kickmsg": lambda _: [2.0, 3.0, 3.0]}, 3, 0)
    assert {len(result.samples) for result in found} == {3}
    made = {bar.group: bar for bar in bars.bars(found)}
    at = "from the intended time, 9/s, looking"
    # Ahead of the best peer; or within a factor of what the machine lets Python reach.
    assert [(made[f"{p} {at}"].limit, made[f"{p} {at}"].met) for p in ("p50", "p99", "p99.9")] == [
        (1.0, True),
        (0.75, True),
        (0.5, False),
    ]
    assert len(rates.one_pair(least.Least, True, 2000)(0.05)) == 3


def test_a_target_gives_way_to_what_the_machine_lets_any_program_reach() -> None:
    def found(limit: float | None) -> bars.Bar:
        medians = {"6 MB | ringmain": 1000.0, "6 MB | iceoryx2": 1000.0, "limit: 6 MB": limit}
        results = [harness.Result(name, "messages/s", False, False) for name in medians]
        for result in results:
            if (median := medians[result.name]) is not None:
                result.samples.append(harness.Sample(median))
        return next(bar for bar in bars.bars(results) if bar.group == "6 MB")

    assert not found(None).met  # nothing says why we are not ahead
    assert not found(1500.0).met  # we reach two thirds of what can be reached
    assert found(1050.0).met
