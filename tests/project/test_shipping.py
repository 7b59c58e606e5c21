"""What is published: the CI calls only targets that exist, and `make release` finds what is missing."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from ringmain._native import LAYOUT

ROOT = Path(__file__).parents[2]
RUN = ROOT / ".ci/run"
WORKFLOW = ROOT / ".github/workflows/ci.yml"
SOURCES = {"src/ringmain/__init__.py", "native/format/layout.hpp", "LICENSE"}
CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 1.2.3 (2026-11-16)\n\n- Something.\n\n## 1.2.2 (2026-01-01)\n"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = load("release")


def missing(checks) -> list[str]:
    return [text for good, text in checks if not good]


def test_the_workflow_calls_targets_that_exist():
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    steps = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    assert any(step.endswith(".ci/run") for step in steps)
    called = {t for step in (*steps, RUN.read_text()) for t in re.findall(r"^[^#\n]*\bmake ([\w-]+)", step, re.M)}
    assert called >= {"check", "test", "test-privileged", "test-pythons", "wheels", "wheels-test"}
    ask = ["make", "--dry-run", "--question", "--keep-going", *sorted(called)]
    done = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True)
    assert "No rule" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("changelog", "lacks"),
    [
        (CHANGELOG, []),
        (CHANGELOG.replace("1.2.3 (2026-11-16)", "1.2.3 (unreleased)"), []),
        (CHANGELOG.replace("1.2.3 (2026-11-16)", "1.2.3 (soon)"), ["a heading"]),
        (CHANGELOG.replace("- Something.", "### Improved\n\n- Something."), ["no groups"]),
        (CHANGELOG.replace("Unreleased\n", "Unreleased\n\n- Not yet.\n"), ["nothing is left"]),
        ("# Changelog\n\n## 1.2.4 (2026-11-17)\n\n## 1.2.3 (2026-11-16)\n", ["newest"]),
    ],
)
def test_the_changelog_of_a_release(changelog, lacks):
    found = missing(release.check_changelog(changelog, "1.2.3"))
    assert len(found) == len(lacks)
    assert all(part in text for part, text in zip(lacks, found, strict=True))


def test_versions():
    assert missing(release.check_version("1.2.3rc1", '__version__ = "1.2.3rc1"\n')) == []
    assert len(missing(release.check_version("1.2.dev", '__version__ = "1.2.3"\n'))) == 2


def test_a_tag_that_exists_and_a_changed_tree_are_found(tmp_path):
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "a")
    assert missing(release.check_tag("1.2.3", tmp_path)) == []
    git("tag", "v1.2.3")
    (tmp_path / "new").touch()
    assert len(missing(release.check_tag("1.2.3", tmp_path))) == 2


def make_dist(folder: Path) -> None:
    """What `make wheels` leaves, in small."""
    with tarfile.open(folder / "ringmain-1.2.3.tar.gz", "w:gz") as sdist:
        for name in [*SOURCES, "PKG-INFO"]:
            sdist.addfile(tarfile.TarInfo(f"ringmain-1.2.3/{name}"), io.BytesIO())
    for arch in release.ARCHITECTURES:
        with zipfile.ZipFile(folder / f"ringmain-1.2.3-cp311-abi3-manylinux_2_17_{arch}.whl", "w") as wheel:
            for name in [*release.MODULES, "ringmain/__init__.py", "ringmain-1.2.3.dist-info/licenses/LICENSE"]:
                wheel.writestr(name, "")
            wheel.writestr("ringmain-1.2.3.dist-info/METADATA", "Version: 1.2.3\nLicense-Expression: Apache-2.0\n")


def test_the_contents_of_a_release(tmp_path):
    make_dist(tmp_path)
    assert missing(release.check_contents(tmp_path, "1.2.3", SOURCES)) == []
    with zipfile.ZipFile(next(tmp_path.glob("*aarch64.whl")), "a") as wheel:
        wheel.writestr("tests/__init__.py", "")
    assert len(missing(release.check_contents(tmp_path, "1.2.3", SOURCES))) == 1
    assert len(missing(release.check_contents(tmp_path, "1.2.3", SOURCES | {"src/ringmain/new.py"}))) == 4
    next(tmp_path.glob("*x86_64.whl")).unlink()
    assert "one manylinux wheel for x86_64" in missing(release.check_contents(tmp_path, "1.2.3", SOURCES))[0]


def test_the_classifiers_name_the_pythons_that_the_ci_runs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = set(re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"])))
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    assert named == {"3.11", *jobs["pythons"]["strategy"]["matrix"]["python"]}


def test_the_pythons_that_are_found_run(tmp_path: Path) -> None:
    tool = ROOT / "tools/pythons.py"
    done = subprocess.run([sys.executable, tool], capture_output=True, text=True, timeout=120, check=True)
    for version, python in (line.split() for line in done.stdout.splitlines()):
        ask = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        assert subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip() == version
    nowhere = {**os.environ, "PATH": str(tmp_path), "PYENV_ROOT": str(tmp_path)}
    none = subprocess.run([sys.executable, tool, "3.1"], capture_output=True, text=True, timeout=120, env=nowhere)
    assert (none.returncode, none.stderr) == (1, "there is no CPython 3.1 here\n")


def test_wheels_of_every_layout_before_meet_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    layouts = load("older_wheels").LAYOUTS
    assert layouts.keys() | {LAYOUT["version"]} == set(range(1, LAYOUT["version"] + 1)), "LAYOUTS lacks a commit"
