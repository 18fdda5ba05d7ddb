"""The memory that a program needs on a device: live bytes over the order of its instructions, and the buffers live at
the peak.

Parameters and constants live for the whole run. Results and temporary values live as `liveness` says; those of loops,
branches and called computations count at the instruction that runs them, with the largest branch. Only operands and
results of a fusion are in memory. Arrays on the host take none. This is a lower bound for compilers that keep the
instructions, their order and every value; fragmentation may add to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..ir.analysis.buffers import body_of
from ..ir.analysis.contents import Contents, Kernels
from ..ir.analysis.liveness import Buffer, Lives, Pairs, lives_in_order, lives_of, state_pairs
from ..ir.brief import brief
from ..ir.checked_call import checked
from ..ir.graph.computation import Computation
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module
from ..ir.graph.op import Role
from ..ir.graph.stack_frames import source_line
from ..ir.grouping import group_by, numberless
from ..ir.in_notebooks import InNotebooks
from ..ir.tools.aliases import aliases, donors, leaf_number
from ..ir.types.shape import Shape


@dataclass(frozen=True, slots=True)
class LiveBuffer:
    """Memory in use at the peak: its first value (`name[2]` for a leaf of a tuple), its shape on a device and bytes,
    and the line of the user's source. `kind` is parameter, constant, result or temporary.
    """

    kind: str
    name: str
    shape: str
    bytes: int
    op_name: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Moment:
    """The bytes that live while an instruction of the entry and its callees run."""

    name: str
    bytes: int


@brief
@dataclass(frozen=True, slots=True)
class LiveMemory(InNotebooks):
    """The memory of a program on a device, in bytes.

    `results` are all arrays of the result; `aliased` of these bytes alias parameters. `temporary` is the most that is
    needed at once beyond parameters, constants and results. `peak` is the most that lives at once, all together, while
    the instruction `at` of the entry runs. `curve` has one entry per instruction of the entry, in order. `buffers` live
    at the peak, largest first, and add up to it.
    """

    parameters: int
    constants: int
    results: int
    aliased: int
    temporary: int
    peak: int
    at: str
    curve: tuple[Moment, ...]
    buffers: tuple[LiveBuffer, ...]


def alike_buffers(found: Sequence[LiveBuffer]) -> list[list[LiveBuffer]]:
    """Returns groups of buffers of one size whose names differ in numbers only, those that take most together first."""
    groups = group_by(found, lambda b: (b.bytes, b.kind, b.shape, b.source,
                                        numberless(b.name), numberless(b.op_name)))  # fmt: skip
    return sorted(groups.values(), key=lambda group: -group[0].bytes * len(group))


Arrange = Callable[[Lives, Pairs], None]
"""Changes the buffers of a computation, given the pairs of leaves that end in the same memory."""


@checked
def live_memory(module: Module, kernels: Kernels | None = None) -> LiveMemory:
    """Returns the live memory of a program: of a device if it is partitioned, else of one device that runs all of it.

    The order of the instructions is that of the text. Dynamic dimensions count with their bounds. By default all
    values take memory; `kernels` such as a `Clock` tell those that ops of one kernel hand on.
    """
    return arranged_memory(module, kernels, lambda lives, pairs: None)


def arranged_memory(module: Module, kernels: Kernels | None, arrange: Arrange) -> LiveMemory:
    """Returns the live memory where `arrange` has changed the buffers of each computation, callees first."""
    reached, lives, pairs = _analysed(module, kernels, arrange)
    return _described(module, lives, _constants(reached), pairs)


def peak_memory(module: Module, kernels: Kernels | None = None) -> int:
    """Returns the `peak` of a program's live memory alone, sooner."""
    return PeakMemory(module, kernels).peak()


