"""One short module a command: its arguments, its examples, and what it opens and starts. See cli/main.py."""
