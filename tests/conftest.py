"""What the tests share: a runtime directory of their own, real child processes whose every wait ends, and seeds.

Each test gets an empty RINGMAIN_DIR in /dev/shm. When it is over no topic may be left in it: whatever a test opens it
closes, and whatever it kills is cleaned up by those who live.
"""

from __future__ import annotations

import gc
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests import environment, preloads, privileges, promises

if TYPE_CHECKING:
    from tests.store import RequestLog

pytest_plugins = ["tests.spark.plugin"]

# In CI the examples are the same every time, so that a change is judged by what it changed; elsewhere they follow from
# RINGMAIN_SEED. Of either Hypothesis keeps no database: what fails is printed, and goes above its test as an example.
settings.register_profile("ringmain", print_blob=True)
settings.register_profile("ci", derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "ringmain")

PATIENCE_S = 30.0
"""How long a test waits for what must come. Only a defect makes it wait that long."""

PRELUDE = """
import ringmain as rm, os, sys, time
def say(*words): os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # `print` would wait in a buffer
def hear(): return sys.stdin.readline().strip()
"""

# A shell ignores SIGINT in processes that it runs in the background, and so would every child of the tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


STARTS_SPARK = (
    "tests/pipeline/test_pipeline.py",
    "tests/spark/test_source.py",
    "tests/spark/test_stream.py",
    "tests/datasets/test_build.py::test_spark_makes_the_same_table",
    "tests/pipeline/test_fleet.py::test_a_robot_is_aligned_with_itself",
    "tests/pipeline/test_upkeep.py::test_after_retention_spark_filters",
    "tests/pipeline/test_upkeep.py::test_spark_reads_all_types",
    "tests/project/test_examples.py::test_a_policy_learns_from_a_grid_that_spark_makes",
)


