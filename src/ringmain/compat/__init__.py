"""Drop-in modules for programs written for msgq or pysyncq: change one import.

    from ringmain.compat import msgq              # was: import msgq
    from ringmain.compat import pysyncq as pq     # was: from pysyncq import pysyncq as pq

Where the imports cannot be changed (a library's own tests, a third-party module), `alias` gives the original's name to
the drop-in module, and `python -m ringmain.compat program.py` does so for a whole program.

This package is in the wheel and stands apart: nothing else in ringmain, nor its tools and examples, imports it.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

__all__ = ["LIBRARIES", "alias"]

LIBRARIES = {
    "msgq": {
        "msgq": "ringmain.compat.msgq",
        "msgq.ipc": "ringmain.compat.msgq",
        "msgq.ipc_pyx": "ringmain.compat.msgq",
        "msgq.visionipc": "ringmain.compat.msgq.visionipc",
        "msgq.visionipc.visionipc": "ringmain.compat.msgq.visionipc",
        "msgq.visionipc.visionipc_pyx": "ringmain.compat.msgq.visionipc",
    },
    "pysyncq": {
        "pysyncq": "ringmain.compat",
        "pysyncq.pysyncq": "ringmain.compat.pysyncq",
    },
}
"""For each library, the modules that programs import and their replacements. A parent comes before its children."""

_STAND_INS = Path(__file__).parent / "stand_ins"


def alias(*libraries: str) -> list[str]:
    """Make `import msgq` and `import pysyncq` (or those named) import the drop-in modules: in this process, and in
    those it starts with `multiprocessing`, by any start method. Call it before importing the program. Returns the
    directories it has put on the path, to be added to PYTHONPATH for other programs."""
    for library in libraries:
        if library not in LIBRARIES:
            raise ValueError(f"there is no drop-in for {library!r}, only for {', '.join(LIBRARIES)}")
    directories = []
    for library in libraries or LIBRARIES:
        for name, ours in LIBRARIES[library].items():
            sys.modules[name] = importlib.import_module(ours)
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], child, sys.modules[name])
        # A child that does not inherit `sys.modules` inherits `sys.path`, and finds modules there that call `alias`.
        directories.append(str(_STAND_INS / library))
        if directories[-1] not in sys.path:
            sys.path.insert(0, directories[-1])
    return directories
