"""Checks asynchronous ops: starts and their dones, and channels.

A start's value may pass through updates. Only a done may read the result; the contexts after it belong to the back end.
A value that control flow or a tuple forwards cannot be followed, so it is not checked. Channels tell the
collectives of Hloom's programs apart; other compilers may give all the same: JAX numbers those of a `shard_map` 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..diagnostics import Diagnostic, Location, Severity
from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.module import Module, Stage
from ..graph.op import AnyOp, Role
from ..ops.collective_groups import channel_of
from ..ops.starts import Starts, is_start, run_by
from ..ops.structure import element_index
from ..ops.transfers import Recv, Send


def in_flight_problems(module: Module) -> list[Diagnostic]:
    """Returns the errors of a per-device program's starts and dones, and of its channels if Hloom made it."""
    awaited = [d for computation in module for d in _awaited(computation)]
    return awaited if module.stage is Stage.GLOBAL else [*awaited, *_channels(module)]


def transfer_problems(module: Module) -> list[Diagnostic]:
    """Returns an error for each send or receive of a program at any stage that is not awaited once."""
    return [d for computation in module for i in computation.having(_is_transfer) for d in _start(i)]


def note(message: str, where: Location | None) -> Diagnostic:
    """Returns a note at another place, which belongs to a diagnostic."""
    return Diagnostic(Severity.NOTE, message, where)


def _error(instruction: Instruction, message: str, *notes: Diagnostic, help: str | None = None) -> Diagnostic:
    text = f"{instruction.opcode} {instruction.name}: {message}"
    return Diagnostic(Severity.ERROR, text, instruction.location, help, notes)


# -- starts and dones


def _awaited(computation: Computation) -> Iterator[Diagnostic]:
    for instruction in computation.having(lambda op: is_start(op) or _is_transfer(op)):
        yield from _start(instruction)


def _is_transfer(op: AnyOp) -> bool:
    return isinstance(op, Send | Recv)


def _start(start: Instruction) -> Iterator[Diagnostic]:
    dones: list[Instruction] = []
    links, leaves_sight = [start], False
    for link in links:
        leaves_sight |= link is start.parent.root if start.parent is not None else False
        for user in link.users:
            if user.op.role is Role.DONE:
                dones.append(user)
            elif user.op.role is Role.UPDATE:
                links.append(user)
            elif _reads_result(start, user):
                yield _error(user, f"reads the result of {start.name} before it has arrived",
                             note(f"{start.name} starts here", start.location),
                             help=f"read the result of its done: {start.opcode.removesuffix('-start')}-done")
            elif element_index(user) is None or _is_context(start, user):
                leaves_sight = True
    if not dones and not leaves_sight:
        yield _error(start, "is never awaited: it has no done")
    for other in dones[1:]:
        yield _error(other, f"{start.name} is awaited twice", note("first here", dones[0].location))


def _reads_result(start: Instruction, user: Instruction) -> bool:
    """Whether an instruction extracts a start's result from its value."""
    op = start.op.interface(Starts)
    if op is None:
        return False
    result = op.form_of(start.shape).result
    return result is None or element_index(user) == result


def _is_context(start: Instruction, element: Instruction) -> bool:
    """Whether an element of a send's or receive's value may stand for it, in a tuple that its done takes."""
    return start.op.interface(Starts) is None and any(u.op.role is Role.TUPLE for u in element.users)


# -- channels


def _channels(module: Module) -> Iterator[Diagnostic]:
    """Compares instructions that have the same channel: copies of a collective may share one, others not."""
    first: dict[int, Instruction] = {}
    for computation in module:
        for instruction in computation:
            number = channel_of(instruction)
            if not number:
                continue
            other = first.setdefault(number, instruction)
            if other is not instruction and _meaning(other) != _meaning(instruction):
                yield _error(instruction, f"channel {number} belongs to {other.opcode} {other.name}, "
                             "which has another kind or other devices", note("here", other.location))  # fmt: skip


def _meaning(instruction: Instruction) -> Any:
    """Returns a key that the collectives of a channel must share."""
    attributes: Any = instruction.attributes
    op, _ = run_by(instruction)
    where = getattr(attributes, "replica_groups", None), getattr(attributes, "source_target_pairs", None)
    return op, where, getattr(attributes, "use_global_device_ids", False)
