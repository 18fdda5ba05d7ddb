"""Functions that check the types of their arguments: a wrong one is a TypeError that says what to give.

The annotations say what fits. Those that name classes, sequences, mappings and literal texts are checked, all others
(arrays, functions) are left to the function. A number below the least that its annotation allows is a ValueError.
"""

from __future__ import annotations

import inspect
import numbers
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

Target = TypeVar("Target", bound=Callable[..., Any])
Kind = type | str  # a class, or a text as it is


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The least value of a number, as part of an annotation; what is no number is below it."""

    least: float


Positive = Annotated[int, AtLeast(1)]
NotNegative = Annotated[int, AtLeast(0)]
Duration = Annotated[float, AtLeast(0)]  # in seconds

_LONGEST = 60
_AS_GOOD: dict[type, type] = {int: numbers.Integral, float: numbers.Real, Path: os.PathLike}
_HELP = {
    "Module": "hloom.parse reads text, hloom.load a file",
    "Sharding": "hloom.parse_sharding reads text, hloom.Sharding.over takes the axes of a mesh",
    "Shape": "hloom.parse_shape reads text",
    "Mesh": "write hloom.Mesh.of(x=2, y=4)",
    "Machine": "hloom.parse_machine reads text",
    "LocalForms": "write hloom.local_forms().override(name, form)",
    "P": "write hloom.P(opcode)",
    "Computation": "module.entry is one",
    "Instruction": "module.entry.root is one",
    "Strategy": "hloom.load_strategy reads a file",
    "Communicator": "mpi4py.MPI.COMM_WORLD is one",
    "KernelProvider": "hloom.runtime.NumpyKernels() is one",
}


def checked(target: Target) -> Target:
    """Makes a function, or the constructor of a class, raise TypeError for arguments that its annotations exclude, and
    ValueError for numbers that are too small.
    """
    given: Any = target
    if isinstance(target, type):
        given.__init__ = _checked(given.__init__, given.__name__)
        return given
    return _checked(given, given.__name__)


def wrong_type(name: str, value: object, kinds: Iterable[Kind], help: str = "") -> TypeError:
    """Returns the error about a value that fits none of these classes, and is none of these texts."""
    words = [_word(kind) for kind in kinds]
    wanted = " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    shown = repr(value)
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}.."
    return TypeError(f"{name} must be {wanted}, found {type(value).__name__} {shown}" + (f"; {help}" if help else ""))


def _word(kind: Kind) -> str:
    return repr(kind) if isinstance(kind, str) else "None" if kind is NoneType else kind.__name__


def _checked(function: Callable[..., Any], name: str) -> Any:
    parameters = inspect.signature(function).parameters
    positional = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    others = next((p.name for p in parameters.values() if p.kind is p.VAR_KEYWORD), "")
    known: dict[str, tuple[Kind, ...]] = {}
    least: dict[str, float] = {}

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if not known:
            hints = _hints(function, parameters)
            known.update(_kinds(hints))
            least.update(_least(hints))
        for word, value in (*zip(positional, arguments), *named.items()):
            kinds = known.get(word if word in parameters else others)
            if kinds and not any(_fits(value, kind) for kind in kinds):
                help = "; ".join(_HELP[_word(kind)] for kind in kinds if _word(kind) in _HELP)
                raise wrong_type(f"{name}: {word}", value, kinds, help)
            if word in least and value is not None and not value >= least[word]:
                raise ValueError(f"{name}: {word} must be at least {least[word]}, found {value!r}")
        return function(*arguments, **named)

    return call


def _fits(value: object, kind: Kind) -> bool:
    if isinstance(kind, str):
        return value == kind
    if kind is bool:  # also the one of numpy, and numbers; a text would always be true
        return hasattr(value, "__bool__")
    if kind is Sequence:  # arrays are sequences too
        return isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)
    if kind in type(value).__mro__:  # which a protocol tells only after a look at each of its members
        return True
    return isinstance(value, (kind, _AS_GOOD.get(kind, kind)))


def _hints(function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]) -> dict[str, tuple[Any, ...]]:
    """Returns the alternatives of each annotation, without those that are a name for type checkers only."""
    names: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    found: dict[str, tuple[Any, ...]] = {}
    for name, parameter in parameters.items():
        hint = parameter.annotation
        try:
            hint = eval(hint, names) if isinstance(hint, str) else hint
        except NameError:
            continue
        found[name] = get_args(hint) if isinstance(hint, UnionType) or get_origin(hint) is Union else (hint,)
    return found


def _kinds(hints: Mapping[str, Sequence[Any]]) -> dict[str, tuple[Kind, ...]]:
    """Returns the classes and texts that each parameter takes, of those that can be checked."""
    found: dict[str, tuple[Kind, ...]] = {}
    for name, members in hints.items():
        if get_origin(members[0]) is Literal and len(members) == 1:
            found[name] = get_args(members[0])
            continue
        classes = [_class(member) for member in members]
        if all(classes):
            found[name] = tuple(kind for kind in classes if kind is not None)
    return found


def _least(hints: Mapping[str, Sequence[Any]]) -> dict[str, float]:
    """Returns the least number that each parameter takes, of those that have one."""
    return {
        name: bound.least for name, members in hints.items() for member in members
        for bound in getattr(member, "__metadata__", ()) if isinstance(bound, AtLeast)
    }  # fmt: skip


def _class(hint: Any) -> type | None:
    """Returns the class of an annotation, if one can ask for its instances."""
    hint = hint.__origin__ if get_origin(hint) is Annotated else hint
    kind: Any = get_origin(hint) or hint
    if kind in (Any, inspect.Parameter.empty) or not isinstance(kind, type) or issubclass(kind, type | Callable):
        return None
    is_protocol = getattr(kind, "_is_protocol", False) and not getattr(kind, "_is_runtime_protocol", False)  # pyright: ignore
    return None if is_protocol else kind  # pyright: ignore[reportUnknownVariableType]
