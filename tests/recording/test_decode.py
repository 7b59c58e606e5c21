"""Recordings as tables without Spark: fields as columns, over all versions of a topic's schema."""

from __future__ import annotations

import builtins
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import ringmain as rm
from ringmain import typed
from ringmain.recording import RecordingWriter
from ringmain.recording._format import COLUMNS, RING_SCHEMA, field_columns
from tests.recording.conftest import START_NS, ring_batch

OURS = [f"rm_{name}" for name in COLUMNS]


class V1(msgspec.Struct):
    count: int
    label: str = ""
    size: int = 0


class V2(msgspec.Struct):
    count: float
    when: datetime.datetime | None = None


def encoded(type_: Any, values: list[Any], first: int = 0) -> pa.RecordBatch:
    payloads = [value if isinstance(value, bytes) else bytes(typed.codec_for(type_).encode(value)) for value in values]
    rows = ring_batch(first, len(payloads))
    return pa.RecordBatch.from_arrays([*rows.columns[:-1], pa.array(payloads, pa.binary())], schema=RING_SCHEMA)


@pytest.fixture
def two_versions(tmp_path: Path) -> Path:
    """`ticks` in two lives with different schemas, one payload that does not decode; and `raw`, plain bytes."""
    path = tmp_path / "r"
    with RecordingWriter(path, recorder="test") as writer:
        for epoch, type_, values in (
            (1, V1, [V1(1, "a", 7), V1(2, "b"), b"\xc1 no message"]),
            (2, V2, [V2(2.5), V2(3.5, datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC))]),
        ):
            schema = typed.codec_for(type_).schema.to_bytes()
            writer.declare("ticks", epoch=epoch, contract="bus", schema=schema)
            writer.append("ticks", epoch, encoded(type_, values))
        writer.append("raw", 1, ring_batch(0, 4))
    return path


def test_fields_are_columns_and_schema_versions_are_merged(two_versions: Path) -> None:
    table = rm.Recording(two_versions).to_arrow("ticks", decode=True)
    assert table.column_names == [*OURS, "count", "label", "size", "when", "rm_decode_error", "rm_host"]
    assert table.column("count").to_pylist() == [1.0, 2.0, None, 2.5, 3.5]
    assert table.column("label").to_pylist() == ["a", "b", None, None, None]
    assert table.column("size").to_pylist() == [7, 0, None, None, None], "the field, and not the payload's bytes"
    assert table.column("rm_size").to_pylist()[0] > 7
    assert [value is None for value in table.column("when").to_pylist()] == [True, True, True, True, False]
    assert table.column("rm_payload").to_pylist() == [None, None, b"\xc1 no message", None, None]
    assert [reason is None for reason in table.column("rm_decode_error").to_pylist()] == [True, True, False, True, True]


def test_a_field_may_have_the_name_of_any_column_of_ours(tmp_path: Path) -> None:
    """Each keeps its name and its values, and so does our column, which has the prefix."""
    names = [*COLUMNS, "host", "segment", "row", "decode_error", "time", "date"]
    kind = msgspec.defstruct("Taken", [(name, int) for name in names])
    with RecordingWriter(tmp_path / "r", recorder="test") as writer:
        writer.declare("t", epoch=1, schema=typed.codec_for(kind).schema.to_bytes())
        writer.append("t", 1, encoded(kind, [kind(*range(n, n + len(names))) for n in (0, 100)]))
    table = rm.Recording(tmp_path / "r").to_arrow("t", decode=True)
    assert table.select(names).to_pylist() == [dict(zip(names, range(n, n + 99), strict=False)) for n in (0, 100)]
    assert table.column("rm_topic").to_pylist() == ["t", "t"]
    assert table.column("rm_seq").to_pylist() == [0, 1]
    assert [row.rm_seq for row in rm.Recording(tmp_path / "r").to_pandas("t", decode=True).itertuples()] == [0, 1]


@pytest.mark.parametrize(
    ("fields", "known", "columns"),
    [
        (["seq", "Topic", "rmx"], [], ["seq", "Topic", "rmx"]),
        (["rm_seq", "RM_a", "x"], [], ["field_rm_seq", "field_RM_a", "x"]),
        (["rm_a", "field_rm_a", "field_a"], [], ["field_rm_a", "field_field_rm_a", "field_a"]),
        (["Size", "size", "SIZE"], [], ["Size", "size_2", "SIZE_3"]),
        (["Size", "size"], ["size"], ["Size_2", "size"]),
        (["SIZE", "Size", "size"], ["size", "Size_2"], ["SIZE_3", "Size_2", "size"]),
        (["size"], ["Size"], ["size_2"]),
        (["size"], ["Size", "size_2"], ["size_2"]),
    ],
)
def test_names_that_would_be_one(fields: list[str], known: list[str], columns: list[str]) -> None:
    """SQL ignores case; a table that grows keeps the columns that it has."""
    assert field_columns(fields, known) == columns


def test_filters_and_columns_apply(two_versions: Path) -> None:
    recording = rm.Recording(two_versions)
    table = recording.to_arrow(["ticks"], decode=True, columns=["rm_seq", "count"], until=START_NS + 1001)
    assert table.to_pydict() == {"rm_seq": [0, 0], "count": [1.0, 2.5]}
    assert recording.to_arrow("raw", columns=["seq"]).num_rows == 4, "without decode, topics come first too"
    assert recording.to_arrow("ticks", decode=True, first_seq=99).num_rows == 0


def test_a_topic_without_a_schema_keeps_its_payloads_and_says_why(two_versions: Path) -> None:
    table = rm.Recording(two_versions).to_arrow("raw", decode=True)
    assert table.column_names == [*OURS, "rm_decode_error", "rm_host"]
    assert None not in table.column("rm_payload").to_pylist()
    assert "no schema" in table.column("rm_decode_error")[0].as_py()


def test_decoding_takes_one_topic_that_is_there(two_versions: Path, tmp_path: Path) -> None:
    recording = rm.Recording(two_versions)
    with pytest.raises(ValueError, match=r"name one of those in .*, raw, ticks"):
        recording.to_arrow(decode=True)
    with pytest.raises(rm.TopicNotFound, match=r"no topic 'tick' in .*; it has raw, ticks"):
        recording.to_arrow("tick", decode=True)
    with RecordingWriter(tmp_path / "one") as writer:
        writer.append("only", 1, ring_batch(0, 3))
    assert rm.Recording(tmp_path / "one").to_arrow(decode=True).num_rows == 3


def test_pandas_and_polars_give_the_same(two_versions: Path) -> None:
    recording = rm.Recording(two_versions)
    pandas = recording.to_pandas("ticks", decode=True)
    polars = recording.to_polars("ticks", decode=True)
    assert list(pandas.columns) == polars.columns
    assert pandas["label"].tolist()[:2] == polars["label"].to_list()[:2] == ["a", "b"]
    assert len(recording.to_polars("raw")) == len(recording.to_pandas("raw")) == 4


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_missing_library_is_one_clear_sentence(
    two_versions: Path, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., Any] = builtins.__import__
    monkeypatch.setattr("importlib.import_module", lambda name: real(name) if name != library else _missing(name))
    sentence = rf"to_{library}\(\) needs {library}: pip install 'ringmain\[{library}\]'"
    with pytest.raises(ModuleNotFoundError, match=sentence):
        getattr(rm.Recording(two_versions), f"to_{library}")("ticks", decode=True)


def _missing(name: str) -> Any:
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
