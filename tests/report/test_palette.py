"""The colours of the page: text has contrast in both themes, and no two things that mean something look alike to those
who see no red or no green.

The pairs are those that the style sheet puts on each other. A browser looks at text in place (`test_browser`).
"""

from __future__ import annotations

import itertools
import re

import pytest
from support.command_line import ROOT

_CSS = (ROOT / "report" / "html" / "page.css").read_text()
_TEXTS = [*itertools.product(("ink", "mute", "focus", "sent"), ("bg", "panel", "sel")), ("ink", "sentbg"),
          *itertools.product((f"a{n}" for n in range(6)), ("bg", "panel"))]  # fmt: skip
_BARS = [("backward", "bg"), ("sent", "bg"), ("sent", "line")]  # graphics need 3 to 1
# Vienot, Brettel, Mollon 1999, on linear RGB.
_BLIND = {
    "protanopia": ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
    "deuteranopia": ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)),
}
Colour = tuple[float, float, float]


def _themes() -> dict[str, dict[str, str]]:
    blocks = {name: dict(re.findall(r"--(\w+):(#[0-9a-f]+)", block))
              for name, block in re.findall(r":root(\[data-theme=dark\])?\{([^}]*)\}", _CSS)}  # fmt: skip
    light = blocks[""]
    return {"light": light, "dark": light | blocks["[data-theme=dark]"]}


def _linear(text: str) -> Colour:
    digits = text[1:] if len(text) == 7 else "".join(2 * c for c in text[1:])
    red, green, blue = (int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4))

    def of(v: float) -> float:
        return v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4

    return of(red), of(green), of(blue)


def _light(colour: Colour) -> float:
    return 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]


def _contrast(a: Colour, b: Colour) -> float:
    dark, bright = sorted((_light(a), _light(b)))
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(theme: str) -> None:
    colours = {name: _linear(text) for name, text in _themes()[theme].items()}
    found = {pair: _contrast(colours[pair[0]], colours[pair[1]]) for pair in _TEXTS}
    assert {pair: c for pair, c in found.items() if c < 4.5} == {}
    bars = {pair: _contrast(colours[pair[0]], colours[pair[1]]) for pair in _BARS}
    assert {pair: c for pair, c in bars.items() if c < 3} == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", [*_BLIND, "sight"])
def test_phases_and_states_differ(kind: str, theme: str) -> None:
    """Forward, backward, update and what is sent differ in lightness or in hue, however they are seen."""
    colours = {name: _seen(_linear(text), kind) for name, text in _themes()[theme].items()}
    for a, b in itertools.combinations(("forward", "backward", "update", "sent"), 2):
        assert _distance(colours[a], colours[b]) > 0.1, (a, b)


def _seen(colour: Colour, kind: str) -> Colour:
    if kind == "sight":
        return colour
    red, green, blue = (max(0.0, sum(w * c for w, c in zip(row, colour, strict=True))) for row in _BLIND[kind])
    return red, green, blue


def _distance(a: Colour, b: Colour) -> float:
    """How far two colours lie apart, as the eye sees lightness."""
    return sum((x ** (1 / 2.2) - y ** (1 / 2.2)) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5
