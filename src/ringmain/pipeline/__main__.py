"""`python -m ringmain.pipeline run RECORDING... --lake DIR`; see cli/pipelining.py."""

from ringmain.cli.pipelining import main

if __name__ == "__main__":
    raise SystemExit(main())
