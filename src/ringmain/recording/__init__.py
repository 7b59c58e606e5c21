"""Recordings: a durable, columnar log of what went over the topics. Needs the extra `record` (pyarrow).

`RecordingWriter` makes one, `Recording` reads it; docs/spec/recording.md says what is on disk.
"""

from ringmain.recording.format import COLUMNS, FORMAT_VERSION, SCHEMA, Position
from ringmain.recording.reader import Gap, RecordedMessage, Recording
from ringmain.recording.repair import Report
from ringmain.recording.retention import consumers, register, unregister
from ringmain.recording.segments import SegmentRef, Store, list_segments
from ringmain.recording.stream import Damage
from ringmain.recording.writer import RecordingWriter

__all__ = [
    "COLUMNS",
    "FORMAT_VERSION",
    "SCHEMA",
    "Damage",
    "Gap",
    "Position",
    "RecordedMessage",
    "Recording",
    "RecordingWriter",
    "Report",
    "SegmentRef",
    "Store",
    "consumers",
    "list_segments",
    "register",
    "unregister",
]
