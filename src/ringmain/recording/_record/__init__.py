"""The recorder: from live topics to segments."""
