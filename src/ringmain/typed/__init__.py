"""Typed topics: codecs between objects and payloads, and the schemas kept with a topic.

Nothing here depends on rings or messages. A codec turns an object into a buffer and back, and a schema describes the
buffer. The rest is derived from the schema: whether a reader is compatible, decoding without the class, the columns in
Spark.
"""

from __future__ import annotations

from ringmain.typed._codec import Codec, SimpleCodec
from ringmain.typed._codecs import codec_for, codec_from_schema, register_codec
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
