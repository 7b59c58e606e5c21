"""`python -m ringmain` is the command `ringmain`."""

import sys

from ringmain._cli import main

if __name__ == "__main__":
    sys.exit(main())
