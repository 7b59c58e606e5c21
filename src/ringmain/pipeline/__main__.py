"""`python -m ringmain.pipeline run RECORDING... --lake DIR`; see command.py."""

from ringmain.pipeline.command import main

raise SystemExit(main())
