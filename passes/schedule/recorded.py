"""The forecast that a scheduled module records of itself, in its attributes: seconds, memory peak and lower bound."""

from __future__ import annotations

from ...ir.graph.module import Module

_SECONDS, _PEAK, _BOUND = (f"hloom.schedule.{name}" for name in ("seconds", "peak", "bound"))


def record(module: Module, seconds: float, peak: int, bound: float | None = None) -> None:
    """Records a forecast in seconds and bytes, and the seconds that no order goes below; None keeps those."""
    found = {_SECONDS: f"{seconds:.6g}", _PEAK: str(peak)}
    if bound is not None:
        found[_BOUND] = f"{bound:.6g}"
    module.frontend_attributes = {**module.frontend_attributes, **found}


def is_recorded(module: Module, seconds: float, peak: int) -> bool:
    """Whether a module records this forecast, and so has been scheduled for the machine that it is of."""
    return (_text(module, _SECONDS), _text(module, _PEAK)) == (f"{seconds:.6g}", str(peak))


def recorded_forecast(module: Module) -> tuple[float, int]:
    """Returns the seconds and the memory peak that a scheduled module records of itself."""
    return float(_text(module, _SECONDS)), int(_text(module, _PEAK))


def recorded_bound(module: Module) -> float | None:
    """Returns the lower bound in seconds that a module records of itself; None without one, and for other text."""
    try:
        return float(_text(module, _BOUND))
    except ValueError:
        return None


def _text(module: Module, name: str) -> str:
    return str(module.frontend_attributes.get(name, "")).strip('"')
