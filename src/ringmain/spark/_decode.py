"""Payloads to columns, for Spark: `ringmain.recording._decode` has the one implementation."""

from ringmain.recording._decode import ERROR as ERROR
from ringmain.recording._decode import Decoding as Decoding
