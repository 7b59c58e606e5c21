"""`python -m ringmain` is the command `ringmain`."""

import sys

from ringmain.cli import main

sys.exit(main())
