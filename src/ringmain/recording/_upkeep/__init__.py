"""Upkeep of a recording: one recorder at a time, repair, retention."""