def shared_by(nodeid: str) -> str:
    """The tests for which this is the same are run by one process: those of a file, and all that share one Spark."""
    return "spark" if nodeid.startswith(STARTS_SPARK) else nodeid.partition("::")[0]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before anything reads the environment, or starts a process. Not when this file is imported: the processes that
    tests start import it, too, and keep what a test has told them."""
    environment.keep_what_is_named(os.environ)
    os.environ.setdefault("RINGMAIN_SEED", str(random.SystemRandom().randrange(1 << 32)))  # one for all processes
    if not settings.default.derandomize and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = os.environ["RINGMAIN_SEED"]
    environment.at_start = frozenset(os.environ)


def pytest_report_header() -> str:
    same = "; Hypothesis' examples are the same in every run with CI set" if settings.default.derandomize else ""
    return f"seed of the random tests: RINGMAIN_SEED={os.environ['RINGMAIN_SEED']}{same}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The seeds, and what a whole run leaves to other targets, as docs/internals/promises.md has it."""
    terminalreporter.line(pytest_report_header())
    if config.args != config.getini("testpaths") and config.args != [str(config.rootpath)]:
        return
    elsewhere = promises.not_in_make_test()
    terminalreporter.section("not in this run, and which target runs it")
    for target, runs in elsewhere.items():
        terminalreporter.line(f"{target:22} {runs}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """How `make test` divides the tests among several processes."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return shared_by(nodeid)

    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, so that no process is left with it at the end."""
    starting = [item.nodeid for item in items if item.get_closest_marker("each_run")]
    if apart := [nodeid for nodeid in starting if shared_by(nodeid) != "spark"]:
        raise pytest.UsageError(f"would start another Spark, unless STARTS_SPARK has them: {', '.join(apart)}")
    items.sort(key=lambda item: item.get_closest_marker("long") is None and shared_by(item.nodeid) != "spark")


def pytest_collection_finish() -> None:
    """Several tests collect garbage. The modules and tests that are there by now never become any, and looking through
    them each time takes 0.2 s."""
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    privileges.skip_without_privilege(item)


@pytest.fixture(autouse=True)
def enough_descriptors(request: pytest.FixtureRequest) -> Iterator[None]:
    """As many as the mark `descriptors` says."""
    mark = request.node.get_closest_marker("descriptors")
    with privileges.descriptors(*mark.args) if mark else nullcontext():
        yield


@pytest.fixture(autouse=True)
def runtime_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty runtime directory; afterwards no topic may be left in it."""
    path = Path(tempfile.mkdtemp(prefix="ringmain-test-", dir="/dev/shm"))
    monkeypatch.setenv("RINGMAIN_DIR", str(path))
    try:
        yield path
        left = sorted(file.name for file in path.glob("*.ring"))
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if "multiprocessing.forkserver" in sys.modules:  # it has our environment, the next test has another
            sys.modules["multiprocessing.forkserver"]._forkserver._stop()
    assert not left, f"topics left over: {left}"


@pytest.fixture(scope="session")
def s3_log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s3") / "requests.log"


@pytest.fixture(scope="session")
def s3_endpoint(s3_log_file: Path) -> Iterator[str]:
    """host:port of a server that speaks S3 (moto), with a bucket `lakes`."""
    pytest.importorskip("moto", reason="the S3 server of these tests comes with the extra `dev`")
    from tests.store import make_bucket, s3_server

    with s3_server(s3_log_file) as endpoint:
        make_bucket(endpoint, "lakes")
        yield endpoint


@pytest.fixture(scope="session")
def s3(s3_endpoint: str) -> dict[str, str]:
    """The storage options of that server."""
    from tests.store import storage_options

    return storage_options(s3_endpoint)


@pytest.fixture
def s3_log(s3_endpoint: str, s3_log_file: Path) -> RequestLog:
    """What that server is asked."""
    from tests.store import RequestLog

    return RequestLog(s3_log_file)


@pytest.fixture
def no_bell(runtime_dir: Path) -> None:
    """As in a directory that another user shares, whose bell we do not trust."""
    (runtime_dir / "bell").mkdir()


@pytest.fixture(scope="session")
def no_long_sleeps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that waits: in it a sleep that would be long lasts for hours."""
    return {"LD_PRELOAD": str(preloads.build("long_sleeps", tmp_path_factory.mktemp("preload")))}


class Child:
    """A Python process that runs a script and talks in lines: `say`, `hear` there, `line`, `tell` here. `within` is a
    command that runs it, such as `unshare`."""

    def __init__(
        self,
        script: str,
        *args: object,
        env: dict[str, str] | None = None,
        within: Sequence[str] = (),
        popen: type[subprocess.Popen[str]] = subprocess.Popen,
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 -- lives as long as the child
        self.process = popen(
            [*within, sys.executable, "-c", PRELUDE + textwrap.dedent(script), *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **(env or {})},
            text=True,
        )
        self.pid = self.process.pid
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout
        for text in self.process.stdout:
            self._lines.put(text.rstrip("\n"))
        self._lines.put(None)

    def errors(self) -> str:
        """What it wrote to its standard error so far."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def line(self, timeout: float = PATIENCE_S) -> str:
        """The next line it says."""
        try:
            text = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"the child said nothing for {timeout} s\n{self.errors()}") from None
        if text is None:
            raise AssertionError(f"the child ended early ({self.process.wait(timeout)})\n{self.errors()}")
        return text

    def tell(self, text: str = "") -> None:
        """What its next `hear()` returns."""
        assert self.process.stdin
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def finish(self, timeout: float = PATIENCE_S) -> list[str]:
        """Waits for its good end; returns what it said last."""
        code = self.process.wait(timeout)
        self._listener.join(timeout)
        assert code == 0, f"the child ended with {code}\n{self.errors()}"
        said = []
        while (text := self._lines.get(timeout=timeout)) is not None:
            said.append(text)
        return said

    def kill(self) -> None:
        """kill -9, and wait for the end."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def dispose(self) -> None:
        if self.process.poll() is None:
            self.kill()
        self._listener.join(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout, self._errors):
            try:
                if pipe:
                    pipe.close()
            except BrokenPipeError:
                pass


@pytest.fixture
def child() -> Iterator[Callable[..., Child]]:
    """Starts children; those that still run when the test is over are killed."""
    started: list[Child] = []

    def start(script: str, *args: object, **options: Any) -> Child:
        started.append(Child(script, *args, **options))
        return started[-1]

    yield start
    for one in started:
        one.dispose()


@pytest.fixture
def seed() -> int:
    """The seed of a random test: that of the run, new each time, or RINGMAIN_SEED. A failure shows it, too."""
    chosen = int(os.environ["RINGMAIN_SEED"])
    print(f"replay with RINGMAIN_SEED={chosen}")
    return chosen


@pytest.fixture
def in_thread() -> Iterator[Callable[..., Callable[[], object]]]:
    """Runs a function in a thread; the returned function waits for its end and gives or raises what it did."""
    threads: list[threading.Thread] = []

    def start(function: Callable[..., object], *args: object) -> Callable[[], object]:
        outcome: list[tuple[object, BaseException | None]] = []

        def run() -> None:
            try:
                outcome.append((function(*args), None))
            except BaseException as error:
                outcome.append((None, error))

        thread = threading.Thread(target=run, daemon=True)
        threads.append(thread)
        thread.start()

        def result() -> object:
            thread.join(PATIENCE_S)
            assert outcome, "the thread did not end"
            value, error = outcome[0]
            if error is not None:
                raise error
            return value

        return result

    yield start
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "a thread did not end"


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Waits until a condition holds, looking often; for what has no event to wait for."""

    def wait(condition: Callable[[], object]) -> None:
        pause = threading.Event()
        for _ in range(int(PATIENCE_S / 0.002)):
            if condition():
                return
            pause.wait(0.002)
        raise AssertionError("did not come about")

    return wait
