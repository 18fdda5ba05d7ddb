"""The verifier: invariants of a module at each stage.

Always:
 1. Every operand is defined earlier in the same computation.
 2. The number of operands fits the op.
 3. The result shape is the one inferred from operands and attributes, up to layout and mixed precision of floats.
 4. Called computations belong to the module, and there is no recursion. An asynchronous computation is started by one
    instruction. The bytes of every array fit 63 bits.
 5. The parameters of a computation are numbered 0, 1, .., n-1, each once.
 6. Control predecessors are defined earlier in the same computation.
 7. User lists match the operands.
 8. The root is an instruction of its computation.
 9. A sharding fits its value: one entry per dimension (or none), one per leaf of a tuple; its axes exist and are used
    once; if the module has several partitions, its mesh has as many devices and every device number is one of them.
10. The entry layout has the types and dimensions of the entry's parameters and root; results and parameters that alias
    or are donated exist.
SHARDED, also:
11. Every array leaf of every value has a sharding, in the entry and in the computations that control flow runs from
    there, but not in computations applied to elements.
LOCAL and SCHEDULED, also:
12. Replica groups contain only devices of the module, none twice. Source-target pairs contain only its devices.
13. There are no `Sharding` custom-calls.
14. What is started is awaited once: a start has one done, through updates, and only that reads the result.
15. Collectives with the same channel are copies: of one kind, over the same devices.
16. A flat layout names every parameter and result once, or members that fill it.
`find_deadlocks` (ir/deadlock) shows more of such programs, also of those that other compilers made:
17. Every device that comes to a collective is in one of its groups, and all devices of a group come to it alike. What
    cannot be shown is a warning. Sends have receives, which do not wait for later events.

`verify` returns the violations, `check` raises them. Diagnostics have both values and the location of the instruction.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any

from ..diagnostics import CompileError, Diagnostic, Location, Severity
from ..graph.attributes import ParameterAttributes, attribute_fields
from ..graph.computation import Computation
from ..graph.dynamic_sizes import result_shape, same_bounds
from ..graph.instruction import Instruction
from ..graph.interfaces import Placed
from ..graph.module import Module, Stage
from ..graph.op import AnyOp, ShapeError
from ..ops.async_ops import starts_computation
from ..ops.calls.custom_call import target_of
from ..types.shape import Shape
from .control_flow import computations_run
from .in_flight import in_flight_problems
from .interface import flat_layout_problems
from .mixed_precision import computed
from .sharding_checks import collective_problem, rank_help, sharding_problem

MOST_BYTES = 2**63 - 1

Calls = Mapping[Computation, Sequence[tuple[Instruction, Computation]]]
"""The calls of each computation of a module: instruction and computation."""

Valid = set[tuple[Any, ...]]
"""Ops, attributes and shapes, and shardings and shapes, that fit, by identity: alike layers share these objects."""


def check(module: Module, repeats: Set[Instruction] | None = None) -> None:
    """Raises CompileError with all findings of `verify`, if there are any."""
    found = verify(module, repeats)
    if found:
        raise CompileError(found)


def verify(module: Module, repeats: Set[Instruction] | None = None) -> list[Diagnostic]:
    """Returns every violation of the invariants of the module's stage. A module with `repeats` comes from a reader that
    has found each operand by name and appended one instruction after the other: 1, 6, 7 and 8 hold then. The repeats
    are like earlier instructions, with operands of the same shapes, and what holds for these holds for them.
    """
    found = _violations(module, repeats)
    return _violations(module, frozenset()) if found and repeats else found


def _violations(module: Module, repeats: Set[Instruction] | None) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    calls = {c: [(i, called) for i in c.calling() for called in i.called()] for c in module.computations}
    valid: Valid = set()
    for computation in module.computations:
        if repeats:
            distinct = [i for i in computation if i not in repeats]
            if len(distinct) < len(computation):
                distinct += [i for i in computation.having(_is_placed) if i in repeats]
        else:
            distinct = list(computation)
        found += _computation(computation, distinct, valid, repeats is not None)
        for instruction, called in calls[computation]:
            if called not in calls:
                found.append(_error(f"{instruction.name}: calls {called.name}, which is not in the module",
                                    instruction.location))
        for instruction in distinct:
            if instruction.annotation is not None:
                found += _shardings(instruction, module, valid)
    found += _recursion(calls)
    found += _shared_starts(calls)
    if not found:
        found += _entry_layout(module)
        found += _aliases(module)
        found += _stage(module)
    return found


def _error(message: str, where: Location | None, help: str | None = None, *notes: Diagnostic) -> Diagnostic:
    return Diagnostic(Severity.ERROR, message, where, help, notes)


def _note(message: str, where: Location | None) -> Diagnostic:
    return Diagnostic(Severity.NOTE, message, where)


# -- graph and shapes


def _is_placed(op: AnyOp) -> bool:
    return op.interface(Placed) is not None


def _computation(
    computation: Computation, distinct: Sequence[Instruction], valid: Valid, is_read: bool
) -> Iterator[Diagnostic]:
    """Yields the violations of a computation, and those of its `distinct` instructions."""
    late = {} if is_read else _late(computation)
    for instruction in distinct:
        if late and instruction in late:
            yield late[instruction]
            continue
        op, shapes = instruction.op, [id(o.shape) for o in instruction.operands]
        key = (op, id(instruction.attributes), id(instruction.shape), *shapes)
        if key not in valid:
            found = list(_call(instruction))
            if not found and op.interface(Placed) is None:
                valid.add(key)
            yield from found
    if not is_read:
        yield from _users(computation)
    if len(computation) == 0:
        yield _error(f"computation {computation.name} has no instructions", computation.location)
    elif not is_read and computation.root not in set(computation):
        yield _error(f"the root of {computation.name} is not in it", computation.location)
    yield from _parameters(computation)


def _late(computation: Computation) -> dict[Instruction, Diagnostic]:
    """Returns an error for each instruction that does not come after its operands and control predecessors."""
    found: dict[Instruction, Diagnostic] = {}
    defined: set[Instruction] = set()
    for instruction in computation:
        operands = instruction.operands
        if not defined.issuperset(operands):
            late = next(o for o in operands if o not in defined)
            text = f"{instruction.name}: operand {late.name} is not defined before it"
            found[instruction] = _error(text, instruction.location)
        elif instruction.control_predecessors and not defined.issuperset(instruction.control_predecessors):
            text = f"{instruction.name}: a control predecessor is not defined before it"
            found[instruction] = _error(text, instruction.location)
        defined.add(instruction)
    return found


def _users(computation: Computation) -> Iterator[Diagnostic]:
    """Compares user lists with the operands of the computation's instructions."""
    uses = sum(len(instruction.operands) for instruction in computation)
    listed = sum(sum(instruction.users.values()) for instruction in computation)
    if uses == listed and all(map(_is_listed, computation)):
        return
    counted: dict[Instruction, Counter[Instruction]] = defaultdict(Counter)
    for instruction in computation:
        for operand in instruction.operands:
            counted[operand][instruction] += 1
    for instruction in computation:
        if instruction.users != counted[instruction]:
            yield _error(f"{instruction.name}: its user list does not match the operands", instruction.location)


