"""The live view on the terminal: a table of topics, and the details of one. Needs Textual. Computes nothing.

Owns this invariant: a refresh may come at any moment, also while a screen is being opened or left. Textual mounts and
removes widgets one after the other, so a query finds some of them and not the others. A screen therefore keeps its
widgets: they can be written to before they are mounted, and after they are removed.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from ringmain._cli.live.model import Model, Row
from ringmain._cli.live.picture import half_blocks, shades
from ringmain._cli.live.source import Source
from ringmain._cli.live.view import (
    HEADS,
    NUMBERS,
    cells,
    details,
    frame_text,
    headline,
    incidents_text,
    messages_text,
    status_line,
    tone,
)
from ringmain.frames._thumbnail import thumbnail

NEWEST = 10
MOST_COLUMNS = 100
"""The greatest width of a picture."""
STYLES = {"": "", "note": "yellow", "bad": "bold red"}


class Topics(DataTable[Text]):
    """The table of topics."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "open")]


class TopicScreen(Screen[None]):
    """One topic: participants, schema, newest messages, and a picture if they are images."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace", "app.pop_screen", "back"),
        Binding("p", "app.pause", "pause"),
        Binding("ctrl+c", "app.quit", "quit", show=False),
    ]

    def __init__(self, topic: str) -> None:
        super().__init__()
        self.topic = topic
        self.headline = Static(id="headline", classes="bar", markup=False)
        self.details = Static(id="details", markup=False)
        self.messages = Static(id="messages", markup=False)
        self.picture = Static(id="picture", markup=False)

    def compose(self) -> ComposeResult:
        yield self.headline
        yield Horizontal(VerticalScroll(self.details, self.messages), self.picture)
        yield Footer()

    def show(self, headline: str | Text, details: str = "", messages: str = "", picture: Text | None = None) -> None:
        """`picture`: None if the messages are not images."""
        self.headline.update(headline)
        self.details.update(details)
        self.messages.update(messages)
        self.picture.display = picture is not None
        self.picture.update(picture or "")


class LiveView(App[None]):
    """`ringmain top`."""

    TITLE = "ringmain top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #filter { display: none; dock: bottom; }
    #filter.shown { display: block; }
    #incidents { display: none; padding: 0 1; }
    #incidents.shown { display: block; }
    .bar { height: 1; background: $panel; padding: 0 1; }
    #topics { height: 1fr; }
    #details, #messages { padding: 1 1 0 1; }
    #picture { padding: 1 2; width: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("s", "sort", "sort"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("p", "pause", "pause"),
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
    ]

    def __init__(self, source: Source, interval_s: float = 1.0) -> None:
        super().__init__()
        self.model = Model()
        self._source = source
        self._interval_s = interval_s
        self._status = Static(id="status", classes="bar", markup=False)
        self._incidents = Static(id="incidents", markup=False)
        self._table = Topics(id="topics", cursor_type="row", zebra_stripes=True)
        self._filter = Input(placeholder="part of a topic's name; Enter keeps it, Esc clears it", id="filter")

    def compose(self) -> ComposeResult:
        yield self._status
        yield self._incidents
        yield self._table
        yield self._filter
        yield Footer()

    def on_mount(self) -> None:
        for number, head in enumerate(HEADS):
            self._table.add_column(Text(head, justify="right" if head in NUMBERS else "left"), key=str(number))
        self.refresh_now()
        self.set_interval(self._interval_s, self.refresh_now)
        self._table.focus()

    def refresh_now(self) -> None:
        """Reads all topics and updates the screen."""
        if not self.screen_stack:
            return  # the app is ending
        self.model.look(self._source.look())
        kept = self._source.incidents()
        self._incidents.set_class(bool(kept), "shown")
        self._incidents.update(incidents_text(kept, time.time_ns()))
        self.show_table()
        self.show_topic()

    def show_table(self) -> None:
        table = self._table
        at, top = table.cursor_row, table.scroll_y
        table.clear()
        for row in self.model.rows():
            table.add_row(*_styled(row), key=row.info.name)
        table.move_cursor(row=min(at, max(0, table.row_count - 1)), scroll=False)
        table.scroll_to(y=top, animate=False)
        self._status.update(status_line(self.model))

    def show_topic(self) -> None:
        """Updates the details of the open topic, if there is one."""
        screen = self.screen
        if not isinstance(screen, TopicScreen) or (self.model.paused and screen.details.content):
            return
        row = self.model.row(screen.topic)
        if row is None:
            screen.show(f"{screen.topic} is gone")
            return
        head = Text(headline(row), style=STYLES[tone(row)])
        if row.frames is not None:
            frame = self._source.newest_frame(screen.topic)
            screen.show(head, details(row, time.time_ns()), frame_text(frame), self._picture(frame))
        else:
            newest = self._source.newest(screen.topic, NEWEST)
            image = newest[-1].data if newest else None
            screen.show(head, details(row, time.time_ns()), messages_text(newest), self._picture(image))

    def _picture(self, image: Any) -> Text | None:
        """In colour if the terminal has it, else in shades. None if it is not an image."""
        columns, rows = min(MOST_COLUMNS, self.size.width // 2 - 4), self.size.height - 4
        pixels = None if image is None or min(columns, rows) < 8 else thumbnail(image, columns, rows)
        if pixels is None:
            return None
        if self.console.color_system in (None, "standard") or self.console.no_color:
            return Text("\n".join(shades(pixels)))
        lines = [Text.assemble(*(("▀", f"{upper} on {lower}") for upper, lower in row)) for row in half_blocks(pixels)]
        return Text("\n").join(lines)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Sorting and filtering are for the table, not for an open topic."""
        return action not in ("sort", "filter") or not isinstance(self.screen, TopicScreen)

    def action_sort(self) -> None:
        self.model.next_sort()
        self.show_table()

    def action_pause(self) -> None:
        self.model.paused = not self.model.paused
        self.show_table()

    def action_filter(self) -> None:
        self._filter.add_class("shown")
        self._filter.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.model.filter = event.value
        self.show_table()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._leave_filter()

    def on_key(self, event: object) -> None:
        if getattr(event, "key", "") == "escape" and self._filter.has_focus:
            self._filter.value = ""
            self._leave_filter()

    def _leave_filter(self) -> None:
        self._filter.remove_class("shown")
        self._table.focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        if event.row_key.value is not None:
            self.push_screen(TopicScreen(event.row_key.value), callback=None)
            self.show_topic()


def _styled(row: Row) -> list[Text]:
    """A row's cells, aligned, and highlighted if there is a problem."""
    style = STYLES[tone(row)]
    shown = [
        Text(text, justify="right" if head in NUMBERS else "left") for head, text in zip(HEADS, cells(row), strict=True)
    ]
    shown[0].stylize("bold")
    shown[4].stylize("cyan")
    marked = {"FULL": row.full > 0.9, "BEHIND": row.behind, "DELAY": row.behind, "LOST": row.lost, "WHO IS SLOW": True}
    for text, head in zip(shown, HEADS, strict=True):
        if marked.get(head):
            text.stylize(style)
    return shown
