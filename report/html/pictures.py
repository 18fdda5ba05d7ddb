"""Draws shardings and schedules as SVG without scripts, for notebooks and for the docs.

Colours are those of the page in its light theme, on a white ground, so that a picture looks the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...cost.sizes import sized, timed
from ...cost.timeline import COMPUTE, TOGETHER, Event
from ...ir.sharding.sharding import Sharding
from ...ir.types.shape import Shape
from ..picture import MOST_DEVICES, Tiles, short_list
from ..schedule import Schedule, live_bytes
from .markup import Markup, element, joined

_INK, _LINE, _MUTE, _COMPUTE = "#1b1f26", "#d3d8df", "#576070", "#a9cdf0"
_STATES = {"hidden": ("#fbe7df", "#b8300a"), "partial": ("#dc9884", "#b8300a"), "exposed": ("#b8300a", "#b8300a")}
_FONT = "12px system-ui, sans-serif"
_CELL, _LANE, _LEFT, _HIGH = (74, 30), 26, 130, 84
_MOST_TILES, _MOST_ENGINES = 64, 12
_GAP = 1 / 1_500  # of the time, that two ops may lie apart and be one bar


def tiles_picture(shape: Shape, sharding: Sharding) -> Markup | None:
    """Draws which devices hold which tiles of an array, one slice beside the other; None if there are too many tiles
    or no mesh.
    """
    if sharding.mesh is None or sharding.mesh.size > MOST_DEVICES:
        return None
    tiles = Tiles.of(shape, sharding, sharding.mesh.size)
    if len(tiles.holders) > _MOST_TILES:
        return None
    rows, columns = (len(tiles.ranges[n]) if len(tiles.ranges) > n else 1 for n in (0, 1))
    wide, high = _CELL
    parts: list[Markup] = []
    for n, place in enumerate(tiles.slices):
        left = _CELL[0] + n * (columns * wide + wide // 2)
        if len(tiles.slices) > 1:
            parts.append(_text(left, 12, ", ".join(r[i] for r, i in zip(tiles.ranges[2:], place, strict=True)), _MUTE))
        for c in range(columns if len(tiles.ranges) > 1 else 0):
            parts.append(_text(left + c * wide + 4, 28, tiles.ranges[1][c], _MUTE))
        for r in range(rows):
            y = 36 + r * high
            if not n and tiles.ranges:
                parts.append(_text(0, y + 19, tiles.ranges[0][r], _MUTE))
            for c in range(columns):
                key = (r, c, *place)[: len(tiles.ranges)]
                fill = _colour(list(tiles.holders).index(key))
                parts += [_box(left + c * wide, y, wide - 3, high - 3, fill, _LINE),
                          _text(left + c * wide + 7, y + 18, short_list(tiles.holders[key]), _INK)]  # fmt: skip
    count = len(tiles.slices)
    return _svg(_CELL[0] + count * columns * wide + (count - 1) * wide // 2, 36 + rows * high, parts,
                f"tiles of {shape.without_layout()} {sharding}")  # fmt: skip


def _colour(tile: int) -> str:
    return f"hsl({tile * 137.5 % 360:g} 55% {72 if tile % 2 else 84}%)"


def timeline_picture(schedule: Schedule, width: int = 900) -> Markup:
    """Draws when each engine works, and the live memory below, on one axis of time. Filled collectives delay
    computation, pale ones are hidden. Of a loop the first trip is shown.
    """
    line, inside = schedule.timeline, width - _LEFT - 10
    engines = [COMPUTE, *line.busy][:_MOST_ENGINES]
    scale = inside / (line.seconds or 1.0)
    bottom = 22 + len(engines) * _LANE
    top = bottom + _HIGH + 12
    parts = [_text(_LEFT + inside * k // 5, 12, timed(line.seconds * k / 5), _MUTE, "end" if k == 5 else "start")
             for k in range(6)]  # fmt: skip
    for n, name in enumerate(engines):
        parts.append(_text(0, 36 + n * _LANE, name, _INK))
    for start, seconds in _together([e for e in line.events if e.is_computed], line.seconds):
        parts.append(_bar(start, seconds, scale, 0, _COMPUTE, _COMPUTE, ""))
    for event in line.collectives:
        fill, stroke = _STATES[event.state]
        words = f"{event.name}: {timed(event.seconds)}, {event.state}"
        parts += [_bar(event.start, event.seconds, scale, engines.index(name), fill, stroke, words)
                  for name in event.engine.split(TOGETHER) if name in engines]  # fmt: skip
    path = f"M{_LEFT} {top}"
    for seconds, size in live_bytes(schedule):
        path += f"H{_LEFT + seconds * scale:.1f}V{top - size / (schedule.peak or 1) * _HIGH:.1f}"
    parts.append(element("path", d=f"{path}H{_LEFT + inside}V{top}Z", fill=_COMPUTE, fill_opacity="0.5"))
    parts += [_text(0, bottom + 26, "live memory", _INK), _text(0, bottom + 42, f"peak {sized(schedule.peak)}", _MUTE)]
    return _svg(width, top + 4, parts, "timeline and live memory")


def _together(events: Sequence[Event], whole: float) -> Iterator[tuple[float, float]]:
    """Yields start and seconds of ops, those that follow each other as one."""
    first, last = None, 0.0
    for event in events:
        if first is not None and event.start - last > _GAP * whole:
            yield first, last - first
            first = None
        first = event.start if first is None else first
        last = event.end
    if first is not None:
        yield first, last - first


def _bar(start: float, seconds: float, scale: float, lane: int, fill: str, stroke: str, words: str) -> Markup:
    title = element("title", words) if words else ""
    return element("rect", title, x=f"{_LEFT + start * scale:.1f}", y=22 + lane * _LANE,
                   width=f"{max(1.0, seconds * scale):.1f}", height=_LANE - 6, fill=fill, stroke=stroke)  # fmt: skip


def _box(x: float, y: float, width: float, height: float, fill: str, stroke: str) -> Markup:
    return element("rect", x=x, y=y, width=width, height=height, rx=3, fill=fill, stroke=stroke)


def _text(x: float, y: float, text: str, fill: str, anchor: str | None = None) -> Markup:
    return element("text", text, x=x, y=y, fill=fill, text_anchor=anchor)


def _svg(width: int, height: int, parts: Sequence[Markup], label: str) -> Markup:
    ground = element("rect", width=width, height=height, fill="#fff")
    return element("svg", ground, joined(parts), xmlns="http://www.w3.org/2000/svg", width=width, height=height,
                   viewBox=f"0 0 {width} {height}", style=f"font: {_FONT}", role="img", aria_label=label)  # fmt: skip
