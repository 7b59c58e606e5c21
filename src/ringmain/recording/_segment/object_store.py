"""The file system of an address, for pyarrow. Credentials come from the environment, or from options, which have the
names that `deltalake` has for them: AWS_ACCESS_KEY_ID, AZURE_STORAGE_ACCOUNT_KEY, GOOGLE_SERVICE_ACCOUNT, ...

On S3 the files are Arrow's own, so its threads may still hold them when the interpreter ends. With options for GCS and
Azure they are deltalake's: Arrow's own take no key of a service account.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from pyarrow import fs as pafs

_S3 = {
    "access_key_id": "access_key", "secret_access_key": "secret_key", "session_token": "session_token",
    "region": "region", "default_region": "region", "endpoint": "endpoint_override",
    "endpoint_url": "endpoint_override",
}  # fmt: skip
_GOOGLE_AND_AZURE = ("gs", "gcs", "abfs", "abfss", "az")


def open_filesystem(uri: str, options: Mapping[str, str]) -> tuple[pafs.FileSystem, str]:
    """The file system, and the directory in it. Options that are not about access do not matter here."""
    scheme, _, rest = uri.partition("://")
    address, _, query = rest.partition("?")
    if scheme == "az" or (options and scheme in _GOOGLE_AND_AZURE):
        container, _, path = address.partition("/")
        return _of_deltalake(f"{scheme.replace('gcs', 'gs')}://{container}", options), path.rstrip("/")
    if scheme not in ("s3", "s3a") or not options or "@" in address:
        filesystem, path = pafs.FileSystem.from_uri(uri)
        return filesystem, path.rstrip("/")
    given: dict[str, Any] = dict(parse_qsl(query))
    for key, value in options.items():
        name = key.lower().removeprefix("aws_")
        if name in _S3:
            given[_S3[name]] = value
        elif name == "skip_signature":
            given["anonymous"] = value.lower() == "true"
    kind, found, host = given.get("endpoint_override", "").rpartition("://")
    if found:
        given |= {"endpoint_override": host, "scheme": kind}
    return pafs.S3FileSystem(**given), address.rstrip("/")


def _of_deltalake(root: str, options: Mapping[str, str]) -> pafs.FileSystem:
    try:
        from deltalake.fs import DeltaStorageHandler
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"storage options for {root} need deltalake: pip install deltalake", name=error.name
        ) from error
    return pafs.PyFileSystem(DeltaStorageHandler(root, dict(options) or None))


def is_object_store(filesystem: pafs.FileSystem) -> bool:
    """There an object appears complete, when its upload is closed, and renaming is a copy: no temporary name is
    needed."""
    return filesystem.type_name in ("s3", "gcs", "abfs") or isinstance(filesystem, pafs.PyFileSystem)
