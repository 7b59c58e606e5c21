"""The names that programs imported from here before 0.2: they are in `ringmain.recording`."""

from ringmain.recording._format import RING_SCHEMA as RING_SCHEMA