def _is_listed(instruction: Instruction) -> bool:
    """Returns whether the user lists of all operands count this instruction right."""
    operands = instruction.operands
    if len(set(operands)) == len(operands):
        return all(operand.users.get(instruction) == 1 for operand in operands)
    return all(operand.users.get(instruction) == count for operand, count in Counter(operands).items())


def _position(instruction: Instruction) -> Sequence[Diagnostic]:
    placed = instruction.op.interface(Placed)
    if placed is None:
        return ()
    try:
        placed.check_use(instruction)
    except ShapeError as error:
        return [_error(error.message, instruction.location, error.help, *_operand_notes(instruction))]
    return ()


def _call(instruction: Instruction) -> Iterator[Diagnostic]:
    low, high = instruction.op.arity
    count = len(instruction.operands)
    if count < low or (high is not None and count > high):
        wanted = str(low) if low == high else f"at least {low}" if high is None else f"{low} to {high}"
        yield _error(f"{instruction.opcode}: takes {wanted} operand{'s' * (wanted != '1')}, found {count}",
                     instruction.location)
        return
    if not countable(instruction.shape):
        yield _error(f"{instruction.name}: {instruction.shape.without_layout()} has too many elements for 64 bits",
                     instruction.location)
        return
    wrong_place = _position(instruction)
    if wrong_place:
        yield from wrong_place
        return
    try:
        inferred = result_shape(
            instruction.op, [o.shape for o in instruction.operands], instruction.attributes, instruction.shape
        )
    except ShapeError as error:
        if computed(instruction) is None:
            yield _error(error.message, instruction.location, error.help, *_operand_notes(instruction))
        return
    if same_bounds(inferred, instruction.shape):
        return
    if computed(instruction) is None:
        declared, given = instruction.shape.without_layout(), inferred.without_layout()
        yield _error(f"{instruction.opcode}: declared shape {declared} but operands give {given}",
                     instruction.location, _defaults(instruction), *_operand_notes(instruction))


