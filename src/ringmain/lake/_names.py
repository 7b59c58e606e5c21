"""The names of a lake's tables."""

from __future__ import annotations


def folder_name(topic: str) -> str:
    """A topic's name as one directory: `camera/left` is `camera~left`. No topic's name has a tilde."""
    return topic.replace("/", "~")


def topic_name(folder: str) -> str:
    """The topic of a directory."""
    return folder.replace("~", "/")


def silver_table(topic: str) -> str:
    return f"silver/{folder_name(topic)}"


def quarantine_table(topic: str) -> str:
    return f"quarantine/{folder_name(topic)}"
