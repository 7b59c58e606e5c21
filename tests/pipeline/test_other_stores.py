"""Recordings and lakes on Azure and GCS, with storage options. Azure is Azurite, where it is installed
(`npm install -g azurite`). For GCS it is moto: the XML interface of GCS, which deltalake uses, is that of S3, as far as
reading goes. Both on loopback. No Spark."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmain.errors import RecordingNotFound
from ringmain.lake import Lake
from ringmain.pipeline import Pipeline
from ringmain.recording import Recording, RecordingWriter
from ringmain.recording._locations import find_recordings
from tests.recording.conftest import ring_batch
from tests.store import make_container


def record(directory: Path, uri: str, options: dict[str, str]) -> None:
    with RecordingWriter(directory, sealed_uri=uri, storage_options=options) as writer:
        writer.append("t", 1, ring_batch(0, 10))
    assert not list(directory.glob("*.parquet")), "all of it is in the store"


@pytest.fixture(scope="module")
def azure() -> Iterator[dict[str, str]]:
    """The options of an Azurite with a container `lakes`."""
    server = shutil.which("azurite-blob")
    if server is None:
        pytest.skip("azurite-blob is not installed: npm install -g azurite")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["--blobPort", str(port), "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    with subprocess.Popen([server, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert any("successfully listens" in line for line in process.stdout)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AZURITE_BLOB_STORAGE_URL", f"http://127.0.0.1:{port}")
            make_container(f"127.0.0.1:{port}", "lakes")
            yield {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURE_ALLOW_HTTP": "true"}
        process.kill()


@pytest.mark.parametrize("scheme", ["az", "abfss"])
def test_azure(azure: dict[str, str], scheme: str, tmp_path: Path) -> None:
    parent = f"{scheme}://lakes/{scheme}"
    record(tmp_path / "r", f"{parent}/drive", azure)
    assert list(find_recordings(parent, storage=azure)) == ["drive"]
    assert len(list(Recording(f"{parent}/drive", storage_options=azure))) == 10
    lake = Lake(f"{parent}-lake", azure)
    assert Pipeline(storage_options=azure).run(parent, lake, engine="local").rows_out == 10
    assert lake.to_arrow("silver/t").num_rows == lake.bronze().read_all().num_rows == 10
    assert Pipeline(storage_options=azure).run(parent, lake, engine="local").rows_in == 0
    assert "silver/t: 0 files joined, 0 deleted" in list(lake.maintain())


def test_gcs(s3_endpoint: str, s3: dict[str, str], tmp_path: Path) -> None:
    record(tmp_path / "r", "s3://lakes/google/drive", s3)
    key = {"gcs_base_url": f"http://{s3_endpoint}", "disable_oauth": True, "client_email": "", "private_key": ""}
    options = {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps({**key, "private_key_id": ""}), "ALLOW_HTTP": "true"}
    for scheme in ("gs", "gcs"):
        assert list(find_recordings(f"{scheme}://lakes/google", storage=options)) == ["drive"]
        assert len(list(Recording(f"{scheme}://lakes/google/drive", storage_options=options))) == 10
    assert Pipeline(storage_options=options).run("gs://lakes/google", tmp_path / "lake", engine="local").rows_out == 10
    with pytest.raises(RecordingNotFound, match="no recording at gs://lakes/none"):
        Recording("gs://lakes/none", storage_options=options)