def _defaults(instruction: Instruction) -> str | None:
    """Names the dimensions among the attributes of an instruction that gives no attributes; None for others."""
    attributes = instruction.attributes
    fields = attribute_fields(type(attributes)).values()
    dims = [field.name for field in fields if field.type == tuple[int, ...]]
    if not dims or any(field.required for field in fields) or attributes != type(attributes)():
        return None
    return f"without attributes these are empty: {', '.join(dims)}"


@lru_cache(maxsize=65536)
def countable(shape: Shape) -> bool:
    """Whether 64 bits count the bytes of each array."""
    # Ignore sizes of zero: numpy's products overflow 64 bits even if another size is zero.
    return all(math.prod(max(1, d) for d in leaf.dims) * max(1, leaf.element.byte_size) <= MOST_BYTES
               for leaf in shape.leaves())


def _operand_notes(instruction: Instruction) -> Iterator[Diagnostic]:
    for operand in dict.fromkeys(instruction.operands[:3]):
        yield _note(f"{operand.name} is {operand.shape.without_layout()} here", operand.location)


def _parameters(computation: Computation) -> Iterator[Diagnostic]:
    parameters = computation.parameters
    for expected, parameter in enumerate(parameters):
        number = parameter.attributes_as(ParameterAttributes).number
        if number != expected:
            twice = expected > 0 and number == expected - 1
            message = (f"parameter {number} of {computation.name} is defined twice" if twice else
                       f"parameter number {number} in {computation.name}: {expected} expected next")
            yield _error(message, parameter.location, "parameters are numbered 0, 1, 2, .. without gaps")
            return


def _recursion(calls_of: Calls) -> Iterator[Diagnostic]:
    """Searches depth first with an explicit stack; a call to a computation still on it closes a cycle."""
    done: dict[Computation, bool] = {}
    for start in calls_of:
        stack = [(start, iter(calls_of[start]))] if start not in done else []
        done.setdefault(start, False)
        while stack:
            computation, calls = stack[-1]
            step = next(calls, None)
            if step is None:
                done[computation] = True
                stack.pop()
                continue
            instruction, called = step
            if done.get(called) is False:
                yield _error(f"{instruction.name}: recursive call of {called.name}", instruction.location)
            elif called not in done:
                done[called] = False
                stack.append((called, iter(calls_of.get(called, []))))


