"""The lake, without Spark."""
