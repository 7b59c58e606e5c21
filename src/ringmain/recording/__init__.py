"""Recordings: a durable, columnar log of the messages of topics. Needs the extra `record` (pyarrow).

`Recorder` records live topics, `Recording` reads a recording, `replay` publishes it again; `RecordingWriter` writes
batches without live topics. docs/guide/recording.md is the guide, docs/spec/recording.md the format on disk.

Imports point one way: _format, _meta -> _segment -> _upkeep -> _reader -> _record, _replay, _mcap -> _import,
_history -> here.
"""

from ringmain.recording._format import COLUMNS, FORMAT_VERSION, SCHEMA, Position
from ringmain.recording._frames import RecordedFrame
from ringmain.recording._import.importer import ImportedTopic, ImportStatus, import_bag
from ringmain.recording._message import RecordedMessage
from ringmain.recording._reader import Gap, Recording
from ringmain.recording._record.recorder import Recorder
from ringmain.recording._record.status import RecorderStatus, TopicStatus
from ringmain.recording._record.triggers import Trigger
from ringmain.recording._record.writer import RecordingWriter
from ringmain.recording._replay.player import Player, PlayerStatus, replay
from ringmain.recording._segment.segment import Damage
from ringmain.recording._segment.store import SegmentRef, Store, list_segments
from ringmain.recording._upkeep.incidents import Incident, forget, trigger
from ringmain.recording._upkeep.repair import Report
from ringmain.recording._upkeep.retention import consumers, register, unregister
from ringmain.recording._upkeep.upload import upload

__all__ = [
    "COLUMNS",
    "FORMAT_VERSION",
    "SCHEMA",
    "Damage",
    "Gap",
    "ImportStatus",
    "ImportedTopic",
    "Incident",
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
    "Trigger",
    "consumers",
    "forget",
    "import_bag",
    "list_segments",
    "register",
    "replay",
    "trigger",
    "unregister",
    "upload",
]
