"""One short module for each command: its arguments, its examples, and what it opens and starts. See main.py."""
