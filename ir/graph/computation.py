"""Computations: ordered instructions with one root. Only the computation's methods edit its graph.

The order is that of the text and, in a scheduled module, the schedule. Operands always come before their users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ..diagnostics import Location, fail
from ..in_notebooks import InNotebooks
from ..reached import reached
from ..sharding.sharding import AnySharding, Sharding
from ..types.shape import Shape
from .attributes import NONE, Attributes, Callee, ParameterAttributes
from .dynamic_sizes import result_shape
from .insertion import Insertions, Order, Point, needs_first
from .instruction import Instruction
from .op import AnyOp, op_named
from .op_places import OpPlaces, is_parameter, may_call
from .pickling import Record, instructions_of, records_of
from .python_values import checked_use, known_op, literal_of
from .transfers import is_transfer, joins_transfers

if TYPE_CHECKING:
    from .module import Module

State = tuple[dict[str, Any], list[Record], "int | None"]
_REBUILT = ("parent", "_order", "_names", "_root", "_insertions", "_places")


class Computation(Callee, InNotebooks):
    """A function from its parameters to the value of its root.

    `root` is the last instruction, unless it is assigned or `at` has fixed it. Iterating yields the instructions in
    order. `loop_edits` counts the edits that may change how its ops are fused: all but new orders, and collectives that
    replace others. `execution_thread` is the text of that attribute, empty for the main thread. A pickle of a
    computation, or of one of its instructions, holds the computation and everything it calls, but no module.
    """

    def __init__(self, name: str, location: Location | None = None) -> None:
        self.name = name
        self.location = location
        self.execution_thread = ""
        self.has_control_dependencies = False
        self.loop_edits = 0
        self.parent: Module | None = None
        self._order: dict[Instruction, None] = {}
        self._names: dict[str, Instruction] = {}
        self._counters: dict[str, int] = {}
        self._root: Instruction | None = None
        self._insertions = Insertions()
        self._places: OpPlaces | None = None  # until the next edit

    # -- reading

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self._settled())

    def __reversed__(self) -> Iterator[Instruction]:
        return reversed(self._settled())

    def _settled(self) -> Order:
        if self._insertions.waiting:
            self._order, self._places = self._insertions.settled(self._order), None
        return self._order

    def __len__(self) -> int:
        return len(self._order)

    @property
    def root(self) -> Instruction:
        """The instruction whose value is the result. Raises CompileError if the computation is empty."""
        if self._root is not None:
            return self._root
        if not self._order:
            fail(f"computation {self.name} is empty", help="computation.build adds instructions; the last is the root")
        return next(reversed(self._settled()))

    @root.setter
    def root(self, instruction: Instruction) -> None:
        self.loop_edits += instruction is not self._root
        self._root = instruction

    @property
    def parameters(self) -> list[Instruction]:
        """The parameter instructions in the order of their numbers."""
        return sorted(self.having(is_parameter), key=lambda i: i.attributes_as(ParameterAttributes).number)

    @property
    def names(self) -> Mapping[str, Instruction]:
        """The instructions by their names (without `%`), until the next edit."""
        return self._names

    def find(self, name: str) -> Instruction | None:
        """Returns the instruction of this name (without `%`), or None."""
        return self._names.get(name)

    def reachable(self, others: Iterable[Instruction] = ()) -> set[Instruction]:
        """Returns the root, and `others`, with everything they depend on through operands and control predecessors."""
        return set(reached((self.root, *others), lambda instruction: instruction.needs))

    def shapes(self) -> list[Shape]:
        """Returns the shapes of its values; equal ones once if they are one object, as readers make them."""
        found = [instruction.shape for instruction in self._order]
        return list(dict(zip(map(id, found), found, strict=True)).values())

    def calling(self) -> list[Instruction]:
        """Returns the instructions whose attributes may refer to computations."""
        return self.having(may_call)

    def having(self, test: Callable[[AnyOp], object]) -> list[Instruction]:
        """Returns the instructions, in order, whose op passes a test. Looks at the instructions only after an edit."""
        order = self._settled()  # which an edit may have changed
        self._places = self._places or OpPlaces(order)
        return self._places.having(test)

    def called(self) -> Iterator[Computation]:
        """Yields the computations that its instructions call."""
        return (callee for instruction in self.calling() for callee in instruction.called())

    # -- building

    def build(
        self,
        opcode: str,
        *operands: Instruction,
        shape: Shape | str | None = None,
        name: str | None = None,
        like: Instruction | None = None,
        before: Instruction | None = None,
        sharding: AnySharding | None = None,
        **attributes: Any,
    ) -> Instruction:
        """Appends an instruction, or puts it `before` another; its shape is inferred.

            y = c.build("dot", x, w, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))

        Attributes are Python values by the names that HLO gives them: numbers, tuples, text for enums
        (`direction="LT"`), computations. `shape` is needed only where it cannot be inferred (`iota`, `convert`, ..)
        and may be text (`"f32[4,8]"`); `like` lends location and metadata. `sharding` annotates the value. Raises
        CompileError if something does not fit.
        """
        op = known_op(opcode)
        for operand in operands:
            if operand.parent is not self:
                fail(f"{opcode}: the operand {operand.name} is not in computation {self.name}")
        given, result = checked_use(op, [o.shape for o in operands], attributes, shape)
        if isinstance(sharding, Sharding) and sharding.dims and result.is_array and len(sharding.dims) != result.rank:
            fail(f"{opcode}: sharding {sharding} has {len(sharding.dims)} dimensions, {result.without_layout()} has "
                 f"{result.rank}")
        with self.at(before=before) if before is not None else nullcontext():
            instruction = self.add(op, operands, given, result, name, like)
        if sharding is not None:
            instruction.sharding = sharding
        return instruction

    def parameter(
        self, number: int, shape: Shape | str, name: str | None = None, sharding: AnySharding | None = None
    ) -> Instruction:
        """Appends parameter `number` of this shape. Raises CompileError for text that is not a shape, and for a
        sharding of another rank.
        """
        return self.build("parameter", shape=shape, name=name or f"p{number}", sharding=sharding, number=number)

    def constant(self, value: Any, element: str | None = None, name: str | None = None) -> Instruction:
        """Appends a constant: a number, nested lists or an array. Floats become f32 and integers s32 unless `element`
        says otherwise (`"bf16"`); arrays keep their type. Raises CompileError if HLO has no such value.
        """
        return self.build("constant", name=name, literal=literal_of(value, element))

    # -- editing

    def at(self, *, before: Instruction | None = None, after: Instruction | None = None) -> Point:
        """Places instructions added within a `with` statement before or after an instruction, else at the end. The root
        stays.

            with c.at(before=y) as made:
                z = c.build("negate", x)

        `made` is the list of the added instructions. The order is made when it is next read, once for many places.
        """
        if self._order:
            self._root = self.root
        waiting = self._insertions
        return Point(waiting, after, False) if before is None else Point(waiting, before, True)

    def add(
        self,
        op: AnyOp | str,
        operands: Sequence[Instruction] = (),
        attributes: Attributes = NONE,
        shape: Shape | None = None,
        name: str | None = None,
        like: Instruction | None = None,
    ) -> Instruction:
        """Appends an instruction with an attributes object; `build` takes keywords instead.

        Infers the shape if it is not given, makes the name unique, and copies location and metadata from `like`. Raises
        ShapeError if the shape cannot be inferred from the operands, KeyError for an unknown opcode, TypeError if
        attributes are missing.
        """
        op = op_named(op) if isinstance(op, str) else op
        if attributes is NONE and op.attributes is not Attributes:
            attributes = op.attributes()
        if shape is None:
            shape = result_shape(op, [o.shape for o in operands], attributes, None).without_layout()
        instruction = Instruction(self.unique_name(name or op.opcode), op, list(operands), attributes, shape)
        if like is not None:
            instruction.copy_annotations(like)
        self.append(instruction)
        return instruction

    def append(self, instruction: Instruction) -> None:
        """Appends a finished instruction under its own name, which must be free here."""
        instruction.parent = self
        self.loop_edits += self._root is None or not joins_transfers(instruction)
        self._places = None
        self._order[instruction] = None
        if self._insertions.point is not None:
            self._insertions.point.append(instruction)
        self._names[instruction.name] = instruction
        self.has_control_dependencies |= bool(instruction.control_predecessors)
        for operand in instruction.operands:
            operand.users[instruction] = operand.users.get(instruction, 0) + 1

    def extend(self, instructions: Sequence[Instruction]) -> None:
        """Appends finished instructions without control predecessors. Names that are taken here become unique."""
        self._name(instructions)
        for instruction in instructions:
            instruction.parent = self
            for operand in instruction.operands:
                users = operand.users
                users[instruction] = users[instruction] + 1 if instruction in users else 1
        self._order.update(dict.fromkeys(instructions))
        self._places = None
        self.loop_edits += len(instructions)
        if self._insertions.point is not None:
            self._insertions.point += instructions

    def _name(self, instructions: Sequence[Instruction]) -> None:
        """Notes the names of new instructions, which become unique."""
        names, found = self._names, {instruction.name: instruction for instruction in instructions}
        if len(found) == len(instructions) and names.keys().isdisjoint(found):
            names.update(found)
            return
        for instruction in instructions:
            if instruction.name in names:
                instruction.name = self.unique_name(instruction.name)
            names[instruction.name] = instruction

    def unique_name(self, base: str) -> str:
        """Returns `base`, or `base.N` with the smallest unused N."""
        if base not in self._names:
            return base
        number = self._counters.get(base, 0) + 1
        while f"{base}.{number}" in self._names:
            number += 1
        self._counters[base] = number
        return f"{base}.{number}"

    def rename(self, instruction: Instruction, name: str) -> None:
        """Renames the instruction, making the name unique."""
        del self._names[instruction.name]
        instruction.name = self.unique_name(name)
        self._names[instruction.name] = instruction

    def set_op(self, instruction: Instruction, op: AnyOp) -> None:
        """Gives an instruction another op, of the same attributes and shape."""
        instruction.op, self._places = op, None
        self.loop_edits += 1

    def set_operand(self, user: Instruction, index: int, value: Instruction) -> None:
        """Makes `value` the operand of `user` at `index`."""
        self.loop_edits += not (is_transfer(value) and is_transfer(user.operands[index]))
        self._drop_use(user.operands[index], user)
        user.operands[index] = value
        value.users[user] = value.users.get(user, 0) + 1

    def replace_all_uses(self, old: Instruction, new: Instruction) -> None:
        """Makes every user of `old` use `new`, which also becomes the root if `old` was. `old` stays, without users."""
        if old is new:
            return
        self.loop_edits += not (is_transfer(old) and is_transfer(new))
        for user in list(old.users):
            for index, operand in enumerate(user.operands):
                if operand is old:
                    user.operands[index] = new
                    new.users[user] = new.users.get(user, 0) + 1
        old.users.clear()
        for instruction in self._order if self.has_control_dependencies else ():
            if old in instruction.control_predecessors:
                instruction.control_predecessors = tuple(
                    new if p is old else p for p in instruction.control_predecessors
                )
        if self.root is old:
            self._root = new

    def remove(self, instruction: Instruction) -> None:
        """Removes an instruction without users. Raises ValueError if it is used or is the root."""
        self.remove_all((instruction,))

    def remove_all(self, instructions: Iterable[Instruction]) -> None:
        """Removes instructions that nothing else uses; they may use each other. Raises ValueError otherwise."""
        dead = set(instructions)
        if not dead:
            return
        root = self.root
        for instruction in dead:
            if instruction is root or not dead.issuperset(instruction.users):
                raise ValueError(f"{instruction.name} is still used")
        if self._insertions.belong_to(dead):
            self._settled()
        self._places = None
        for instruction in dead:
            for operand in instruction.operands:
                if operand not in dead:
                    operand.users.pop(instruction, None)
            del self._order[instruction]
            del self._names[instruction.name]
            instruction.parent = None
        self.loop_edits += not all(map(joins_transfers, dead))

    def release(self) -> None:
        """Takes apart the instructions, which nobody may use any more: they refer to each other in circles, and their
        memory would stay taken as long as the collector of circles is paused.
        """
        for instruction in self._order:
            instruction.operands, instruction.users, instruction.parent = [], {}, None
        self._order, self._names, self._insertions = {}, {}, Insertions()
        self._root = self._places = self.parent = None

    def reorder(self, instructions: Sequence[Instruction]) -> None:
        """Sets the order. `instructions` must be the same instructions, operands before users."""
        order = dict.fromkeys(instructions)
        if len(instructions) != len(order) or order.keys() != self._order.keys():
            raise ValueError("reorder must keep the instructions")
        self._root, self._insertions = self.root, Insertions()
        self._order, self._places = order, None

    def move_before(self, instruction: Instruction, place: Instruction) -> None:
        """Moves an instruction to just before another."""
        self._root = self.root
        if instruction in self._insertions.waiting:
            self._settled()
        self._insertions.put([instruction], place, self._insertions.before)

    def sort(self) -> None:
        """Sorts operands and control predecessors before their users and keeps the order otherwise.

        Call it after edits that made instructions use later ones. Raises ValueError if dependences form a cycle.
        """
        self._order, self._root, self._places = needs_first(self), self.root, None

    def _drop_use(self, operand: Instruction, user: Instruction) -> None:
        count = operand.users.get(user, 0) - 1
        if count > 0:
            operand.users[user] = count
        else:
            operand.users.pop(user, None)

    def __getstate__(self) -> State:
        """Returns the fields, one record per instruction, and the number of the root if it is set; omits the module."""
        fields = {name: value for name, value in vars(self).items() if name not in _REBUILT}
        root = list(self).index(self.root) if self._order else None
        return fields, records_of(self), root

    def __setstate__(self, state: State) -> None:
        """Restores the state into an empty computation, creating its instructions."""
        fields, records, root = state
        vars(self).update(fields, parent=None, _order={}, _names={}, _root=None, _insertions=Insertions(), _places=None)
        made = instructions_of(records)
        for instruction in made:
            self.append(instruction)
        if root is not None:
            self.root = made[root]

    def __repr__(self) -> str:
        return f"<computation {self.name}, {len(self)} instructions>"
