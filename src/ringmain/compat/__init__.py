"""Drop-in modules for programs written for the libraries that ringmain unifies: change one import.

    from ringmain.compat import msgq              # was: import msgq
    from ringmain.compat import pysyncq as pq     # was: from pysyncq import pysyncq as pq

Where the imports are to stay as they are (a library's own tests, a module of somebody else's), `alias` gives the
original's name to the drop-in, and `python -m ringmain.compat program.py` does it for a whole program.
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
"""Of each library, the modules that programs import, and what stands in for them. A parent is before its children."""

_STAND_INS = Path(__file__).parent / "stand_ins"


def alias(*libraries: str) -> list[str]:
    """From now on `import msgq`, `import pysyncq` (those that are named, or both) give the drop-in modules: here, and
    in processes that `multiprocessing` starts from here by whatever method. Call it before the program is imported.
    Returns the directories it has put on the path, for PYTHONPATH, should other programs be started."""
    for library in libraries:
        if library not in LIBRARIES:
            raise ValueError(f"there is no drop-in for {library!r}: there are {', '.join(LIBRARIES)}")
    directories = []
    for library in libraries or LIBRARIES:
        for name, ours in LIBRARIES[library].items():
            sys.modules[name] = importlib.import_module(ours)
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], child, sys.modules[name])
        # A child that does not inherit `sys.modules` gets `sys.path`: what it finds there calls `alias` again.
        directories.append(str(_STAND_INS / library))
        if directories[-1] not in sys.path:
            sys.path.insert(0, directories[-1])
    return directories
