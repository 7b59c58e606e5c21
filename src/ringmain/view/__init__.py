"""See topics and recordings in the browser, or in a notebook, by Rerun's viewer, or by any that speaks Foxglove's
protocol. Needs the extra `view`.

    import ringmain as rm

    rm.view("drive")                              # in a notebook: a recording, or a lake
    with rm.view(topics=["imu", "camera/*"]): ...  # live topics, until the block ends
    rm.view.to_rerun("drive", stream)             # into a stream of your own

Imports point one way: _shown -> _usual_names, _pictures, _thin, _counts -> _interpret, _roster, _kept -> _live,
_recorded, _of_lake (the sources; _stored opens the latter two) and _layout -> _rerun (a sink), _rerun_server ->
_session -> here. A source knows nothing of viewers, a sink nothing of topics. _forms -> _foxglove is both in one:
there, messages are forwarded as they are.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from math import inf
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ringmain._closing import Closing
from ringmain.view._counts import Counts, sentence

if TYPE_CHECKING:
    import rerun

    from ringmain.view._stored import Where

__all__ = ["Counts", "View", "to_rerun", "view"]


class View(Closing):
    """A view of live topics, or of a recording. `counts` says of each topic what was shown and what was left out.
    `close()`, or the end of its `with` block, ends it; what is in the viewer stays there."""

    def __init__(self, counts: Mapping[str, Counts], thread: threading.Thread | None, stop: threading.Event) -> None:
        self.counts = counts
        self._thread, self._stop = thread, stop

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def __repr__(self) -> str:
        return f"<View of {', '.join(self.counts) or 'nothing yet'}; left out: {sentence(self.counts) or 'nothing'}>"


def to_rerun(
    source: Where,
    stream: rerun.RecordingStream | None = None,
    *,
    topics: str | Sequence[str] | None = None,
    host: str | None = None,
    since: int | datetime | None = None,
    until: int | datetime | None = None,
    hz: float = inf,
    points_hz: float = inf,
    jpeg: bool = False,
    layout: bool = False,
) -> Mapping[str, Counts]:
    """Log a recording or a lake to Rerun, beside what you log yourself. Returns what was logged of each topic, and left
    out.

    source: a path or URI, or one that is open, like `rm.Recording("flight", incident="braking")`.
    stream: by default the one of the thread (`rerun.init`).   topics: names or patterns.   host: of a lake, the one
    whose topics are wanted; of all, they are `HOST/TOPIC`.   since, until: publish times, as ns or datetimes: messages
    in [since, until).
    hz, points_hz: at most so many pictures of each path, and points of each number, a second.
    jpeg: large pictures as JPEG.   layout: send the layout that `ringmain view` makes, too.
    """
    import rerun

    from ringmain.view import _session
    from ringmain.view._rerun import RerunSink
    from ringmain.view._stored import stored_topics

    into = stream or rerun.get_data_recording()
    if into is None:
        raise ValueError("there is no stream to log to: call rerun.init first, or give one")
    stored = stored_topics(source, topics, host=host, since=since, until=until, hz=hz, points_hz=points_hz)
    _session.show_all(stored, RerunSink(into, jpeg=jpeg, layout=layout, live=False), threading.Event())
    return stored.counts


def view(
    source: Where | None = None,
    *,
    topics: str | Sequence[str] | None = None,
    host: str | None = None,
    since: int | datetime | None = None,
    until: int | datetime | None = None,
    hz: float | None = None,
    points_hz: float | None = None,
    jpeg: bool = True,
    width: int | None = None,
    height: int | None = None,
) -> View:
    """Show a recording or a lake, or without one live topics, in the notebook that this is called in. The view of live
    topics goes on in the background until it is closed. The arguments are those of `to_rerun`; live, the usual `hz` is
    10 and `points_hz` 200. Outside of a notebook, `ringmain view` opens the browser."""
    import rerun

    from ringmain.view import _session
    from ringmain.view._live import LIVE_HZ, LIVE_POINTS_HZ, LiveTopics
    from ringmain.view._rerun import APPLICATION, RerunSink
    from ringmain.view._stored import stored_topics

    if source is None and (host, since, until) != (None, None, None):
        raise ValueError("host, since and until are for a recording or a lake")
    if importlib.util.find_spec("rerun_notebook") is None:
        raise ImportError(
            "a view in a notebook needs rerun-notebook, which is not installed: pip install rerun-notebook"
        )
    stored = None
    if source is not None:
        stored = stored_topics(
            source, topics, host=host, since=since, until=until, hz=hz or inf, points_hz=points_hz or inf
        )
    stream = rerun.RecordingStream(APPLICATION)
    stream.notebook_show(width=width, height=height)
    sink = RerunSink(stream, jpeg=jpeg, live=stored is None)
    stop = threading.Event()
    if stored is not None:
        with sink:
            _session.show_all(stored, sink, stop)
        return View(stored.counts, None, stop)
    patterns = [topics] if isinstance(topics, str) else list(topics or ())
    live = LiveTopics(patterns, hz=hz or LIVE_HZ, points_hz=points_hz or LIVE_POINTS_HZ)

    def run() -> None:
        with closing(live), sink:
            _session.follow(live, sink, stop)

    thread = threading.Thread(target=run, name="ringmain-view", daemon=True)
    thread.start()
    return View(live.counts, thread, stop)


class _Callable(ModuleType):
    """`rm.view(...)` is the function, `rm.view.to_rerun` what is beside it: a module that can be called."""

    def __call__(self, *args: Any, **options: Any) -> View:
        return view(*args, **options)


sys.modules[__name__].__class__ = _Callable

if TYPE_CHECKING:

    class _CallableModule:
        """What `rm.view` is, for type checkers, which know of no module that can be called."""

        __call__ = staticmethod(view)
        to_rerun = staticmethod(to_rerun)
        View = View

    module: _CallableModule
