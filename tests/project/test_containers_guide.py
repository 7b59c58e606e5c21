"""docs/guide/containers.md: its YAML parses, its commands are real ones, its units and mount options are accepted."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import ringmain as rm
from ringmain._cli.main import command_parser, load

TEXT = (Path(__file__).parents[2] / "docs/guide/containers.md").read_text()
COMPOSE, POD = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL))
UNITS = dict(re.findall(r"`([\w-]+\.service)`:\n\n```ini\n(.*?)```", TEXT, re.DOTALL))


def containers(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from pod["spec"]["initContainers"] + pod["spec"]["containers"]


def commands() -> list[list[str]]:
    found = [service["command"] for service in COMPOSE["services"].values()]
    found += [container["command"] for container in containers(POD)]
    found += [shlex.split(line) for unit in UNITS.values() for line in re.findall(r"^ExecStart=(.*)", unit, re.M)]
    return [command for command in found if command[0].endswith("ringmain")]


def test_the_commands_parse():
    assert len(commands()) == 4
    for _, command, *words in commands():
        command_parser(command, load(command)).parse_intermixed_args(words)


def test_every_container_mounts_the_topics():
    for service in COMPOSE["services"].values():
        directory = service["environment"]["RINGMAIN_DIR"]
        assert f"topics:{directory}" in service["volumes"]
    assert set(COMPOSE["volumes"]) == {"topics", "recordings"}
    volumes = {volume["name"]: volume for volume in POD["spec"]["volumes"]}
    assert volumes["memory"]["emptyDir"]["medium"] == "Memory"
    for container in containers(POD):
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert set(mounts) <= set(volumes)
        (variable,) = container["env"]
        assert variable == {"name": "RINGMAIN_DIR", "value": f"{mounts['memory']}/topics"}


def test_a_volume_as_kubernetes_makes_it(monkeypatch, runtime_dir):
    """Writable by all: refused itself; a directory inside it works."""
    runtime_dir.chmod(0o2777)
    with pytest.raises(rm.NotAllowed, match="writable by every user"):
        rm.Publisher("imu")
    monkeypatch.setenv("RINGMAIN_DIR", str(runtime_dir / "topics"))
    with rm.Publisher("imu") as pub, rm.Subscriber("imu") as sub:
        pub.send(b"x")
        assert sub.recv(timeout=1) == b"x"


@pytest.mark.privileged
def test_the_volume_of_compose_can_be_mounted(tmp_path):
    options = COMPOSE["volumes"]["topics"]["driver_opts"]
    words = ["mount", "-t", options["type"], "-o", options["o"], options["device"], str(tmp_path)]
    inside = f"{shlex.join(words)} && stat -c '%a %u %g' {tmp_path}"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", inside], capture_output=True, text=True)
    if "permitted" in done.stderr or "permission denied" in done.stderr or "superuser" in done.stderr:
        pytest.skip(f"this system does not let us mount: {done.stderr.strip()}")
    assert done.stdout == "700 1000 1000\n", done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path):
    assert set(UNITS) == {"robot-recorder.service", "robot-pipeline.service"}
    for name, unit in UNITS.items():
        (tmp_path / name).write_text(unit.replace("/opt/robot/bin/ringmain", sys.executable))  # a program that is there
    done = subprocess.run(
        ["systemd-analyze", "verify", *(str(tmp_path / name) for name in UNITS)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if "robot-" in line], done.stderr


def test_the_error_that_the_guide_shows_is_the_real_one():
    (shown,) = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    with pytest.raises(rm.RingmainError, match="No space left") as caught:
        rm.Publisher("camera", capacity=2**40)  # more than any /dev/shm has

    def without_figures(text: str) -> str:
        return re.sub(r"/dev/shm/\S+:|\d+", "_", " ".join(text.split()))

    assert without_figures(shown).removeprefix("ringmain.errors.SystemFailure: ") == without_figures(str(caught.value))
