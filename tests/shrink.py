"""Makes a program that fails as small as it gets, and still failing: `python tests/shrink.py F.hlo [--windowed N]`.

A greedy search over single edits, each tried on a copy (delta debugging: "Simplifying and isolating failure-inducing
input", Zeller and Hildebrandt, 2002): results left out, instructions replaced by a parameter (sharded as propagation
would have it) or by an operand, shardings removed or a dimension of them replicated, numbers in shapes and attributes
made smaller. An edit stays if the program is still valid and still fails in the same way. By default it fails when it
gives other numbers partitioned.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / ".import")]

from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError, InternalError
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.ops.structure import ParameterAttributes
from hloom.ir.sharding.sharding import AnySharding, DimSharding, Sharding, TupleSharding
from hloom.ir.tools.verifier import verify
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.cleanup.dce import DeadCodeElimination
from hloom.passes.pipelines import PROPAGATE
from programs.random.generate import inputs_of
from support.partition_check import difference
from support.region_reference import regions_are_closed

Fails = Callable[[Module], str | None]  # how a program fails, in a word, or None
Edit = Callable[[Module], object]  # changes a copy in place
_NUMBER = re.compile(r"(?<=[\[{,x=:_])\d+(?=[\]},x:_])")


def shrink(module: Module, fails: Fails) -> Module:
    """The smallest program that single edits lead to and that fails as `module` does. Raises ValueError if it does
    not fail.
    """
    how = fails(module)
    if how is None:
        raise ValueError("the program does not fail")
    smallest, changed = module, True
    while changed:
        changed = False
        for edit in _edits(smallest):
            made = _edited(smallest, edit)
            if made is not None and _size(made) < _size(smallest) and fails(made) == how:
                smallest, changed = made, True
                break
    return smallest


def _size(module: Module) -> tuple[int, int, int]:
    """Instructions, elements, letters."""
    elements = sum(s.num_elements for c in module for i in c for s in i.shape.leaves() if s.is_array)
    return sum(map(len, module)), elements, len(module.to_text())


def _edited(module: Module, edit: Edit) -> Module | None:
    """An edited copy, read from its text; None if the edit does not fit."""
    copy = clone_module(module)
    try:
        edit(copy)
        DeadCodeElimination().run(copy, PassContext())
        copy.entry_layout = None
        made = parse(copy.to_text())
    except (CompileError, ValueError, KeyError, StopIteration):
        return None
    return made if not verify(made) and regions_are_closed(made) else None


def _edits(module: Module) -> Iterator[Edit]:
    """All edits of a program, those that remove most first."""
    count = len(module.entry.root.operands) if module.entry.root.opcode == "tuple" else 0
    yield from (_Edits(number).keep_result for number in range(count))
    for number, computation in enumerate(module):
        for name in [i.name for i in reversed(list(computation))]:
            at = _Edits(number, name)
            if computation is module.entry:
                yield from (at.to_parameter, at.drop_parameter)
            yield from (at.to_operand(n) for n in range(len(computation.find(name).operands)))  # pyright: ignore
            yield at.without_sharding
            yield from (at.without_axes(n) for n in range(4))
    yield from _smaller_numbers(module)


class _Edits:
    """Edits of one instruction, found by the number of its computation and its name."""

    def __init__(self, number: int, name: str = "") -> None:
        self.number = number
        self.name = name

    def _find(self, module: Module) -> tuple[Computation, Instruction]:
        computation = module.computations[self.number]
        found = computation.find(self.name)
        if found is None:
            raise KeyError(self.name)
        return computation, found

    def keep_result(self, module: Module) -> None:
        """Of several results, number `number` alone."""
        root = module.entry.root
        module.entry.root = root.operands[self.number]

    def to_parameter(self, module: Module) -> None:
        computation, old = self._find(module)
        if old.opcode == "parameter" or not old.shape.is_array:
            raise ValueError
        number = len(computation.parameters)
        made = computation.parameter(number, old.shape.without_layout(), f"p{number}")
        made.sharding = old.sharding or _propagated(module, self.name)
        computation.root = computation.root
        computation.replace_all_uses(old, made)
        computation.sort()

    def drop_parameter(self, module: Module) -> None:
        computation, old = self._find(module)
        parameters = computation.parameters
        gone = parameters.index(old)
        computation.root = computation.root
        computation.remove(old)
        for number, other in enumerate(p for p in parameters if p is not old):
            other.attributes = ParameterAttributes(number) if number >= gone else other.attributes

    def to_operand(self, index: int) -> Edit:
        def edit(module: Module) -> None:
            computation, old = self._find(module)
            operand = old.operands[index]
            if not operand.shape.compatible(old.shape):
                raise ValueError
            computation.root = computation.root
            computation.replace_all_uses(old, operand)

        return edit

    def without_sharding(self, module: Module) -> None:
        self._find(module)[1].sharding = None

    def without_axes(self, dim: int) -> Edit:
        """Dimension `dim` is whole, of every leaf."""

        def whole(sharding: Sharding) -> Sharding:
            dims = tuple(DimSharding() if n == dim else d for n, d in enumerate(sharding.dims))
            return replace(sharding, dims=dims)

        def edit(module: Module) -> None:
            found = self._find(module)[1]
            if isinstance(found.sharding, TupleSharding):
                found.sharding = TupleSharding(tuple(map(whole, found.sharding.elements)))
            elif found.sharding is not None:
                found.sharding = whole(found.sharding)

        return edit


def _propagated(module: Module, name: str) -> AnySharding | None:
    """The sharding that propagation gives an array of the entry, in the order of the module's devices."""
    copy = clone_module(module)
    run_pipeline([p for p in PROPAGATE if not isinstance(p, DeadCodeElimination)], copy, PassContext())
    found = copy.entry.find(name)
    return found.sharding if found is not None else None


def _smaller_numbers(module: Module) -> Iterator[Edit]:
    """Every number in a shape or an attribute made smaller, wherever it stands outside shardings."""
    text = module.to_text()
    numbers = sorted({int(n) for n in _NUMBER.findall(re.sub(r"sharding=\{.*", "", text))}, reverse=True)
    for old in numbers:
        for new in dict.fromkeys((1, old // 2, old - 1)):
            if 0 < new < old:
                yield _with_number(str(old), str(new))


def _with_number(old: str, new: str) -> Edit:
    def change(line: str) -> str:
        head, sharding, rest = line.partition("sharding={")
        return _NUMBER.sub(lambda m: new if m[0] == old else m[0], head) + sharding + rest

    def edit(module: Module) -> None:
        first, *lines = module.to_text().split("\n")
        head = re.sub(r"entry_computation_layout=\{.*?\}(, (?=\w+=)|$)", "", first)
        made = parse("\n".join([head.rstrip(", "), *map(change, lines)]))
        if verify(made):
            raise ValueError
        module.__dict__.update(made.__dict__)

    return edit


def partition_fails(windowed: int = 0) -> Fails:
    """Fails where the partitioned program differs from one device, or the partitioner breaks."""

    def fails(module: Module) -> str | None:
        try:
            return "differs" if difference(module, inputs_of(module), windowed) else None
        except CompileError:
            return None
        except InternalError as error:
            return type(error.__cause__ or error).__name__
        except Exception as error:  # whatever a broken pass raises
            return type(error).__name__

    return fails


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--windowed", type=int, default=0, help="bytes from which contractions run in rings")
    arguments = parser.parse_args()
    text = arguments.file.read_text()
    print(shrink(parse(text), partition_fails(arguments.windowed)).to_text())


if __name__ == "__main__":
    main()
