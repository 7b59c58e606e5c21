"""Recordings: a durable, columnar log of what went over the topics. Needs the extra `record` (pyarrow).

`Recorder` makes one from live topics, `Recording` reads it, `replay` publishes it again; `RecordingWriter` is what a
recorder writes with. docs/guide/recording.md shows how, docs/spec/recording.md says what is on disk.
"""

from ringmain.recording._format import COLUMNS, FORMAT_VERSION, SCHEMA, Position
from ringmain.recording._frames import RecordedFrame
from ringmain.recording._record.recorder import Recorder
from ringmain.recording._record.status import RecorderStatus, TopicStatus
from ringmain.recording._record.writer import RecordingWriter
from ringmain.recording._recording import Gap, RecordedMessage, Recording
from ringmain.recording._replay.player import Player, PlayerStatus, replay
from ringmain.recording._segment.segment_writer import Damage
from ringmain.recording._segment.store import SegmentRef, Store, list_segments
from ringmain.recording._upkeep.repair import Report
from ringmain.recording._upkeep.retention import consumers, register, unregister

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
