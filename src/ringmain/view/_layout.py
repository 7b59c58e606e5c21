"""The layout of Rerun's page (a blueprint), made from what the topics have: a plot for each topic with numbers, a
picture for each path with pictures, a scene for what is in space, a map, and one log each of texts and of events."""

from __future__ import annotations

from typing import Any

import rerun.blueprint as rrb

from ringmain.view._shown import Event, GeoPoints, Image, Points, Poses, Series, Shown, Tensor, Texts

ABOUT, EVENTS = "/about", "/events"
_WINDOW_S = 20
"""How much of the past a live plot shows."""


class Layout:
    """Which views there are. Invariant: one that is there stays where it is; only new ones are added."""

    def __init__(self, *, live: bool, speed: float) -> None:
        self._live, self._speed = live, speed
        self._views: dict[tuple[type, str], str] = {}
        self._sent: int | None = None
        self._axes: set[str] = set()

    def add(self, topic: str, entity: str, thing: Shown) -> None:
        kind: type = type(thing)
        if isinstance(thing, Texts | GeoPoints):  # one view for all
            self._views.setdefault((kind, entity), topic)
        elif isinstance(thing, Series | Poses) or (isinstance(thing, Points) and thing.positions.shape[1] == 3):
            self._views.setdefault((Series if isinstance(thing, Series) else Poses, topic), topic)
        elif isinstance(thing, Image | Tensor | Points) and not isinstance(thing, Event):
            self._views.setdefault((kind, entity), topic)

    def is_new(self, entity: str) -> bool:
        """Has this rotation no axes yet?"""
        new = entity not in self._axes
        self._axes.add(entity)
        return new

    def changed(self) -> rrb.Blueprint | None:
        """The blueprint, if it is another than before."""
        if len(self._views) == self._sent:
            return None
        self._sent = len(self._views)
        return self.blueprint()

    def blueprint(self) -> rrb.Blueprint:
        """As it is now."""
        by_kind: dict[type, list[tuple[str, str]]] = {}
        for (kind, at), topic in sorted(self._views.items(), key=lambda item: item[0][1]):
            by_kind.setdefault(kind, []).append((at, topic))
        views: list[Any] = [self._picture(at) for at, _ in by_kind.get(Image, ())]
        views += [rrb.TensorView(origin=at, name=_name(at)) for at, _ in by_kind.get(Tensor, ())]
        if points := by_kind.get(Points):
            views += [rrb.Spatial2DView(origin=at, name=f"{_name(at)} (points)", **self._window()) for at, _ in points]
        if spaces := by_kind.get(Poses):
            contents = [f"+ {_entity(topic)}/**" for topic, _ in spaces]
            views.append(rrb.Spatial3DView(origin="/", contents=contents, name="space", **self._window()))
        if on_earth := by_kind.get(GeoPoints):
            contents = [f"+ {at}" for at, _ in on_earth]
            views.append(rrb.MapView(origin="/", contents=contents, name="map"))
        topics = [topic for topic, _ in by_kind.get(Series, ())]
        views += [self._plot(topic, topics) for topic in topics]
        logs: list[Any] = [rrb.TextLogView(origin=EVENTS, name="events")]
        if texts := by_kind.get(Texts):
            logs.append(rrb.TextLogView(origin="/", contents=[f"+ {at}" for at, _ in texts], name="texts"))
        logs.append(rrb.TextDocumentView(origin=ABOUT, name="shown and left out"))
        body = (
            rrb.Vertical(rrb.Grid(*views), rrb.Horizontal(*logs), row_shares=[4, 1]) if views else rrb.Vertical(*logs)
        )
        time = rrb.TimePanel(
            state="collapsed", timeline="publish_time", playback_speed=self._speed,
            play_state="following" if self._live else "paused",
        )  # fmt: skip
        return rrb.Blueprint(body, rrb.SelectionPanel(state="collapsed"), time, auto_views=False, auto_layout=False)

    def _picture(self, at: str) -> Any:
        return rrb.Spatial2DView(origin=at, contents="$origin", name=_name(at))

    def _plot(self, topic: str, topics: list[str]) -> Any:
        """Not what is of a topic whose name goes on from this one's."""
        others = [f"- {_entity(other)}/**" for other in topics if other.startswith(topic + "/")]
        return rrb.TimeSeriesView(
            origin=_entity(topic), contents=["+ $origin/**", *others], name=topic, **self._window()
        )

    def _window(self) -> dict[str, Any]:
        if not self._live:
            return {}
        boundary = rrb.TimeRangeBoundary
        start, end = boundary.cursor_relative(seconds=-_WINDOW_S), boundary.cursor_relative()
        return {"time_ranges": rrb.VisibleTimeRange("publish_time", start=start, end=end)}


def _entity(topic: str) -> str:
    import rerun as rr

    return rr.new_entity_path(topic.split("/"))


def _name(entity: str) -> str:
    return entity.lstrip("/")