def _shared_starts(calls_of: Calls) -> Iterator[Diagnostic]:
    first: dict[Computation, Instruction] = {}
    for calls in calls_of.values():
        for instruction, called in calls:
            other = first.setdefault(called, instruction) if starts_computation(instruction.op) else instruction
            if other is not instruction:
                yield _error(f"{instruction.name}: {called.name} is started elsewhere too", instruction.location, None,
                             _note(f"{other.name} starts it here", other.location))


_ALIAS = re.compile(r"(?:\{([\d,\s]*)\}\s*:\s*)?\(\s*(\d+)\s*(?:,\s*\{([\d,\s]*)\}[^()]*)?\)")


def _aliases(module: Module) -> Iterator[Diagnostic]:
    parameters, root = module.entry.parameters, module.entry.root
    for name, text in (("input_output_alias", module.input_output_alias), ("buffer_donor", module.buffer_donor)):
        for output, number, index in _ALIAS.findall(text):
            if root.shape.part(output) is None:
                yield _error(f"{name}: the result has no part {{{output}}}", root.location)
            parameter = parameters[int(number)] if int(number) < len(parameters) else None
            if parameter is None:
                yield _error(f"{name}: {module.entry.name} has no parameter {number}", module.entry.location)
            elif parameter.shape.part(index) is None:
                yield _error(f"{name}: parameter {number} has no part {{{index}}}", parameter.location)


def _entry_layout(module: Module) -> Iterator[Diagnostic]:
    layout = module.entry_layout
    if layout is None:
        return
    entry = module.entry
    parameters = entry.parameters
    if len(layout.parameters) != len(parameters):
        yield _error(f"entry_computation_layout has {len(layout.parameters)} parameters, "
                     f"{entry.name} has {len(parameters)}", entry.location)
        return
    for number, (shape, parameter) in enumerate(zip(layout.parameters, parameters, strict=True)):
        if not shape.compatible(parameter.shape):
            yield _error(f"entry_computation_layout: parameter {number} is {shape.without_layout()} there, "
                         f"but {parameter.shape.without_layout()} here", parameter.location)
    if not layout.result.compatible(entry.root.shape):
        yield _error(f"entry_computation_layout: the result is {layout.result.without_layout()} there, "
                     f"but {entry.root.shape.without_layout()} here", entry.root.location)


# -- shardings


def _shardings(instruction: Instruction, module: Module, valid: Valid) -> Iterator[Diagnostic]:
    for sharding in (instruction.sharding, instruction.shardy):
        key = (id(sharding), id(instruction.shape))
        if sharding is not None and key not in valid:
            problem = sharding_problem(sharding, instruction.shape, _settled(module))
            if problem:
                help = rank_help(sharding, instruction.shape)
                yield _error(f"{instruction.name}: {problem}", instruction.location, help)
            else:
                valid.add(key)


def _settled(module: Module) -> int | None:
    """Returns the number of devices, or None while a program for one partition may still be run on any number."""
    return None if module.num_partitions == 1 and module.stage is Stage.GLOBAL else module.num_partitions


# -- stages


def _stage(module: Module) -> Iterator[Diagnostic]:
    if module.stage is Stage.SHARDED:
        for instruction in (i for computation in computations_run(module) for i in computation):
            if instruction.sharding is None and any(leaf.is_array for leaf in instruction.shape.leaves()):
                yield _error(f"{instruction.name} has no sharding", instruction.location)
    if module.stage in (Stage.LOCAL, Stage.SCHEDULED):
        for computation in module.computations:
            for instruction in computation:
                yield from _local(instruction, module)
        yield from in_flight_problems(module)
    yield from (_error(problem, module.entry.location) for problem in flat_layout_problems(module))


def _local(instruction: Instruction, module: Module) -> Iterator[Diagnostic]:
    if problem := collective_problem(instruction, module.devices):
        yield _error(f"{instruction.name}: {problem}", instruction.location)
    if target_of(instruction) == "Sharding":
        yield _error(f"{instruction.name}: a Sharding custom-call in a partitioned program", instruction.location)
