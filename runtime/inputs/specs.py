"""Parses settings of single inputs: `--inputs 'pos=int[0,50257); nu=uniform[0,1)'`. All other inputs stay random.

Settings are separated by `;`, later ones override earlier ones. A name is that of a parameter, a JAX path or an array
inside a tuple, as in `input_leaves`; `*` matches any characters. Quotes around parts of a name protect `;` and `=`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...ir.diagnostics import Location, SourceFile, fail
from ...ir.graph.value_range import Range
from ...ir.tools.names import fits, name_pattern, suggestions
from ...ir.types.element_type import ElementType, Kind
from .draw import Distribution, FixedNumber, Normal, Uniform, UniformInteger, component_type, largest, representable
from .leaves import InputLeaf

KINDS = "int[a,b) int[a,b] uniform[a,b) normal(mean,deviation) zeros ones constant(v) FILE.npy"
_SETTING = re.compile(r"""(?:[^;'"]|'[^']*(?:'|$)|"[^"]*(?:"|$))+""")
_NAME = re.compile(r"""(?:[^='"]|'[^']*'|"[^"]*")+""")
_ONE = r"([^,()\[\]]+)"
_KIND = re.compile(rf"(int|uniform)\s*([\[(]){_ONE},{_ONE}([\])])|(normal)\s*\({_ONE},{_ONE}\)|(constant)\s*\({_ONE}\)")
_NAMED = {"zeros": "constant(0)", "ones": "constant(1)"}


@dataclass(frozen=True, slots=True)
class InputSetting:
    """One setting: inputs whose names match the pattern are drawn from a distribution, or read from a file."""

    pattern: str
    made: Callable[[ElementType, Location], Distribution] | Path
    location: Location

    def distribution(self, leaf: InputLeaf) -> Distribution | None:
        """Returns the distribution for an input; None if a file holds it. Raises CompileError if its type has no such
        numbers.
        """
        if isinstance(self.made, Path):
            return None
        if leaf.shape.element.name == "f8e8m0fnu":
            fail(f"{leaf} has powers of two only", self.location, help="name a file, NAME=FILE.npy")
        return self.made(leaf.shape.element, self.location)


def settings_for(text: str, leaves: Sequence[InputLeaf], option: str) -> dict[int, InputSetting]:
    """Returns the setting of each input that a setting of this option names, by the input's number.

    Raises CompileError with the place in the text for a malformed setting, and for names that match no input.
    """
    source = SourceFile(option, text)
    chosen: dict[int, InputSetting] = {}
    for match in _SETTING.finditer(text):
        if match[0].strip():
            setting = _parse(match[0], match.start(), source)
            pattern = name_pattern(setting.pattern)
            fitting = [leaf for leaf in leaves if fits(pattern, leaf.names + leaf.owners)]
            if not fitting:
                close = suggestions(setting.pattern, (name for leaf in leaves for name in leaf.names))
                fail(f"no input is called '{setting.pattern}'", setting.location, help=f"inputs: {close}")
            chosen.update((leaf.number, setting) for leaf in fitting)
    return chosen


def _parse(text: str, offset: int, source: SourceFile) -> InputSetting:
    start = offset + len(text) - len(text.lstrip())
    location = Location(source, start, offset + len(text.rstrip()))
    name = _NAME.match(text)
    if name is None or not name[0].strip() or not text.startswith("=", name.end()):
        fail(f"'{text.strip()}' is not of the form NAME=KIND", location, help=f"kinds: {KINDS}")
    kind = text[name.end() + 1 :].strip()
    pattern = name[0].strip().removeprefix("%")
    if kind.endswith(".npy"):
        return InputSetting(pattern, Path(kind), location)
    match = _KIND.fullmatch(_NAMED.get(kind, kind))
    if match is None:
        fail(f"'{kind}' is not a kind of input", location, help=f"kinds: {KINDS}")
    opened, closed = match[2] or "(", match[5] or ")"
    word, *parts = (part for part in match.groups() if part is not None and part not in "[()]")
    values, make = [_number(part.strip(), location) for part in parts], _MAKERS[word]
    return InputSetting(pattern, lambda element, place: make(values, opened + closed, element, place), location)


def _number(text: str, location: Location) -> float | int:
    """Parses a number as Python writes it, or `true`, `false`."""
    if text in ("true", "false"):
        return int(text == "true")
    try:
        value = float(text)
        return int(text) if re.fullmatch(r"[+-]?\d+", text) and math.isfinite(value) else value
    except ValueError:
        fail(f"'{text}' is not a number", location)


Numbers = Sequence[float | int]


def _int(values: Numbers, brackets: str, element: ElementType, location: Location) -> Distribution:
    low, high = values
    if not (isinstance(low, int) and isinstance(high, int)):
        fail("the bounds of int must be whole numbers", location, help="uniform[a,b) takes others")
    low, high = low + (brackets[0] == "("), high - (brackets[1] == ")")
    if low > high:
        fail("there is no whole number in this range", location)
    if not (element.is_integer or element.kind is Kind.PRED):
        fail(f"int cannot make inputs of {element}", location, help="uniform[a,b), normal(mean,deviation)")
    least, greatest = _ends(element)
    if low < least or high > greatest:
        fail(f"int{brackets[0]}{values[0]},{values[1]}{brackets[1]} has numbers that {element} has not, "
             f"which are from {least} to {greatest}", location)  # fmt: skip
    return UniformInteger(low, high)


def _ends(element: ElementType) -> tuple[int, int]:
    """Returns the least and the greatest number of an integer type, or of pred."""
    return (0, 1) if element.kind is Kind.PRED else (element.least, element.greatest)


def _uniform(values: Numbers, brackets: str, element: ElementType, location: Location) -> Distribution:
    low, high = map(float, values)
    _require_float("uniform", element, location, low, high)
    within = Range((low, int(brackets[0] == "(")), (high, -int(brackets[1] == ")")))
    ends = representable(within, component_type(element))
    if ends is None or not ends[0] <= ends[1]:
        fail(f"there is no number of {element} in this range", location)
    return Uniform(low, high, within)


def _normal(values: Numbers, brackets: str, element: ElementType, location: Location) -> Distribution:
    mean, deviation = map(float, values)
    _require_float("normal", element, location, mean, deviation)
    if deviation < 0:
        fail(f"the deviation {values[1]} is negative", location)
    return Normal(mean, deviation)


def _require_float(kind: str, element: ElementType, location: Location, *values: float) -> None:
    if not (element.is_float or element.is_complex):
        fail(f"{kind} cannot make inputs of {element}", location, help="int[a,b), zeros, ones, constant(v)")
    for value in values:
        if not abs(value) <= largest(element):  # also rejects NaN
            fail(f"{value:g} is not a finite number of {element}", location)


def _value(values: Numbers, brackets: str, element: ElementType, location: Location) -> Distribution:
    return _constant(values[0], element, location)


def _constant(value: float | int, element: ElementType, location: Location) -> Distribution:
    if element.is_integer or element.kind is Kind.PRED:
        least, greatest = _ends(element)
        if not least <= value <= greatest or value != int(value):
            fail(f"{value} is not a number of {element}", location, help=f"numbers from {least} to {greatest}")
        return UniformInteger(int(value), int(value))
    if math.isfinite(value) and abs(value) > largest(element):
        fail(f"{value} is not a number of {element}", location)
    return FixedNumber(float(value))


_MAKERS: dict[str, Callable[[Numbers, str, ElementType, Location], Distribution]] = {
    "int": _int, "uniform": _uniform, "normal": _normal, "constant": _value,
}  # fmt: skip
