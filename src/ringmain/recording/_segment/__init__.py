"""Segments, the files of a recording: written, read, sealed as Parquet, listed."""
