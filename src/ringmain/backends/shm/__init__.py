"""The `shm` backend: the native ring. `Publisher` and `Subscriber` are its endpoints; the rest is here."""

LOCKSTEP_VARIABLE = "RINGMAIN_LOCKSTEP"
"""Set by `ringmain.testing.Lockstep`: which subscribers pause, and where they ask to continue."""
