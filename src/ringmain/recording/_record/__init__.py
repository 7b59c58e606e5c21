"""Recording: from live topics to segments."""
