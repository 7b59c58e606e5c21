"""The page in a real browser: it draws the demo's plots and pictures. Pixels are looked at, for a page that loads and
shows nothing is the usual failure. It is drawn by a program here, not a GPU, so it takes its time."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from ringmain._demo.processes import Stage
from tests.view.conftest import Page, Viewing, hues, near

pytest.importorskip("rerun")

BALL = (255, 220, 60)


@pytest.mark.long
def test_the_page_shows_plots_and_pictures_of_the_demo(
    viewing: Callable[..., Viewing], open_page: Callable[[str], Page]
) -> None:
    with Stage() as stage:
        stage.start("camera", "imu")
        view = viewing()
        page = open_page(view.url)
        pixels = page.until(lambda seen: near(seen, BALL) >= 20 and hues(seen) >= 4, "the camera's ball, and plots")
        assert (abs(pixels[:, :, 2] - 90) <= 3).sum() >= 2000, "the ground behind the ball"
        code, said = view.end("send_signal", signal.SIGINT)
    assert code == 0, said
