"""Endpoints written in Python: what the `zmq` and `fake` publishers and subscribers share."""
