"""A reader in C, of which Python is the writer: `reader.c` is compiled with what `ringmain config` says."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import ringmain as rm

SOURCE = Path(__file__).parent / "reader.c"


def main() -> None:
    config = [sys.executable, "-m", "ringmain", "config", "--cflags", "--libs"]
    flags = shlex.split(subprocess.run(config, check=True, capture_output=True, text=True).stdout)
    subprocess.run(["cc", str(SOURCE), *flags, "-o", "reader"], check=True)
    with rm.Publisher("greetings", contract="reliable", sender="python") as pub:
        reader = subprocess.Popen(["./reader", "greetings", "3"], stdout=subprocess.PIPE, text=True)
        pub.wait_for_readers(1, timeout=20)
        for word in ("hello", "from", "Python"):
            pub.send(word.encode())
        said, _ = reader.communicate(timeout=20)
    print(said, end="")
    assert said.splitlines() == ["0 python: hello", "1 python: from", "2 python: Python", "0 lost"]


if __name__ == "__main__":
    main()
