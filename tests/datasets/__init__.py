"""Data sets: the grid, episodes, windows; with torch and Spark where they are there."""
