"""Repeats a layer in the program of each device, in place of dividing a program of more layers.

    before:  h1 = f(x, w1)   h4 = f(h1, w4)   y = g(h4)
    after:   h1 = f(x, w1)   h2 = f(h1, w2)   h3 = f(h2, w3)   h4 = f(h3, w4)   y = g(h4)

Metadata tells the instruction of the short program for which the partitioner has emitted one. Copies take operands from
each other as the seam of the layer says (`ir.analysis.fewer_layers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ...ir.analysis.fewer_layers import LayerSeam, ShortProgram
from ...ir.graph.attributes import ParameterAttributes
from ...ir.graph.instruction import Instruction, Metadata
from ...ir.graph.module import EntryLayout, Module
from ...ir.graph.op import Role
from ...ir.sharding.sharding import TupleSharding
from ...ir.tools.aliases import aliases, donors
from ...ir.tools.spmd import parts
from ...ir.types.shape import tuple_shape

_EXCHANGES = 5  # instructions at most that an exchange takes


def numbered(short: ShortProgram) -> LayerSeam[int]:
    """Numbers the instructions of a short program in their metadata, and returns its seam by these numbers."""
    numbers: dict[Instruction, int] = {}
    for number, i in enumerate(short.copies.values()):
        i.metadata, numbers[i] = Metadata(str(number)), number
    short.module.entry.root.metadata = None
    return short.seam.mapped(numbers.__getitem__)


def is_even(seam: LayerSeam[int], module: Module) -> bool:
    """Whether the values of a SHARDED program that stand for each other at the seam have equal shardings."""
    found = {int(i.metadata.text): i.sharding for i in module.entry if i.metadata is not None}
    return all(found.get(a) == found.get(b) for a, b in (*seam.before.items(), *seam.after.items()))


def add_layers(module: Module, seam: LayerSeam[int], count: int) -> dict[Instruction, Instruction] | None:
    """Lets so many copies of the layer of a LOCAL program follow it, in place. Returns the instruction that each new
    one is a copy of; None if they do not fit together, and then the program is of no use.
    """
    try:
        return _MoreLayers(module, seam, count).write()
    except (KeyError, ValueError):
        return None


class _MoreLayers:
    """The edit of a program: `copies` maps the instructions of the layer to those of each copy, itself the first."""

    def __init__(self, module: Module, seam: LayerSeam[int], count: int) -> None:
        self.module, self.entry, self.seam, self.count = module, module.entry, seam, count
        self.numbers = {i: int(i.metadata.text) for i in self.entry if i.metadata is not None}
        self.root = self.entry.root
        self.own = self._members()
        self.ends = {(self.numbers.get(i, -1), i.shape): i for i in self.own}  # what others read, after any exchange
        self.copies = [{i: i for i in self.own}, *(dict[Instruction, Instruction]() for _ in range(count))]
        self.parameters = len(self.entry.parameters)

    def _members(self) -> dict[Instruction, None]:
        """Returns the instructions of the layer: those emitted for it, and those that bring its values to the root.
        """
        seam, found = self.seam, dict[Instruction, None]()
        for i in self.entry:
            is_result = i not in self.numbers and i is not self.root and not found.keys().isdisjoint(i.operands)
            if is_result or self.numbers.get(i) in seam.layer:
                found[i] = None
        return found

    def write(self) -> dict[Instruction, Instruction]:
        """Writes the copies; returns the instruction that each is a copy of. Raises KeyError and ValueError."""
        others = [i for i in self.entry if i not in self.copies[0] and i is not self.root]
        given = [i for i in self.own if i.op.role is Role.PARAMETER]
        for number in range(1, self.count + 1):
            for i in given:
                self._copy(i, number)
        for number in range(1, self.count + 1):
            for i in self.own:
                self._copy(i, number)
        for i in others:
            for place, operand in enumerate(i.operands):
                if operand in self.own and self._is_last(i, operand):
                    self._set(i, place, self.copies[-1][operand])
        for i in self.own:
            for place, operand in enumerate(i.operands):
                self._set(i, place, self._copied(self._source(operand, 0), operand))
        self._write_results()
        self.entry.sort()
        return {copy: i for copies in self.copies[1:] for i, copy in copies.items()}

    def _is_last(self, reader: Instruction, value: Instruction) -> bool:
        """Whether an instruction outside reads a value of the last copy: one that only this has, or one made of values
        after the layer; unless it reads the first one, perhaps after an exchange for another reader.
        """
        number = self.numbers.get(reader, -1)
        if any((number, self.numbers.get(source, -1)) in self.seam.near for source in _exchanged(value)):
            return False
        after = (o for o in value.operands if o not in self.own)
        is_beyond = self.numbers.get(value, -1) in self.seam.beyond
        return is_beyond or any(self._like(o, self.seam.after) is not None for o in after)

    def _set(self, user: Instruction, place: int, value: Instruction) -> None:
        if user.operands[place] is not value:
            self.entry.set_operand(user, place, value)

    def _source(self, operand: Instruction, number: int) -> tuple[Instruction, int] | None:
        """Returns the instruction of the layer, and its copy, that copy `number` has for an operand; None for one that
        all copies share.
        """
        if operand in self.own:
            return operand, number
        if number and (like := self._like(operand, self.seam.before)) is not None:
            return like, number - 1
        if (like := self._like(operand, self.seam.after)) is not None:
            return (like, number + 1) if number < self.count else None
        if number and any(of in self.own for of in _exchanged(operand)):
            raise ValueError(f"{operand.name} is made of the first copy")
        return None

    def _like(self, value: Instruction, near: Mapping[int, int], depth: int = _EXCHANGES) -> Instruction | None:
        """Returns the instruction of the layer that is to the next copy, or to the one before, as a value outside is to
        the layer, perhaps after an exchange for another reader; None for others. Raises KeyError if there is none.
        """
        of = near.get(self.numbers.get(value, -1))
        if of is not None:
            if (found := self.ends[of, value.shape]).op is not value.op:
                raise KeyError(value.name)
            return found
        is_exchanged = depth and value.operands and value not in self.own
        source = self._like(value.operands[0], near, depth - 1) if is_exchanged else None
        if source is None:
            return None
        same = (u for u in source.users if u in self.own and _is_like(u, value))
        if (found := next(same, None)) is None:
            raise KeyError(value.name)
        return found

    def _copied(self, source: tuple[Instruction, int] | None, operand: Instruction) -> Instruction:
        return operand if source is None else self.copies[source[1]][source[0]]

    def _copy(self, instruction: Instruction, number: int) -> None:
        """Copies an instruction, after those that it needs."""
        stack, opened = [(instruction, number)], set[tuple[Instruction, int]]()
        while stack:
            one, number = stack[-1]
            sources = [self._source(o, number) for o in one.operands]
            waiting = [s for s in sources if s is not None and s[0] not in self.copies[s[1]]]
            if one in self.copies[number]:
                waiting = []
            elif not waiting:
                self._append(one, number, [self._copied(s, o) for s, o in zip(sources, one.operands, strict=True)])
            elif (one, number) in opened:
                raise ValueError(f"{one.name} depends on itself")
            opened.add((one, number))
            stack += waiting
            if not waiting:
                stack.pop()

    def _append(self, one: Instruction, number: int, operands: list[Instruction]) -> None:
        attributes = one.attributes
        if one.op.role is Role.PARAMETER:
            attributes = replace(one.attributes_as(ParameterAttributes), number=self.parameters)
            self.parameters += 1
        copy = one.copied(self.entry.unique_name(one.name), operands, attributes)
        self.entry.append(copy)
        self.copies[number][one] = copy

    def _write_results(self) -> None:
        """Adds the results of the copies to the root; the header then has them, and the parameters of the copies."""
        root, module, lies = self.root, self.module, list(parts(self.root.sharding))
        shared = {int(alias.result): alias.operand for alias in aliases(module.input_output_alias)}
        offered = [number for number, _ in donors(module.buffer_donor)]
        given = {_number(i): i for i in self.own if i.op.role is Role.PARAMETER}
        made = list(range(len(root.operands)))
        parameters = list(range(self.parameters - self.count * len(given)))
        results = list(root.operands)
        for copies in self.copies[1:]:
            for result, operand in enumerate(root.operands):
                if operand in copies:
                    if (parameter := given.get(shared.get(result, -1))) is not None:
                        shared[len(results)] = _number(copies[parameter])
                    results.append(copies[operand])
                    made.append(result)
            parameters += sorted(given, key=lambda number: _number(copies[given[number]]))
            offered += [_number(copies[given[number]]) for number in offered if number in given]
        shape = tuple_shape(tuple(result.shape for result in results))
        self.entry.root = self.entry.add(root.op, results, root.attributes, shape, root.name, root)
        self.entry.root.sharding = TupleSharding(tuple(lies[number] for number in made)) if lies else None
        self.entry.remove(root)
        module.input_output_alias = _listed(f"{{{result}}}: ({of}, {{}}, may-alias)" for result, of in shared.items())
        module.buffer_donor = _listed(f"({number}, {{}})" for number in offered)
        if (wholes := module.global_layout) is not None:
            whole = tuple_shape(tuple(wholes.result.elements[number] for number in made))
            module.global_layout = EntryLayout(tuple(wholes.parameters[number] for number in parameters), whole)


def _exchanged(value: Instruction) -> Iterator[Instruction]:
    """Yields a value, and others of which it may be an exchange."""
    for _ in range(1 + _EXCHANGES):
        yield value
        if not value.operands:
            return
        value = value.operands[0]


def _is_like(one: Instruction, other: Instruction) -> bool:
    """Whether two instructions exchange different values alike."""
    return one.op is other.op and one.shape == other.shape and one.operands[1:] == other.operands[1:]


def _number(parameter: Instruction) -> int:
    return parameter.attributes_as(ParameterAttributes).number


def _listed(entries: Iterable[str]) -> str:
    """Writes the entries of a header."""
    return "{ " + ", ".join(entries) + " }" if (entries := list(entries)) else ""
