"""Finds the layers of parameters by the call stacks at which a frontend made products: a function that makes a layer
makes the same products again for the next, whether a loop calls it or several lines do.

Products of one key (the stack from that function inward, path, shapes) are counted. The number of layers is the one
that divides most of their counts, and the depth of a product among its equals tells its layer; transposed ones count
from the last layer. A parameter that only products of one layer read belongs to it, and so does what is updated from it
element by element.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd

from ...cost.work import is_contraction
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Role
from ...ir.graph.stack_frames import StackFrame, call_chain

_SHARE = 0.8  # of the products, that have to lie in layers
_FITTING = 0.9  # of the equal products, whose number the layers have to divide
_MOST_FUNCTIONS = 32  # that are tried

Function = tuple[str, str]
Layers = dict[Instruction, int]


def layers_of_stacks(
    entry: Computation, backward: Iterable[Instruction], state: Mapping[Instruction, Instruction]
) -> Layers:
    """Returns the layers of the parameters of a program whose stacks tell them. `backward` are its transposed ops, and
    `state` maps results to the parameters whose new values they are.
    """
    backward = set(backward)
    products = _layers_of_products(entry, backward)
    reads: dict[Instruction, tuple[int, int]] = {}  # the first and last layer whose products read a value, -1: others
    for i in reversed(list(entry) if products else []):
        found: list[tuple[int, int]] = []
        for user in set(i.users) - backward:
            if is_contraction(user):
                found.append((products.get(user, -1), products.get(user, -1)))
            elif user in reads:
                found.append(reads[user])
        if found:
            reads[i] = min(low for low, _ in found), max(high for _, high in found)
    layers = {p: low for p in entry.parameters if p in reads for low, high in (reads[p],) if 0 <= low == high}
    for result, parameter in state.items():
        if parameter in layers:
            for other in _updated_from(result):
                layers.setdefault(other, layers[parameter])
    return layers


def _updated_from(result: Instruction) -> Iterable[Instruction]:
    """Returns the parameters of the shape of a result that it depends on element by element."""
    seen, todo = {result}, [result]
    while todo:
        i = todo.pop()
        fresh = {o for o in i.operands if o.shape == result.shape and i.op.is_elementwise} - seen
        seen |= fresh
        todo += fresh
    return [i for i in seen if i.op.role is Role.PARAMETER]


def _layers_of_products(entry: Computation, backward: set[Instruction]) -> Layers:
    """Tries the functions of all stacks, and returns what the one that finds most layers finds."""
    chains = {i: chain for i in entry if is_contraction(i) and (chain := call_chain(i))}
    functions = dict.fromkeys(_function(frame) for chain in chains.values() for frame in chain)
    depths: dict[Instruction, int] = {}
    for i in entry if functions else ():
        depths[i] = max((depths[o] + 1 for o in i.operands), default=0)
    best: Layers = {}
    for function in list(functions)[:_MOST_FUNCTIONS]:
        groups: dict[object, list[Instruction]] = {}
        for i, chain in chains.items():
            if (key := _key(i, chain, function)) is not None:
                groups.setdefault(key, []).append(i)
        best = max(best, _numbered(list(groups.values()), backward, depths), key=len)
    return best if len(best) >= _SHARE * len(chains) else {}


def _function(frame: StackFrame) -> Function:
    return frame.span.path, frame.function


def _key(instruction: Instruction, chain: Sequence[StackFrame], function: Function) -> object | None:
    start = next((n for n, frame in enumerate(chain) if _function(frame) == function), None)
    if start is None:
        return None
    places = tuple((frame.span, frame.function) for frame in chain[start:])
    path = instruction.metadata.op_name if instruction.metadata is not None else ""
    return places, path, str(instruction.shape), tuple(str(o.shape) for o in instruction.operands)


def _numbered(
    groups: Sequence[list[Instruction]], backward: set[Instruction], depths: Mapping[Instruction, int]
) -> Layers:
    """Returns the layers of groups of equal products, none if they do not repeat."""
    sizes = [len(group) for group in groups if group[0] not in backward and len(group) > 1]
    numbers = sorted({*sizes, gcd(*sizes)} - {0, 1}, reverse=True)
    count = next((n for n in numbers if sum(s for s in sizes if s % n == 0) >= _FITTING * sum(sizes)), 0)
    layers: Layers = {}
    for group in groups if count else ():
        turned = group[0] in backward
        if len(group) % count and not (turned and len(group) == count - 1 > 1):  # the first layer may send nothing back
            continue
        each = max(1, len(group) // count)
        for n, i in enumerate(sorted(group, key=lambda i: depths[i])):
            layers[i] = count - 1 - n // each if turned else n // each
    return layers
