"""Recordings: a durable, columnar log of what went over the topics. Needs the extra `record` (pyarrow).

`Recorder` makes one from live topics, `Recording` reads it, `replay` publishes it again; `RecordingWriter` is what a
recorder writes with. docs/guide/recording.md shows how, docs/spec/recording.md says what is on disk.
"""

from ringmain.recording.format import COLUMNS, FORMAT_VERSION, SCHEMA, Position
from ringmain.recording.frames import RecordedFrame
from ringmain.recording.player import Player, PlayerStatus, replay
from ringmain.recording.reader import Gap, RecordedMessage, Recording
from ringmain.recording.recorder import Recorder
from ringmain.recording.repair import Report
from ringmain.recording.retention import consumers, register, unregister
from ringmain.recording.segments import SegmentRef, Store, list_segments
from ringmain.recording.status import RecorderStatus, TopicStatus
from ringmain.recording.stream import Damage
from ringmain.recording.writer import RecordingWriter

__all__ = [
    "COLUMNS",
    "FORMAT_VERSION",
    "SCHEMA",
    "Damage",
    "Gap",
    "Player",
    "PlayerStatus",
    "Position",
    "RecordedFrame",
    "RecordedMessage",
    "Recorder",
    "RecorderStatus",
    "Recording",
    "RecordingWriter",
    "Report",
    "SegmentRef",
    "Store",
    "TopicStatus",
    "consumers",
    "list_segments",
    "register",
    "replay",
    "unregister",
]
