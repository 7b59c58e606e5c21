"""What you need to test your own code on ringmain. So far the crash injector: `crash_points`, `die_at`, `stop_at`."""

from ringmain.testing.crash import crash_points, die_at, stop_at

__all__ = ["crash_points", "die_at", "stop_at"]
