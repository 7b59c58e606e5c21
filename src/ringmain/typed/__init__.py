"""Typed topics: codecs between objects and payloads, and the schemas kept with a topic.

Nothing here knows of rings or messages: a codec turns an object into a buffer and back, a schema says what
is in the buffer, and the rest follows from the schema: whether a reader fits, decoding without the class,
the columns in Spark.
"""

from __future__ import annotations

from ringmain.typed._codecs import Codec, SimpleCodec, codec_for, codec_from_schema, register_codec
from ringmain.typed._columns import arrow_schema, decode_column, spark_ddl
from ringmain.typed._compatibility import compatible, differences
from ringmain.typed._schema import Schema

__all__ = [
    "Codec",
    "Schema",
    "SimpleCodec",
    "arrow_schema",
    "codec_for",
    "codec_from_schema",
    "compatible",
    "decode_column",
    "differences",
    "register_codec",
    "spark_ddl",
]
