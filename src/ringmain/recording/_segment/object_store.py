"""The file system of an address, for pyarrow. Credentials come from the environment, or from options, which have the
names that `deltalake` has for them: AWS_ACCESS_KEY_ID, AZURE_STORAGE_ACCOUNT_KEY, GOOGLE_SERVICE_ACCOUNT, ...

On S3 the files are Arrow's own, so its threads may still hold them when the interpreter ends. With options for GCS and
Azure they are deltalake's: Arrow's own take no key of a service account.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from pyarrow import fs as pafs

from ringmain.errors import NotAllowed

_S3 = {
    "access_key_id": "access_key", "secret_access_key": "secret_key", "session_token": "session_token",
    "region": "region", "default_region": "region", "endpoint": "endpoint_override",
    "endpoint_url": "endpoint_override",
}  # fmt: skip
_ELSEWHERE = (
    "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_METADATA_ENDPOINT",
)  # fmt: skip
"""Settings that say where S3's credentials are when they are not given."""
_GOOGLE_AND_AZURE = ("gs", "gcs", "abfs", "abfss", "az")


def check_credentials(uri: str, options: Mapping[str, str]) -> None:
    """Raises if there are no credentials for an address on S3. Its clients would ask the metadata service of a machine
    in the cloud, and wait for an answer that never comes elsewhere: they may with AWS_EC2_METADATA_DISABLED=false."""
    scheme, _, rest = uri.partition("://")
    if scheme not in ("s3", "s3a") or "@" in rest.partition("/")[0]:
        return
    given = {name.upper(): value for name, value in os.environ.items() if name.upper().startswith("AWS_")}
    for name, value in options.items():
        given[f"AWS_{name.upper().removeprefix('AWS_')}"] = value
    if given.get("AWS_SKIP_SIGNATURE", "").lower() == "true" or "anonymous=" in rest.partition("?")[2].lower():
        return
    if given.get("AWS_EC2_METADATA_DISABLED", "").lower() == "false" or any(map(given.get, _ELSEWHERE)):
        return
    home = Path.home() / ".aws"
    file = given.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials"
    missing = [name for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if not given.get(name)]
    if not missing or (len(missing) == 2 and os.path.isfile(file)):
        return
    raise NotAllowed(
        f"{scheme}://{rest.partition('?')[0]} needs credentials, and {' and '.join(missing)} "
        f"{'are' if len(missing) > 1 else 'is'} missing: set them in the environment or as storage options; for the "
        "role of a machine in the cloud set AWS_EC2_METADATA_DISABLED=false"
    )


def open_filesystem(uri: str, options: Mapping[str, str]) -> tuple[pafs.FileSystem, str]:
    """The file system, and the directory in it. Options that are not about access do not matter here."""
    check_credentials(uri, options)
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
