"""The protocol of Foxglove, by Foxglove's own client from npm: it receives exactly what a `Subscriber` receives, and a
topic that it does not look at costs nothing."""

from __future__ import annotations

import base64
import json
import math
import queue
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ringmain as rm
from ringmain import typed
from ringmain.recording import RecordingWriter
from tests.conftest import PATIENCE_S
from tests.spark.recordings import rows
from tests.view.conftest import Viewing, until

pytest.importorskip("foxglove")
ROOT = Path(__file__).parents[2]
MODULES = ROOT / "build/npm/node_modules"


class Imu(msgspec.Struct):
    time: float
    acceleration: tuple[float, float, float]
    label: str


class Client:
    """Foxglove's client, in node."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            ["node", str(Path(__file__).with_name("client.mjs")), url, str(MODULES)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._heard: queue.Queue[dict[str, Any]] = queue.Queue()
        self._before: list[dict[str, Any]] = []
        threading.Thread(target=self._listen, daemon=True).start()
        self.hear("open")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._heard.put(json.loads(line))

    def hear(self, kind: str, value: object = None) -> dict[str, Any]:
        """The next of that kind (and value); what else comes first is kept for later."""
        for at, known in enumerate(self._before):
            if kind in known and value in (None, known[kind]):
                return self._before.pop(at)
        while True:
            try:
                heard = self._heard.get(timeout=PATIENCE_S)
            except queue.Empty:
                raise AssertionError(f"the client did not hear {kind} {value}: {self._before}") from None
            if kind in heard and value in (None, heard[kind]):
                return heard
            self._before.append(heard)

    def tell(self, **what: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def client() -> Iterator[Callable[[str], Client]]:
    if shutil.which("node") is None or not (MODULES / "@foxglove/ws-protocol").is_dir():
        pytest.skip("no node, or not @foxglove/ws-protocol in build/npm: .ci/install")
    made: list[Client] = []

    def connect(url: str) -> Client:
        made.append(Client(url))
        return made[-1]

    yield connect
    for each in made:
        each.close()


def data_of(message: dict[str, Any]) -> bytes:
    return base64.b64decode(message["base64"])


def test_it_receives_exactly_what_a_subscriber_receives(
    viewing: Callable[..., Viewing], client: Callable[[str], Client]
) -> None:
    with (
        rm.Publisher("imu", type=Imu) as imu,
        rm.Publisher("raw") as raw,
        rm.Subscriber("imu", type=Imu) as sub,
        rm.Subscriber("raw") as raw_sub,
    ):
        viewer = client(viewing("--foxglove").url)
        channel = viewer.hear("channel", "imu")
        assert (channel["encoding"], channel["schemaName"]) == ("json", "Imu")
        assert set(json.loads(channel["schema"])["properties"]) == {"time", "acceleration", "label"}
        assert [each.name for each in rm.info("imu").readers if each.role == "observer"] == []
        for topic in ("imu", "raw"):
            viewer.tell(subscribe=topic)
            until(lambda topic=topic: [each for each in rm.info(topic).readers if each.role == "observer"])
        for number in range(200):
            imu.send(Imu(number / 7, (math.sin(number), 1e-300, -0.0), f"é{number}"))
            raw.send(bytes([number, 255, 0]))
        for message in sub.recv_messages(200):
            heard = viewer.hear("message", "imu")
            assert msgspec.json.decode(data_of(heard), type=Imu) == message.data
            assert int(heard["time_ns"]) == message.time_ns
        for message in raw_sub.recv_messages(200):
            assert data_of(viewer.hear("message", "raw")) == message.data
        viewer.tell(unsubscribe="imu")
        until(lambda: all(each.role != "observer" for each in rm.info("imu").readers))


def test_frames_and_texts_and_topics_that_come_and_go(
    viewing: Callable[..., Viewing], client: Callable[[str], Client]
) -> None:
    from foxglove.messages import Log, RawImage

    viewer = client(viewing("--foxglove").url)
    layout = rm.FrameLayout.of_image("rgb", 16, 8)
    with rm.FramePublisher("camera", layout=layout) as camera, rm.Publisher("log", type=str) as log:
        for topic, schema in (("camera", "foxglove.RawImage"), ("log", "foxglove.Log")):
            assert viewer.hear("channel", topic)["schemaName"] == schema
            viewer.tell(subscribe=topic)
        with camera.frame() as frame:
            frame.array[:] = (1, 2, 3)
        seen = data_of(viewer.hear("message", "camera"))
        assert bytes((1, 2, 3)) * 16 * 8 in seen
        assert RawImage.get_schema().name == "foxglove.RawImage"
        until(lambda: [each for each in rm.info("log").readers if each.role == "observer"])
        log.send("hello")
        assert b"hello" in data_of(viewer.hear("message", "log"))
        assert Log.get_schema().name == "foxglove.Log"
    viewer.hear("gone")


def test_publishing_where_it_is_allowed(viewing: Callable[..., Viewing], client: Callable[[str], Client]) -> None:
    with rm.Subscriber("command", type=dict, name="control") as commands, rm.Publisher("imu", type=Imu):
        with rm.Publisher("command", type=dict, contract="bus"):
            viewer = client(viewing("--foxglove", "--allow-publish", "command").url)
            viewer.hear("channel", "command")
            viewer.tell(publish="command", data={"steer": 0.5})
            assert commands.recv(timeout=PATIENCE_S) == {"steer": 0.5}
            viewer.tell(publish="imu", data={})
            assert viewer.hear("status")["status"] == "publishing to imu is not allowed: --allow-publish"


class Target(msgspec.Struct):
    x: float
    fast: bool = False


def test_services_are_called_where_it_is_allowed(
    viewing: Callable[..., Viewing], client: Callable[[str], Client], in_thread: Callable[..., Callable[[], object]]
) -> None:
    def move(target: Target) -> Target:
        if target.x < 0:
            raise ValueError("x is below 0")
        return Target(target.x * 2, True)

    with (
        rm.Server("move", request=Target, reply=Target) as server,
        rm.Server("stop") as other,
        rm.Server("raw/upper") as raw,
    ):
        done = [in_thread(each.serve, how) for each, how in ((server, move), (other, bytes), (raw, bytes.upper))]
        viewer = client(viewing("--foxglove", "--allow-call", "move", "--allow-call", "raw/*").url)
        told = viewer.hear("service", "move")
        assert set(json.loads(told["request"]["schema"])["properties"]) == {"x", "fast"}
        viewer.hear("service", "raw/upper")
        assert not [heard for heard in viewer._before if heard.get("service") == "stop"]
        assert rm.service("move").clients == 0, "one that is not called has no client"
        viewer.tell(call="move", data={"x": 1.5})
        assert viewer.hear("reply")["data"] == {"x": 3.0, "fast": True}
        viewer.tell(call="move", data={"x": -1})
        assert "x is below 0" in viewer.hear("failed")["message"]
        viewer.tell(call="move", data={"y": 0})
        assert "x" in viewer.hear("failed")["message"]
        viewer.tell(call="raw/upper", data="abc")
        assert base64.b64decode(viewer.hear("reply")["data"]) == b'"ABC"'
        assert rm.service("move").clients == 1
        raw.close()
        viewer.hear("servicesGone")
        server.close()
        other.close()
        for each in done:
            each()


def test_a_recording_is_played_paused_and_searched(
    tmp_path: Path, viewing: Callable[..., Viewing], client: Callable[[str], Client]
) -> None:
    """2,000 messages of two seconds, a hundred times as fast: each once and in order, from where the viewer seeks."""
    start_ns = 1_700_000_000 * 10**9
    encode = typed.codec_for(Imu).encode
    with RecordingWriter(tmp_path / "drive", fsync="never") as writer:
        writer.declare("imu", epoch=1, schema=typed.codec_for(Imu).schema.to_bytes())
        for n in range(0, 2000, 500):
            writer.append(
                "imu", 1, rows(n, 500, start_ns=start_ns, encode=lambda n: bytes(encode(Imu(n, (0, 0, 0), ""))))
            )
        writer.append("other", 2, rows(0, 10, start_ns=start_ns))

    viewer = client(viewing(str(tmp_path / "drive"), "--foxglove", "--port", "0").url)
    assert "playbackControl" in viewer.hear("capabilities")["capabilities"]
    assert set(json.loads(viewer.hear("channel", "imu")["schema"])["properties"]) == {"time", "acceleration", "label"}
    viewer.hear("channel", "other")
    viewer.tell(subscribe="imu")

    def play(seek: int | None, count: int) -> list[int]:
        viewer.tell(play=100.0, seek=None if seek is None else str(seek))
        heard = [viewer.hear("message", "imu") for _ in range(count)]
        return [json.loads(base64.b64decode(one["base64"]))["time"] for one in heard]

    assert play(start_ns, 2000) == list(range(2000))
    assert viewer.hear("state", "ended")["at_ns"] == str(start_ns + 1999 * 10**6 + 1)
    assert play(start_ns + 1500 * 10**6, 500) == list(range(1500, 2000))
    viewer.hear("state", "ended")
    viewer.tell(play=0, seek=str(start_ns + 10**9))
    assert viewer.hear("state", "paused")["at_ns"] == str(start_ns + 10**9)
    assert play(None, 1000) == list(range(1000, 2000)), "from where it was paused"


def test_a_loss_is_a_status(viewing: Callable[..., Viewing], client: Callable[[str], Client]) -> None:
    with rm.Publisher("imu", capacity="4KiB") as pub:
        viewer = client(viewing("--foxglove").url)
        viewer.hear("channel", "imu")
        viewer.tell(subscribe="imu")
        until(lambda: rm.info("imu").readers)
        for _ in range(50):
            pub.send_many([b"x" * 64] * 200)
        assert "this view lost" in viewer.hear("status")["status"]
