"""Small pictures for terminals, drawn with half-block characters (two pixels each, in colour) or with shades if there
is no colour. Needs no terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

    Pixels = npt.NDArray[Any]

_SHADES = " .:-=+*#%@"


def half_blocks(pixels: Pixels) -> list[list[tuple[str, str]]]:
    """The two colours of each character, upper and lower, as '#rrggbb'. To be drawn with '▀'."""
    colours = [[f"#{r:02x}{g:02x}{b:02x}" for r, g, b in row] for row in pixels.tolist()]
    return [list(zip(colours[at], colours[at + 1], strict=True)) for at in range(0, len(colours) - 1, 2)]


def shades(pixels: Pixels) -> list[str]:
    """Without colour: brighter characters for brighter pixels."""
    # Two rows become one, because a character is about twice as high as it is wide.
    grey = pixels.reshape(-1, 2, *pixels.shape[1:]).mean((1, 3))
    return ["".join(_SHADES[int(value) * len(_SHADES) // 256] for value in row) for row in grey.tolist()]