class PeakMemory:
    """The memory peaks of one program in several orders of its instructions, which must not change otherwise."""

    def __init__(self, module: Module, kernels: Kernels | None = None) -> None:
        self.module, self.kernels = module, kernels
        reached, self._loops = _reached(module)
        self._resident, self._donated = _resident(module, reached), _donated(module)
        self._order = [c for c in module.callees_first() if c in reached] if len(reached) > 1 else [module.entry]
        self._contents: dict[Computation, Contents] = {}
        self._lives: dict[Computation, tuple[list[Instruction], list[int], Lives]] = {}

    def peak(self) -> int:
        """Returns the peak of the program in its present order."""
        return self._resident + self._entry().peak

    def highest(self) -> tuple[int, list[tuple[Lives, int]]]:
        """Returns the peak of the program in its present order, and the buffers of each computation that runs then,
        callers first, with the place of the instruction that does.
        """
        lives = self._entry()
        return self._resident + lives.peak, _running(lives)

    def _entry(self) -> Lives:
        """Returns the buffers of the entry."""
        lives: dict[Computation, Lives] = {}
        for computation in self._order:
            lives[computation] = self._of(computation, lives)
        return lives[self.module.entry]

    def _of(self, computation: Computation, called: dict[Computation, Lives]) -> Lives:
        """Returns the buffers of a computation: the last ones, if its order and the peaks of its callees stay."""
        order, inner = list(computation), [called[c].peak for i in computation if i.op.is_control for c in i.called()]
        known = self._lives.get(computation)
        if known is not None and known[:2] == (order, inner):
            return known[2]
        if computation not in self._contents:
            results = {c: lives.results for c, lives in called.items()}
            self._contents[computation] = Contents(computation, results, self.kernels)
        loop = self._loops.get(computation)
        pairs = self._donated if computation is self.module.entry else state_pairs(loop) if loop else ()
        found = lives_in_order(self._contents[computation], called, pairs)
        self._lives[computation] = order, inner, found
        return found


def at_peak(module: Module, kernels: Kernels | None = None) -> tuple[int, list[Instruction]]:
    """Returns the peak, the instruction of the entry that runs then, then the one of its callee that does, and so on.
    """
    reached, lives, _ = _analysed(module, kernels)
    peak = _resident(module, reached) + lives.peak
    return peak, [list(inner.computation)[time] for inner, time in _running(lives)]


def _running(lives: Lives) -> list[tuple[Lives, int]]:
    """Returns the buffers of a computation and of its callees that run at its peak, each with the place of that."""
    found: list[tuple[Lives, int]] = []
    while True:
        time = lives.bytes.index(lives.peak)
        found.append((lives, time))
        at = list(lives.computation)[time]
        inner = [b.inner for b in lives.buffers.at(time) if b.inner is not None and b.instruction is at]
        if not inner:
            return found
        lives = inner[0]


def _resident(module: Module, reached: Iterable[Computation]) -> int:
    """Returns the bytes of parameters and constants."""
    return sum(i.shape.device_bytes for i in (*module.entry.parameters, *_constants(reached)))


def _constants(reached: Iterable[Computation]) -> list[Instruction]:
    return [i for c in reached for i in c if i.op.role is Role.CONSTANT]


def _analysed(
    module: Module, kernels: Kernels | None = None, arrange: Arrange = lambda lives, pairs: None
) -> tuple[Iterable[Computation], Lives, Pairs]:
    """Returns the computations that control flow reaches, the entry's buffers, and the donated leaves."""
    reached, loops = _reached(module)
    lives: dict[Computation, Lives] = {}
    pairs = _donated(module)
    order = module.callees_first() if len(reached) > 1 else [module.entry]
    for computation in (c for c in order if c in reached):
        loop = loops.get(computation)
        own = pairs if computation is module.entry else state_pairs(loop) if loop else ()
        lives[computation] = lives_of(computation, lives, own, kernels)
        arrange(lives[computation], own)
    return reached, lives[module.entry], pairs


def _reached(module: Module) -> tuple[dict[Computation, None], dict[Computation, Instruction]]:
    """Returns the computations that control flow reaches from the entry, and the loops of those that are only bodies.
    """
    reached: dict[Computation, None] = {module.entry: None}
    loops: dict[Computation, Instruction] = {}
    others: set[Computation] = set()
    stack = [module.entry]
    while stack:
        for instruction in (i for i in stack.pop() if i.op.is_control):
            body = body_of(instruction) if instruction.op.role is Role.LOOP else None
            for called in instruction.called():
                if called is body:
                    loops[called] = instruction
                else:
                    others.add(called)
                if called not in reached:
                    reached[called] = None
                    stack.append(called)
    return reached, {c: loop for c, loop in loops.items() if c not in others}


