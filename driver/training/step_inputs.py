"""Makes the inputs of each step of a training run: everything but the state.

A text is one of `hloom run --inputs`, where `{step}` stands for the number of the step, or `FILE.py:FUNCTION`. The
function takes the number of the step, from 0 on, and returns the arrays in order, or by the names of the parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from ...ir.diagnostics import CompileError, fail
from ...ir.graph.module import Module
from ...ir.types.literal import Array
from ...ir.user_python import run_python
from ...runtime.inputs.array_files import as_element
from ...runtime.inputs.inputs import InputSource
from ...runtime.inputs.leaves import InputLeaf, by_name, input_leaves

StepFunction = Callable[[int], Any]
_PLACE = re.compile(r"(?s)(.+\.py):(\w+)")


class StepInputs:
    """The inputs of each step for the arrays after the first `state` ones: random by step, as a text says, or from a
    function. Raises CompileError for inputs that do not fit.
    """

    def __init__(self, module: Module, state: int, given: str | StepFunction = "random", seed: int = 0) -> None:
        self.module, self.seed, self._only = module, seed, slice(state, None)
        self.leaves = input_leaves(module)[self._only]
        self._text = given if isinstance(given, str) else "a function"
        match = _PLACE.fullmatch(given) if isinstance(given, str) else None
        self._function = function_of(match[1], match[2]) if match else None if isinstance(given, str) else given
        self._source: InputSource | None = None

    def at(self, step: int) -> list[Array]:
        """Returns the global arrays of a step."""
        if self._function is not None:
            return self._called(self._function, step)
        if "{step}" in self._text:
            source = InputSource(self.module, self._text.replace("{step}", str(step)), self._only)
        else:
            source = self._source = self._source or InputSource(self.module, self._text, self._only)
        return source.make(self.seed + 1 + step)  # the seed itself makes the state

    def _called(self, function: StepFunction, step: int) -> list[Array]:
        what = f"the inputs of step {step} from {self._text}"
        try:
            made: Any = function(step)
        except CompileError:
            raise
        except Exception as error:
            fail(f"{what}: {type(error).__name__}: {error}")
        if isinstance(made, Mapping):
            made = self._ordered(cast("Mapping[str, Any]", made), what)
        if not isinstance(made, list | tuple) or len(cast("Sequence[Any]", made)) != len(self.leaves):
            names = ", ".join(map(str, self.leaves)) or "none"
            fail(f"{what} are not one array for each of the program's: {names}")
        arrays = [np.asarray(value) for value in cast("Sequence[Any]", made)]
        return [as_element(array, leaf.shape.element) for array, leaf in zip(arrays, self.leaves, strict=True)]

    def _ordered(self, made: Mapping[str, Any], what: str) -> list[Any]:
        known = by_name(self.leaves)
        found: dict[int, Any] = {}
        for name, value in made.items():
            fitting: list[InputLeaf] = known.get(name, [])
            if len(fitting) != 1:
                fail(f"{what}: no input is called '{name}'", help=f"inputs: {', '.join(map(str, self.leaves))}")
            found[fitting[0].number] = value
        return [found[leaf.number] for leaf in self.leaves if leaf.number in found]


def function_of(path: str, name: str) -> StepFunction:
    """Runs a Python file and returns a function of it. Raises CompileError if that fails."""
    names = run_python(path)
    if not callable(names.get(name)):
        fail(f"{path} has no function '{name}'")
    return names[name]
