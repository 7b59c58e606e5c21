"""Small objects below an address, on a disk or in a store: read whole, written whole, and *made anew*, which of two
writers only one can. A table's log needs no more than this (_log.py).

In a store each of these is one request. The stores' clients are those of `obstore`, which takes the same options and
the same variables of the environment as `deltalake`; both are made of one library.
"""

from __future__ import annotations

import configparser
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import AzureStore, GCSStore, S3Store

from ringmain.errors import LakeError

WHOLE_BYTES = 8 << 20  # up to here a file is written by one request, and read by one
_CLIENT = re.compile(
    "allow_http|allow_invalid_certificates|(connect_)?timeout|http[12]_only|pool_idle_timeout|pool_max_idle_per_host"
    "|proxy_(url|ca_certificate|excludes)|user_agent"
)
_S3 = re.compile(
    "access_key_id|secret_access_key|session_token|token|(default_)?region|endpoint(_url)?|conditional_put|s3_express"
    "|virtual_hosted_style_request|skip_signature|imdsv1_fallback|metadata_endpoint|unsigned_payload|request_payer"
    "|checksum_algorithm|container_.*|web_identity_token_file|role_arn|role_session_name|endpoint_url_sts"
    "|server_side_encryption|sse_.*"
)
"""What the clients take of the options; others are for `deltalake` alone."""


class Objects(Protocol):
    """Names are below the address, with slashes."""

    def get(self, name: str) -> bytes | None:
        """None if there is no such object."""

    def put(self, name: str, data: bytes) -> None:
        """Also in place of one that is there. It appears whole."""

    def put_new(self, name: str, data: bytes) -> bool:
        """False, and nothing is changed, if there is such an object."""


def open_objects(uri: str, options: Mapping[str, str]) -> Objects:
    return StoredObjects(uri, options) if "://" in uri else LocalObjects(uri)


class LocalObjects:
    """On a disk."""

    def __init__(self, root: str) -> None:
        self._root = root

    def get(self, name: str) -> bytes | None:
        try:
            with open(f"{self._root}/{name}", "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def put(self, name: str, data: bytes) -> None:
        target = f"{self._root}/{name}"
        os.replace(self._written(target, data), target)

    def put_new(self, name: str, data: bytes) -> bool:
        target = f"{self._root}/{name}"
        made = self._written(target, data)
        try:
            os.link(made, target)
        except FileExistsError:
            return False
        finally:
            os.unlink(made)
        return True

    def _written(self, target: str, data: bytes) -> str:
        """Under a name that no reader knows, and no other thread has."""
        made = f"{target}.{os.getpid()}-{threading.get_ident()}.tmp"
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(made, "wb") as file:
            file.write(data)
        return made


class StoredObjects:
    """In an object store."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        with _as_of_the_system():
            self._store = _open_store(uri, options)

    def get(self, name: str) -> bytes | None:
        with suppress(FileNotFoundError), _as_of_the_system():
            return bytes(obstore.get(self._store, name).bytes())
        return None

    def put(self, name: str, data: bytes) -> None:
        with _as_of_the_system():
            obstore.put(self._store, name, data, use_multipart=False)

    def put_new(self, name: str, data: bytes) -> bool:
        with suppress(FileExistsError), _as_of_the_system():
            obstore.put(self._store, name, data, mode="create", use_multipart=False)
            return True
        return False

    def writer(self, name: str) -> Writer:
        """A file to write, of any size: one that is small is one request. It appears when it is closed."""
        return Writer(obstore.open_writer(self._store, name, buffer_size=WHOLE_BYTES))


class Writer:
    """A file in a store, for pyarrow."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file, self._bytes = file, 0

    def write(self, data: bytes) -> int:
        with _as_of_the_system():
            self._file.write(data)
        self._bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self._bytes

    def flush(self) -> None:
        pass

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with _as_of_the_system():
                self._file.close()


@contextmanager
def _as_of_the_system() -> Iterator[None]:
    """The errors of a store as those that files have."""
    try:
        yield
    except NotFoundError as error:
        raise FileNotFoundError(str(error)) from error
    except AlreadyExistsError as error:
        raise FileExistsError(str(error)) from error
    except BaseError as error:
        raise OSError(str(error)) from error


def _open_store(uri: str, options: Mapping[str, str]) -> Any:
    given = {key.lower(): value for key, value in options.items()}
    of_environment = {key.lower(): value for key, value in os.environ.items() if key.startswith("AWS_")}
    client: Any = {
        name: _flag(value)
        for key, value in [*of_environment.items(), *given.items()]
        if _CLIENT.fullmatch(name := _short(key))
    }
    parts = urlsplit(uri)
    common: Any = {"prefix": parts.path.strip("/") or None, "client_options": client or None}
    if parts.scheme in ("s3", "s3a"):
        config: Any = {f"aws_{name}": value for key, value in given.items() if _S3.fullmatch(name := _short(key))}
        if not {"aws_access_key_id", "aws_skip_signature"} & config.keys():
            config |= _of_profile(given)
        return S3Store(parts.netloc, config=config, **common)
    config = {key: value for key, value in given.items() if not _CLIENT.fullmatch(_short(key))}
    if parts.scheme in ("gs", "gcs"):
        return GCSStore(parts.netloc, config=config, **common)
    return AzureStore(parts.netloc.partition("@")[0], config=config, **common)


def _short(key: str) -> str:
    return re.sub("^(aws|azure|google)_", "", key)


def _flag(value: str) -> str | bool:
    return value.lower() == "true" if value.lower() in ("true", "false") else value


def _of_profile(given: Mapping[str, str]) -> dict[str, str]:
    """The keys in ~/.aws of the profile that is asked for, if the environment has none."""
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        return {}
    name = given.get("aws_profile") or os.environ.get("AWS_PROFILE") or "default"
    home = Path.home() / ".aws"
    files = configparser.ConfigParser(interpolation=None)
    with suppress(configparser.Error):
        files.read(
            [
                os.environ.get("AWS_CONFIG_FILE") or home / "config",
                os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials",
            ]
        )
    found: dict[str, str] = {}
    for section in (f"profile {name}", name):
        if files.has_section(section):
            found |= files[section]
    wanted = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region")
    keys = {f"aws_{key.removeprefix('aws_')}": found[key] for key in wanted if key in found}
    elsewhere = {"role_arn", "sso_start_url", "sso_session", "credential_process"}
    if "aws_access_key_id" not in keys and elsewhere & {*found}:
        raise LakeError(
            f"profile {name!r} in ~/.aws has no keys of its own: set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
            "AWS_SESSION_TOKEN (aws configure export-credentials --format env prints them)"
        )
    return keys