def _donated(module: Module) -> Pairs:
    """Pairs the leaves of parameters with the leaves of the result that end in their memory.

    A leaf that the program only offers (`buffer_donor`) takes the first result of its size that has no other place.
    """
    parameters, root = module.entry.parameters, module.entry.root.shape
    firsts = [0]
    for parameter in parameters:
        firsts.append(firsts[-1] + parameter.shape.num_leaves)

    def number(parameter: int, part: str) -> int | None:
        leaf = leaf_number(parameters[parameter].shape, part) if parameter < len(parameters) else None
        return None if leaf is None else firsts[parameter] + leaf

    sizes = [leaf.byte_size for p in parameters for leaf in p.shape.leaves()]
    wanted = [leaf.byte_size for leaf in root.leaves()]
    pairs: dict[int, int] = {}
    for alias in aliases(module.input_output_alias):
        given, result = number(alias.operand, alias.part), leaf_number(root, alias.result)
        if given is not None and result is not None and sizes[given] == wanted[result]:
            pairs[result] = given
    free: dict[int, list[int]] = {}
    for result in reversed(range(len(wanted))):
        if result not in pairs:
            free.setdefault(wanted[result], []).append(result)
    given_away = set(pairs.values())
    for offered in donors(module.buffer_donor):
        given = number(*offered)
        if given is not None and given not in given_away and free.get(sizes[given]):
            pairs[free[sizes[given]].pop()] = given
            given_away.add(given)
    return [(given, result) for result, given in pairs.items()]


def _described(module: Module, lives: Lives, constants: list[Instruction], pairs: Pairs) -> LiveMemory:
    parameters = module.entry.parameters
    resident = [*_leaves("parameter", parameters), *_leaves("constant", constants)]
    fixed = sum(b.bytes for b in resident)
    sizes = [leaf.device_bytes for leaf in module.entry.root.shape.leaves()]
    at = lives.bytes.index(lives.peak)
    instructions = list(module.entry)
    found = [*resident, *(_temporary(b, module.entry) for b in lives.at_peak())]
    return LiveMemory(
        sum(p.shape.device_bytes for p in parameters), sum(c.shape.device_bytes for c in constants), sum(sizes),
        sum(sizes[result] for _, result in pairs), max(lives.temporary), fixed + lives.peak, instructions[at].name,
        tuple(Moment(i.name, fixed + live) for i, live in zip(instructions, lives.bytes, strict=True)),
        tuple(sorted((b for b in found if b.bytes), key=lambda b: -b.bytes)),
    )  # fmt: skip


def _leaves(kind: str, instructions: list[Instruction]) -> list[LiveBuffer]:
    return [
        _buffer(kind, i, n, leaf, leaf.device_bytes) for i in instructions for n, leaf in enumerate(i.shape.leaves())
    ]


def _temporary(buffer: Buffer, entry: Computation) -> LiveBuffer:
    if buffer.inner is not None:
        name = f"in {buffer.inner.computation.name} of {buffer.instruction.name}"
        op_name, source = _origin(buffer.instruction)
        return LiveBuffer("temporary", name, "", buffer.size, op_name, source)
    kind = "result" if buffer.is_result and buffer.instruction.parent is entry else "temporary"
    shape = _leaf_shapes(buffer.instruction.shape)[buffer.leaf]
    return _buffer(kind, buffer.instruction, buffer.leaf, shape, buffer.size)


@lru_cache(maxsize=64)
def _leaf_shapes(shape: Shape) -> tuple[Shape, ...]:
    return tuple(shape.leaves())


def _buffer(kind: str, instruction: Instruction, leaf: int, shape: Shape, size: int) -> LiveBuffer:
    name = f"{instruction.name}[{leaf}]" if instruction.shape.is_tuple else instruction.name
    return LiveBuffer(kind, name, str(shape.without_layout()), size, *_origin(instruction))


def _origin(instruction: Instruction) -> tuple[str, str]:
    return instruction.metadata.op_name if instruction.metadata else "", source_line(instruction)
