"""Shortens programs: cuts out some of many equal layers (`layers`), so that few stand for all.

    before:  h1 = f(x, w1)   h2 = f(h1, w2)   h3 = f(h2, w3)   h4 = f(h3, w4)   y = g(h4)
    after:   h1 = f(x, w1)   h4 = f(h1, w4)   y = g(h4)

The layer after the gap takes the values of the layer before it, and the other way round in a backward pass. The
parameters and results of the layers in the gap go, and so does their part of the header.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from ..brief import brief
from ..graph.attributes import ParameterAttributes
from ..graph.clone import clone_computation, clone_instruction
from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.module import EntryLayout, Module, shell_of
from ..graph.op import AnyOp, Role
from ..tools.aliases import aliases, donors
from ..types.shape import tuple_shape
from .layers import Layers, find_layers

T = TypeVar("T")
S = TypeVar("S")


@brief
@dataclass(frozen=True, slots=True)
class LayerSeam(Generic[T]):
    """Tells how copies of a `layer` follow one another. To its next copy, values of the layer stand for those that it
    takes from `before` it, and to the copy before for those from `after` it. What comes after all copies reads values
    `beyond` of the last one; the users `near` the layer, each with the value, read those of the first one. A T is an
    instruction or its number.
    """

    layer: Set[T]
    before: Mapping[T, T]
    after: Mapping[T, T]
    beyond: Set[T]
    near: Set[tuple[T, T]]

    def mapped(self, to: Callable[[T], S]) -> LayerSeam[S]:
        """Returns the seam with `to` applied to each member."""
        before, after = ({to(o): to(i) for o, i in one.items()} for one in (self.before, self.after))
        near = frozenset((to(user), to(i)) for user, i in self.near)
        return LayerSeam(frozenset(map(to, self.layer)), before, after, frozenset(map(to, self.beyond)), near)


@brief
@dataclass(frozen=True, eq=False)
class ShortProgram:
    """A program with fewer layers. `copies` maps the instructions that stay to their copies, without the root, and
    `results` are the numbers of the results that stay. More copies of the layer before the gap may follow it at its
    `seam`.
    """

    module: Module
    copies: Mapping[Instruction, Instruction]
    results: Sequence[int]
    seam: LayerSeam[Instruction]


def equal_layers(module: Module, least: int = 6) -> Layers:
    """Returns a run of at least so many equal layers of the entry, for `without_layers`; empty if there is none."""
    entry = module.entry
    if entry.root.op.role is not Role.TUPLE:
        return []
    layers = find_layers(entry, Counter(entry.root.operands), least)
    return layers if layers and entry.root not in layers[0] else []


def without_layers(module: Module, layers: Layers, gap: range) -> ShortProgram | None:
    """Returns a copy of a program without the layers of a gap that has layers on both sides. None if it cannot be cut:
    another op reads values of the gap, or the header or an annotation tells more of the results than is understood
    here.
    """
    entry, found = module.entry, shell_of(module)
    cut = {i for n in gap for i in layers[n]}
    joined = _Joined(layers[gap[0] - 1], layers[gap[0]], layers[gap[-1]], cut)
    instead = joined.instead
    called: dict[Computation, Computation] = {}
    for computation in module.callees_first():
        if computation is not entry:
            called[computation] = found.add_computation(clone_computation(computation, called.__getitem__))
    target, copies = Computation(entry.name, entry.location), dict[Instruction, Instruction]()
    target.execution_thread = entry.execution_thread
    numbers = [n for n, p in enumerate(entry.parameters) if p not in cut]
    renumbered = {entry.parameters[n]: number for number, n in enumerate(numbers)}
    staying = [i for i in entry if i not in cut and i is not entry.root]
    waiting, begun = list[Instruction](reversed(staying)), set[Instruction]()
    while waiting:
        i = waiting.pop()
        if i in copies:
            continue
        operands: list[Instruction] = [instead.get((i, o), o) for o in i.operands]
        missing = [o for o in operands if o not in copies]
        if i.control_predecessors or not cut.isdisjoint(missing) or (missing and i in begun):
            return None
        begun.add(i)
        if missing:  # what is joined may come later in the whole program
            waiting += [i, *reversed(missing)]
            continue
        copies[i] = clone_instruction(target, i, [copies[o] for o in operands], called.__getitem__)
        if i in renumbered:
            copies[i].attributes = replace(i.attributes_as(ParameterAttributes), number=renumbered[i])
    results = [n for n, o in enumerate(entry.root.operands) if o not in cut]
    kept = [copies[entry.root.operands[n]] for n in results]
    target.root = target.add(entry.root.op, kept, entry.root.attributes, name=entry.root.name, like=entry.root)
    found.add_computation(target, entry=True)
    if not _shortened_header(module, found, numbers, results):
        return None
    return ShortProgram(found, copies, results, joined.seam(copies))


class _Joined:
    """Joins the layer `kept` before a gap to the program after it: `instead` maps operands in the gap, each with its
    user outside, to the values in their place. `following` is the first layer of the gap and `last` its last one.
    """

    def __init__(
        self, kept: Sequence[Instruction], following: Sequence[Instruction], last: Sequence[Instruction],
        cut: Container[Instruction],
    ) -> None:  # fmt: skip
        self.kept = kept
        self.instead: dict[tuple[Instruction, Instruction], Instruction] = {}
        self.before: dict[Instruction, Instruction] = {}
        self.after: dict[Instruction, Instruction] = {}
        self.beyond: list[Instruction] = []
        self.near: list[tuple[Instruction, Instruction]] = []
        own, like = set(kept), dict(zip(following, kept, strict=True))
        for i, next_one, far in zip(kept, following, last, strict=True):
            users = [user for user in far.users if user not in cut]
            self.instead |= {(user, far): i for user in users}
            self.beyond += [i] if users else []
            for o, next_o, far_o in zip(i.operands, next_one.operands, far.operands, strict=True):
                if o in cut:
                    self.instead[i, o] = far_o
                    if o in like:
                        self.after[far_o] = like[o]
                elif next_o in own and o not in own:
                    self.before[o] = next_o
            near = [user for user in i.users if user not in cut and user not in own]
            self.near += [(user, i) for user in near]
            self.before |= _paired(near, i, [u for u in next_one.users if u in own], next_one)
            pairs = _paired(users, far, [u for u in i.users if u in like], i)
            self.after |= {user: like[u] for user, u in pairs.items()}

    def seam(self, copies: Mapping[Instruction, Instruction]) -> LayerSeam[Instruction]:
        """Returns the seam of the copies."""
        near = frozenset((user, i) for user, i in self.near if user in copies)
        seam = LayerSeam(frozenset(self.kept), self.before, self.after, frozenset(self.beyond), near)
        return seam.mapped(copies.__getitem__)


def _paired(
    users: Sequence[Instruction], value: Instruction, others: Sequence[Instruction], other: Instruction
) -> dict[Instruction, Instruction]:
    """Maps users of a value to those of another value that read it alike."""
    found: dict[tuple[AnyOp, int], list[Instruction]] = {}
    for user in others:
        found.setdefault((user.op, user.operands.index(other)), []).append(user)
    pairs: dict[Instruction, Instruction] = {}
    for user in users:
        if alike := found.get((user.op, user.operands.index(value))):
            pairs[user] = alike.pop(0)
    return pairs


def _shortened_header(old: Module, new: Module, parameters: Sequence[int], results: Sequence[int]) -> bool:
    """Writes the header of the parameters and results that stay, given their numbers before; False where it tells of
    parts of arrays. A result that shares memory with a parameter of the gap, such as the weight of the next layer, has
    memory of its own then.
    """
    root = old.entry.root
    is_simple = root.annotation is None and old.flat_layout is None and old.global_layout is None
    if not is_simple or any(not o.shape.is_array for o in root.operands):
        return False
    given, made = ({n: number for number, n in enumerate(kept)} for kept in (parameters, results))
    shared: list[str] = []
    for alias in aliases(old.input_output_alias):
        if not alias.result.strip().isdigit() or alias.part.strip():
            return False
        result = int(alias.result)
        if result in made and alias.operand in given:
            shared.append(f"{{{made[result]}}}: ({given[alias.operand]}, {{}}, may-alias)")
    offered = donors(old.buffer_donor)
    if any(part.strip() for _, part in offered):
        return False
    free = [f"({given[number]}, {{}})" for number, _ in offered if number in given]
    new.input_output_alias = "{ " + ", ".join(shared) + " }" if shared else ""
    new.buffer_donor = "{ " + ", ".join(free) + " }" if free else ""
    new.origin_recovery_table = ""
    flags = new.allow_propagation_to_parameters, new.allow_propagation_to_output
    new.allow_propagation_to_parameters = _kept(flags[0], len(old.entry.parameters), parameters)
    new.allow_propagation_to_output = _kept(flags[1], len(root.operands), results)
    if old.entry_layout is not None:
        layout = old.entry_layout
        shapes = tuple(layout.result.elements[n] for n in results)
        new.entry_layout = EntryLayout(tuple(layout.parameters[n] for n in parameters), tuple_shape(shapes))
    return True


def _kept(flags: tuple[T, ...] | None, count: int, numbers: Sequence[int]) -> tuple[T, ...] | None:
    """Returns the flags of those that stay; one flag holds for all."""
    return flags if flags is None or len(flags) != count else tuple(flags[n] for n in numbers)
