"""Replay: from segments to live topics."""
