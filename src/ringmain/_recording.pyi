from collections.abc import Sequence

from typing_extensions import Buffer

def derive(
    times: Buffer,
    offsets: Buffer,
    lost: Buffer,
    first: int,
    rows: int,
    micros: Buffer,
    nanos: Buffer,
    sizes: Buffer,
    /,
) -> tuple[int, int, int]: ...
def decode_messages(
    plan: Buffer, offsets: Buffer, data: Buffer, first: int, rows: int, /
) -> tuple[list[tuple[int, list[bytes | None]]], list[int]]: ...
def fill(to: Buffer, first: int, rows: int, value: int, /) -> None: ...

class Spool:
    def put(self, fd: int, pieces: Sequence[Buffer], ahead: int = 0, /) -> int: ...
    def wait(self) -> None: ...
    @property
    def written(self) -> int: ...
    @property
    def failed(self) -> bool: ...
