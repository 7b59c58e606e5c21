"""Compare ringmain with the libraries that programs come from: what `make test-originals` runs.

Installs the originals from PyPI into build/originals, and nothing of them anywhere else. Then
- runs msgq's and pysyncq's own tests, as they are, with ringmain instead of the library;
- runs our programs for them (tests/compat/programs) on the original and on ringmain, and compares what they print;
- runs the snippets of docs/guide/coming-from.md that need an original.

It needs an index to install from and takes a minute, so it is not part of `make test`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build/originals"
PACKAGES = ["msgq-ipc==1.0", "pysyncq==0.0.1", "pyzmq>=25", "iceoryx2>=0.9"]
PROGRAMS = ROOT / "tests/compat/programs"
GUIDE = ROOT / "docs/guide/coming-from.md"
NEEDS = re.compile(r"^<!-- not run: needs (\S+) -->\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
TIMEOUT_S = 120
METHODS = {"robot.py": ["fork", "spawn", "forkserver"], "team.py": ["fork", "spawn"]}  # pysyncq has no forkserver
CHATTER = re.compile(
    r"^(Starting listener|Stopping listener|Killing old publisher|VisionIpcClient connecting).*\n", re.M
)

failures: list[str] = []


def install() -> None:
    if SITE.exists():
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(SITE)]
    subprocess.run([*command, *PACKAGES], check=True)


def run(*words: object, on_original: bool, cwd: str | Path, said: str = "") -> tuple[int, str]:
    """Exit code and output of a Python program, on ringmain or on the original, in a runtime directory of its own."""
    environment = {**os.environ, "RINGMAIN_DIR": tempfile.mkdtemp(prefix="ringmain-originals-", dir="/dev/shm")}
    if on_original:
        environment["PYTHONPATH"] = str(SITE)
    before = [] if on_original else ["-m", "ringmain.compat"]
    try:
        done = subprocess.run(
            [sys.executable, *before, *map(str, words)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S, cwd=cwd, env=environment,
            input=said,
        )  # fmt: skip
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        return -1, f"{error.stdout or b''!r}\nstill running after {TIMEOUT_S} s"
    finally:
        shutil.rmtree(environment["RINGMAIN_DIR"], ignore_errors=True)


def report(what: str, good: bool, output: str) -> None:
    print(f"{'ok  ' if good else 'FAIL'} {what}", flush=True)
    if not good:
        failures.append(what)
        print("\n".join("     | " + line for line in output.splitlines()[-30:]))


def own_tests_of_msgq(folder: Path) -> None:
    # Out of their package: within it, `import msgq.tests` would look for them in ours.
    for number, tests in enumerate(["msgq/tests", "msgq/visionipc/tests"]):
        copy = folder / f"tests{number}"
        shutil.copytree(SITE / tests, copy)
        code, output = run("-m", "unittest", "discover", "-s", copy, on_original=False, cwd=copy)
        count = re.search(r"^Ran (\d+) tests", output, re.MULTILINE)
        report(f"{tests}: {count[1] if count else 'no'} tests on ringmain", code == 0 and bool(count), output)


def own_demo_of_pysyncq(folder: Path) -> None:
    """Its demo waits for three times ENTER: to start the children, to start their talk, to stop it."""
    copy = folder / "pysyncq_tests"
    shutil.copytree(SITE / "pysyncq/tests", copy)
    for method in ("fork", "spawn", "forkserver"):
        with tempfile.TemporaryDirectory(prefix="ringmain-originals-", dir="/dev/shm") as directory:
            demo = subprocess.Popen(
                [sys.executable, "-m", "ringmain.compat", "teststart.py", method, "demo.py"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=copy,
                env={**os.environ, "RINGMAIN_DIR": directory},
            )  # fmt: skip
            assert demo.stdin
            for pause_s in (3.0, 8.0, 0.0):  # as a person would: the demo cannot tell when its children are ready
                demo.stdin.write("\n")
                demo.stdin.flush()
                time.sleep(pause_s)
            try:
                output, _ = demo.communicate(timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired:
                demo.kill()
                output = demo.communicate()[0] + "\nstill running"
        stopped, joined = output.count("received stop signal"), output.count("Joined pid")
        good = demo.returncode == 0 and 0 < stopped == joined == os.cpu_count() and "Traceback" not in output
        report(f"pysyncq/tests/demo.py on ringmain, {method}", good, output)


def our_programs() -> None:
    for program, methods in METHODS.items():
        for method in methods:
            (there, original), (here, ours) = (
                run(PROGRAMS / program, method, on_original=which, cwd=ROOT) for which in (True, False)
            )
            original = CHATTER.sub("", original)
            good = there == here == 0 and original == ours
            report(f"{program} {method}: the same on both", good, f"--- original\n{original}--- ringmain\n{ours}")


def snippets(folder: Path) -> None:
    found = NEEDS.findall(GUIDE.read_text())
    for number, (package, code) in enumerate(found):
        script = folder / f"snippet_{number}.py"
        script.write_text(code)
        status, output = run(script, on_original=True, cwd=folder)
        report(f"coming-from.md, what you wrote for {package}", status == 0, output)
    report(
        "coming-from.md has snippets for all of them",
        {p for p, _ in found} >= {re.split("[=>]", p)[0] for p in PACKAGES},
        "",
    )


def main() -> None:
    install()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own_tests_of_msgq(folder)
        own_demo_of_pysyncq(folder)
        our_programs()
        snippets(folder)
    if failures:
        sys.exit(f"{len(failures)} failed: {'; '.join(failures)}")


if __name__ == "__main__":
    main()
