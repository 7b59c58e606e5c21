"""Check that a release is ready: version, changelog, tag and contents. `make release` runs this; it changes nothing.

It prints every check, and what is missing. When all is well, it prints what is left to do: the date and the tag.
"""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
ARCHITECTURES = ("x86_64", "aarch64")
MODULES = {
    *(f"ringmain/{name}.abi3.so" for name in ("_ring", "_ring_lab", "_recording")),
    *(f"ringmain/cpp/{name}/libringmain.so.0" for name in ("lib", "lab")),
    "ringmain/cpp/lib/pkgconfig/ringmain.pc",
    *(
        f"ringmain/cpp/lib/cmake/ringmain/ringmain-{name}.cmake"
        for name in ("config", "config-version", "targets", "targets-release")
    ),
}
GROUPS = {"Added", "Changed", "Fixed"}
Check = tuple[bool, str]


def git(*words: str, root: Path = ROOT) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout


def check_version(version: str, module: str) -> Iterator[Check]:
    yield re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version) is not None, f"pyproject.toml: version {version}"
    yield f'__version__ = "{version}"' in module, f"src/ringmain/__init__.py: __version__ is {version}"


def check_changelog(text: str, version: str) -> Iterator[Check]:
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    own = [each for each in headings if re.fullmatch(re.escape(version) + r" \((\d{4}-\d\d-\d\d|unreleased)\)", each)]
    yield len(own) == 1, f"CHANGELOG.md: a heading `## {version} (unreleased)`, or with a date in place of that word"
    groups = re.findall(r"^### (.+)$", text, re.MULTILINE)
    yield set(groups) <= GROUPS, f"CHANGELOG.md: no groups but {', '.join(sorted(GROUPS))}"
    waiting = re.search(r"^## Unreleased\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    yield not (waiting and waiting[1].strip()), "CHANGELOG.md: nothing is left under `## Unreleased`"
    newest = next((heading for heading in headings if heading != "Unreleased"), "")
    yield newest.split(" ")[0] == version, f"CHANGELOG.md: {version} is the newest version"


def check_tag(version: str, root: Path = ROOT) -> Iterator[Check]:
    yield not git("tag", "--list", f"v{version}", root=root).strip(), f"git: no tag v{version} yet"
    yield not git("status", "--porcelain", root=root).strip(), "git: nothing is changed or untracked"


def check_wheel(path: Path, version: str, sources: set[str]) -> Iterator[Check]:
    with zipfile.ZipFile(path) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
        metadata = email.message_from_bytes(wheel.read(f"ringmain-{version}.dist-info/METADATA"))
    yield metadata["Version"] == version, f"{path.name}: says version {version}"
    wanted = MODULES | {name.removeprefix("src/") for name in sources if name.startswith("src/")}
    headers = "native/include/"
    wanted |= {f"ringmain/cpp/include/{name.removeprefix(headers)}" for name in sources if name.startswith(headers)}
    yield wanted <= names, f"{path.name}: has every module {sorted(wanted - names)[:5] or ''}"
    info = f"ringmain-{version}.dist-info/"
    more = {name for name in names - wanted if not name.startswith(info)}
    yield not more, f"{path.name}: has nothing else {sorted(more)[:5] or ''}"
    licensed = f"{info}licenses/LICENSE" in names and metadata["License-Expression"] is not None
    yield licensed, f"{path.name}: has its licence"


def check_sdist(path: Path, version: str, sources: set[str]) -> Iterator[Check]:
    with tarfile.open(path) as sdist:
        names = {member.name.removeprefix(f"ringmain-{version}/") for member in sdist if member.isfile()}
    yield sources <= names, f"{path.name}: has every file of the repository {sorted(sources - names)[:5] or ''}"
    more = names - sources - {"PKG-INFO"}
    yield not more, f"{path.name}: has nothing else {sorted(more)[:5] or ''}"


def check_contents(dist: Path, version: str, sources: set[str]) -> Iterator[Check]:
    """dist/ has one sdist and one wheel for each architecture, of this version, with the right files."""
    sdist = dist / f"ringmain-{version}.tar.gz"
    yield sdist.exists(), f"dist/: {sdist.name}"
    if sdist.exists():
        yield from check_sdist(sdist, version, sources)
    for arch in ARCHITECTURES:
        wheels = list(dist.glob(f"ringmain-{version}-cp311-abi3-*manylinux*_{arch}.whl"))
        yield len(wheels) == 1, f"dist/: one manylinux wheel for {arch}"
        for wheel in wheels:
            yield from check_wheel(wheel, version, sources)
    others = [file.name for file in dist.glob("*") if not file.name.startswith(f"ringmain-{version}")]
    yield not others, f"dist/: nothing else {others or ''}"


def main() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    checks = [
        *check_version(version, (ROOT / "src/ringmain/__init__.py").read_text()),
        *check_changelog((ROOT / "CHANGELOG.md").read_text(), version),
        *check_tag(version),
        *check_contents(ROOT / "dist", version, set(git("ls-files").splitlines())),
    ]
    for good, text in checks:
        print(f"{'ok  ' if good else 'NOT '} {text}".rstrip())
    if not all(good for good, _ in checks):
        sys.exit("not ready to be released")
    print("ready, but for the tag: put the date into CHANGELOG.md, commit, then")
    print(f"  git tag --annotate v{version} --message 'ringmain {version}' && git push origin v{version}")


if __name__ == "__main__":
    main()
