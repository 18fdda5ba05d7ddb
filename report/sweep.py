"""Shows a comparison of meshes and machines: a table, best first, and a plot of times by the number of devices."""

from __future__ import annotations

from collections.abc import Iterator

from ..cost.sizes import sized, timed
from ..passes.planning.sweep import Sweep, SweepPoint
from .columns import columns

_BAR = 40  # characters of the longest bar


def sweep_text(sweep: Sweep, most: int = 20) -> str:
    """Returns a summary, a table of the first `most` points, and a bar for the best mesh of each machine and number of
    devices.
    """
    count = len(sweep.points)
    judged = sum(point.judged is not None for point in sweep.points)
    left = f", {sweep.left_out} more had no time" if sweep.left_out else ""
    first = f"{count} mesh{'es' * (count > 1)} in {sweep.spent:.1f} s, {judged} of them scheduled{left}"
    return "\n".join([first, "", _table(sweep, most), "", *_plot(sweep)])


def _table(sweep: Sweep, most: int) -> str:
    rows = [("machine", "mesh", "time", "device time", "peak", "model", "memory")]
    for point in sweep.points[:most]:
        judged, value = point.judged, point.value
        time = judged_time = peak = ""
        if judged is not None:
            time = timed(judged.seconds) if judged.fits else "does not fit"
            judged_time, peak = timed(judged.seconds * point.mesh.size) if judged.fits else "", sized(judged.peak)
        model = timed(value.seconds) if point.fits else "does not fit"
        rows.append((point.machine, _mesh(point), time, judged_time, peak, model, sized(value.memory)))
    table = columns(rows, [False, False, True, True, True, True, True])
    hidden = len(sweep.points) - most
    return f"{table}\n.. {hidden} more" if hidden > 0 else table


def _mesh(point: SweepPoint) -> str:
    return "x".join(str(size) for _, size in point.mesh.axes)


def _plot(sweep: Sweep) -> Iterator[str]:
    """Yields a line with a bar for the best mesh of each machine and number of devices, by the time in the model."""
    best: dict[tuple[str, int], SweepPoint] = {}
    for point in sweep.points:
        key = point.machine, point.mesh.size
        if point.fits and (key not in best or point.value.seconds < best[key].value.seconds):
            best[key] = point
    if not best:
        return
    longest = max(point.value.seconds for point in best.values()) or 1.0  # ops that the model has no time for
    rows = [("machine", "devices", "mesh", "model", "")]
    for machine, devices in sorted(best):
        point = best[machine, devices]
        bar = "#" * max(1, round(_BAR * point.value.seconds / longest))
        rows.append((machine, str(devices), _mesh(point), timed(point.value.seconds), bar))
    yield columns(rows, [False, True, False, True, False])


def sweep_record(name: str, found: Sweep) -> dict[str, object]:
    """Returns a comparison of meshes and machines as JSON."""
    return {
        "program": name, "spent": found.spent, "left_out": found.left_out, "points": list(map(_point, found.points)),
    }  # fmt: skip


def _point(point: SweepPoint) -> dict[str, object]:
    judged = point.judged
    return {
        "machine": point.machine, "mesh": dict(point.mesh.axes), "devices": point.mesh.size,
        "fits": judged.fits if judged is not None else point.fits, "model": point.value.seconds,
        "memory": point.value.memory, "seconds": judged.seconds if judged is not None and judged.fits else None,
        "peak": judged.peak if judged is not None else None,
    }  # fmt: skip
