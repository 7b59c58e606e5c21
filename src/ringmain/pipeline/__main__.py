"""`python -m ringmain.pipeline run RECORDING... --lake DIR`; see command.py."""

from ringmain.pipeline.command import main

if __name__ == "__main__":
    raise SystemExit(main())
