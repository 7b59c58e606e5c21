"""The environment of the tests, and so of every process that they start: what is named here, and nothing else of the
caller's. A variable that one machine sets and another does not, such as PYTHONUNBUFFERED, decides no test."""

from __future__ import annotations

from collections.abc import MutableMapping

OF_THE_MACHINE = ("HOME", "PATH", "LANG", "TMPDIR", "CI", "CC", "CXX", "JAVA_HOME", "PLAYWRIGHT_BROWSERS_PATH")
OF_THE_BUILD = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "ASAN_OPTIONS")
"""How `make sanitize` puts another build in the place of the one that ships."""
OF_THE_TESTS = (
    "RINGMAIN_SEED", "RINGMAIN_EXAMPLES", "RINGMAIN_LEAK_ROUNDS", "RINGMAIN_LARGEST_RING", "RINGMAIN_STRESS_KILLS",
    "RINGMAIN_LOADED_S",
    "RINGMAIN_TASKS", "RINGMAIN_GOLDEN", "RINGMAIN_SCREENSHOTS", "RINGMAIN_LAB", "RINGMAIN_PYTHONS",
)  # fmt: skip
"""What a person tells them. RINGMAIN_DIR, RINGMAIN_BACKEND and the like are for programs, and tests say their own."""
OF_PYTEST = ("PYTEST_XDIST_", "PYTEST_CURRENT_TEST", "PYTEST_VERSION")
KEPT = frozenset((*OF_THE_MACHINE, *OF_THE_BUILD, *OF_THE_TESTS))


at_start: frozenset[str] = frozenset()
"""What was left when the tests began. Libraries set variables of their own later, as Spark does."""


def keep_what_is_named(environment: MutableMapping[str, str]) -> None:
    """Removes the rest, but for what pytest tells its own processes. Text is UTF-8 wherever the caller does not say."""
    for name in [name for name in environment if name not in KEPT and not name.startswith(OF_PYTEST)]:
        del environment[name]
    environment.setdefault("LANG", "C.UTF-8")
