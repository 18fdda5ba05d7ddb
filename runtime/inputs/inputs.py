"""Makes the inputs of runs: drawn at random in the ranges the program demands, as the user specifies, or read from
files.

    inputs_for_module(module)                                    # random, by seed
    inputs_for_module(module, "pos=int[0,512); nu=zeros")        # some as specified, the others random
    inputs_for_module(module, "batch.npz")                       # by the names of parameters

Random inputs are the same bits on every machine (`draw`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...ir.diagnostics import fail
from ...ir.graph.module import Module
from ...ir.graph.value_range import Columns, Demand, joined
from ...ir.tools.interface import unflattened
from ...ir.types.literal import Array
from ...ir.types.shape import UNBOUNDED, Shape
from ..plan.limits import require_memory, too_large
from .array_files import NamedArrays, as_element, load_array, read_arrays
from .demands import input_demands
from .draw import RandomStream, draw, draw_demanded, streams
from .leaves import InputLeaf, by_name, input_leaves
from .specs import InputSetting, settings_for

_MADE = ("random", "zeros")
KINDS = (*_MADE, "example")


def make_inputs(shapes: Sequence[Shape], kind: str = "random", seed: int = 0) -> list[Array]:
    """Makes one array per leaf of the shapes, without tokens. Equal arguments give equal arrays on every machine.

    Random floats are approximately normal with mean 0 and deviation 0.5, integers are from 0 to 7. Raises CompileError
    for other kinds, and for arrays that do not fit into memory.
    """
    if kind not in _MADE:
        fail(f"inputs are {' or '.join(_MADE)}, not {kind}")
    arrays = [leaf for shape in shapes for leaf in shape.leaves() if leaf.is_array]
    leaves = [InputLeaf(n, shape, (str(shape.without_layout()),), (), None) for n, shape in enumerate(arrays)]
    return _made(leaves, [None] * len(leaves), kind, {}, streams(seed, len(leaves)))


def inputs_for_module(module: Module, text: str = "random", seed: int = 0) -> list[Array]:
    """Makes one array per array of the entry's parameters, a global one also if the module is per device.

    `text` is `random`, `zeros`, `example` (the arrays that a function of a Python file gives), settings of single
    inputs (see `specs`) or the path of an .npz file, an .npy file or a folder of .npy files. Random numbers are in the
    ranges that the program demands (`demands`): indices lie inside of the indexed array, keys of generators are any
    integers, operands of logarithms are positive. Without a demand, floats are approximately normal with mean 0 and
    deviation 0.5, integers from 0 to 7. An empty text is `example` for seed 0 of a program that has such arrays, else
    `random`.

    Raises CompileError for unknown names, ranges that do not fit, files that do not fit, and too little memory.
    """
    return InputSource(module, text or ("random" if seed or not module.example else "example")).make(seed)


class InputSource:
    """Makes the inputs of many runs of a program from one text, which is read once. `only` selects some of the arrays,
    and errors of settings name the `option` that has the text. Raises the errors of `inputs_for_module`.
    """

    def __init__(
        self, module: Module, text: str = "random", only: slice = slice(None), option: str = "--inputs"
    ) -> None:
        module = unflattened(module)
        leaves = input_leaves(module)
        self.leaves = leaves[only]
        self._count, self._only, self._text = len(leaves), only, text
        self._chosen: dict[int, InputSetting] = {}
        self._demands: list[Demand] = [None] * len(self.leaves)
        self._kept: list[Array] | None = None
        if text == "example":
            self._kept = _example(module, self.leaves)
        elif text in _MADE or ("=" in text and not Path(text).exists()):
            self._chosen = {} if text in _MADE else settings_for(text, self.leaves, option)
            demands = input_demands(module) if text != "zeros" else []
            self._demands = [_fitting(demands[i.number], i.shape) if demands else None for i in self.leaves]
        else:
            require_room(self.leaves)
            self._kept = _arranged(Path(text), read_arrays(Path(text)), self.leaves)

    def make(self, seed: int) -> list[Array]:
        """Returns the inputs of one run; those of a file are the same for each seed."""
        if self._kept is not None:
            return self._kept
        kind = "zeros" if self._text == "zeros" else "random"
        return _made(self.leaves, self._demands, kind, self._chosen, streams(seed, self._count)[self._only])


def _example(module: Module, leaves: Sequence[InputLeaf]) -> list[Array]:
    """Returns the arrays that came with a program."""
    if not module.example:
        fail(f"{module.name} came without arrays",
             help="a function of a Python file gives them: it returns (f, args) with arrays in args, not shapes")
    return [_checked(module.example[leaf.number], leaf, f"argument {leaf.number}") for leaf in leaves]


def _fitting(demand: Demand, shape: Shape) -> Demand:
    """Converts a demand on tiles to one on whole arrays."""
    if isinstance(demand, Columns) and shape.dims[demand.dimension] != len(demand.parts):
        return joined(demand)
    return demand


def _made(
    leaves: Sequence[InputLeaf], demands: Sequence[Demand], kind: str, chosen: dict[int, InputSetting],
    random: Sequence[RandomStream],
) -> list[Array]:
    require_room(leaves)
    try:
        return [
            np.zeros(leaf.shape.dims, leaf.shape.element.numpy) if kind == "zeros"
            else _make(leaf, demand, chosen.get(leaf.number), stream)
            for leaf, demand, stream in zip(leaves, demands, random, strict=True)
        ]
    except MemoryError as error:
        fail(f"inputs cannot be made: {error}")


def _make(leaf: InputLeaf, demand: Demand, setting: InputSetting | None, stream: RandomStream) -> Array:
    if setting is None:
        return draw_demanded(leaf.shape, demand, stream)
    distribution = setting.distribution(leaf)
    if distribution is not None:
        return draw(leaf.shape, distribution, stream)
    assert isinstance(setting.made, Path)
    return _checked(load_array(setting.made), leaf, str(setting.made))


def require_room(leaves: Sequence[InputLeaf]) -> None:
    """Raises CompileError unless all inputs fit into memory, before any is made."""
    for leaf in leaves:
        if leaf.shape.element.numpy is None or UNBOUNDED in leaf.shape.dims:
            fail(f"no input can be made for {leaf.shape}", leaf.location)
        problem = too_large(leaf.shape)
        if problem:
            fail(f"no input can be made: {problem}", leaf.location)
    require_memory(sum(leaf.shape.byte_size for leaf in leaves), "the inputs")


def _arranged(path: Path, found: NamedArrays, leaves: Sequence[InputLeaf]) -> list[Array]:
    """Returns the arrays of a file in the order of the inputs. Raises CompileError unless each input has one that fits
    it.
    """
    order = list(found.arrays) if found.by_position else _order(path, list(found.arrays), leaves)
    for leaf in leaves[len(order) :]:
        fail(f"{path} has {len(order)} arrays, the program takes {len(leaves)}: none is left for input {leaf}",
             leaf.location)  # fmt: skip
    for name in order[len(leaves) :]:
        fail(f"{path} has {len(order)} arrays, the program takes {len(leaves)}: no input is left for '{name}'")
    return [_checked(found.arrays[name], leaf, f"{path}: '{name}'") for name, leaf in zip(order, leaves, strict=True)]


def _order(path: Path, names: Sequence[str], leaves: Sequence[InputLeaf]) -> list[str]:
    """Returns the names of arrays in the order of the inputs that they name."""
    known = by_name(leaves)
    called: dict[int, str] = {}
    for name in names:
        fitting = known.get(name, known.get(name.removeprefix("%"), []))
        if not fitting:
            every = ", ".join(map(str, leaves))
            fail(f"{path}: no input is called '{name}'", help=f"inputs: {every}; arr_0, arr_1, .. go by position")
        if len(fitting) > 1:
            fail(f"{path}: '{name}' is the name of inputs {' and '.join(leaf.names[0] for leaf in fitting)}")
        (leaf,) = fitting
        if leaf.number in called:
            fail(f"{path}: '{called[leaf.number]}' and '{name}' are the same input", leaf.location)
        called[leaf.number] = name
    for leaf in leaves:
        if leaf.number not in called:
            fail(f"{path} has no array for input {leaf}", leaf.location, help="arrays: " + ", ".join(names))
    return [called[leaf.number] for leaf in leaves]


def _checked(array: Array, leaf: InputLeaf, what: str) -> Array:
    """Returns the array. Raises CompileError unless it has the shape and the type of the input."""
    array = as_element(array, leaf.shape.element)
    dims = leaf.shape.dims
    shapes = (dims, (leaf.devices, *dims)) if leaf.devices else (dims,)
    if array.shape not in shapes or array.dtype != leaf.shape.element.numpy:
        fail(f"{what} is {array.dtype}[{','.join(map(str, array.shape))}], "
             f"input {leaf} is {leaf.shape.without_layout()}", leaf.location)  # fmt: skip
    return array
