"""The live view on the terminal: a table of topics, and a topic opened. Needs Textual; computes nothing."""

from __future__ import annotations

import time
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from ringmain.cli.live.model import Model
from ringmain.cli.live.source import Source
from ringmain.cli.live.view import HEADS, cells, details, status_line

NEWEST = 10


class TopicScreen(Screen[None]):
    """One topic: members, schema, newest messages."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,backspace", "app.pop_screen", "back")]

    def __init__(self, topic: str) -> None:
        super().__init__()
        self.topic = topic

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="details", markup=False)
        yield Footer()

    def show(self, text: str) -> None:
        self.query_one("#details", Static).update(text)


class LiveView(App[None]):
    """`ringmain top`."""

    TITLE = "ringmain top"
    CSS = """
    #filter { display: none; dock: bottom; }
    #filter.shown { display: block; }
    #status { height: 1; background: $panel; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("s", "sort", "sort"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("p", "pause", "pause"),
    ]

    def __init__(self, source: Source, interval_s: float = 1.0) -> None:
        super().__init__()
        self.model = Model()
        self._source = source
        self._interval_s = interval_s

    def compose(self) -> ComposeResult:
        yield Static(id="status", markup=False)
        yield DataTable(id="topics", cursor_type="row", zebra_stripes=True)
        yield Input(placeholder="part of a topic's name; Enter or Esc goes back", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(DataTable).add_columns(*HEADS)
        self.refresh_now()
        self.set_interval(self._interval_s, self.refresh_now)
        self.query_one(DataTable).focus()

    def refresh_now(self) -> None:
        """Looks, and shows what was seen."""
        self.model.look(self._source.look())
        self.show_table()
        screen = self.screen
        if isinstance(screen, TopicScreen):
            row = self.model.row(screen.topic)
            if row is None:
                screen.show(f"{screen.topic} is gone")
            else:
                screen.show(details(row, self._source.newest(screen.topic, NEWEST), time.time_ns()))

    def show_table(self) -> None:
        base = self.screen_stack[0]
        table = base.query_one(DataTable)
        at = table.cursor_row
        table.clear()
        for row in self.model.rows():
            table.add_row(*cells(row), key=row.info.name)
        table.move_cursor(row=min(at, max(0, table.row_count - 1)))
        base.query_one("#status", Static).update(status_line(self.model))

    def action_sort(self) -> None:
        self.model.next_sort()
        self.show_table()

    def action_pause(self) -> None:
        self.model.paused = not self.model.paused
        self.show_table()

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.add_class("shown")
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.model.filter = event.value
        self.show_table()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._leave_filter()

    def on_key(self, event: object) -> None:
        if getattr(event, "key", "") == "escape" and self.query_one("#filter", Input).has_focus:
            self.query_one("#filter", Input).value = ""
            self._leave_filter()

    def _leave_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("shown")
        self.query_one(DataTable).focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        if event.row_key.value is not None:
            self.push_screen(TopicScreen(event.row_key.value), callback=None)
            self.call_after_refresh(self.refresh_now)
