"""The file system of an address, for pyarrow. Credentials come from the environment, or for S3 from options, which have
the names that `deltalake` has for them: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL, ... The files are
Arrow's own, so its threads may still hold them when the interpreter ends."""

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


def open_filesystem(uri: str, options: Mapping[str, str]) -> tuple[pafs.FileSystem, str]:
    """The file system, and the directory in it. Options that are not about S3's access do not matter here."""
    scheme, _, rest = uri.partition("://")
    address, _, query = rest.partition("?")
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
