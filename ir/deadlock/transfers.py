"""Checks sends and receives: each channel has both ends, and no device waits for an event that it causes itself later.

A send or a receive begins where it stands, and its done waits: a receive's done for the send of its source, a send's
done for the receive of its target, a collective for all its members. The pairs of devices are in the frontend attribute
`_xla_send_recv_source_target_pairs`. The check steps through the instructions of a computation, only to see who waits;
instructions that no device can ever pass are a deadlock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..diagnostics import Diagnostic, Severity
from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.module import Module
from ..graph.op import Role
from ..ops.starts import Starts
from ..ops.transfers import ChannelAttributes, Recv, Send
from ..tools.in_flight import note
from ..tools.process_grid import Pairs, ProcessGrid

_PAIRS = "_xla_send_recv_source_target_pairs"


def is_transfer(instruction: Instruction) -> bool:
    """Whether an instruction sends to another device or receives from one; transfers with the host do not."""
    is_one = isinstance(instruction.op, Send | Recv)
    return is_one and not instruction.attributes_as(ChannelAttributes).is_host_transfer


def _sends(transfer: Instruction) -> bool:
    return isinstance(transfer.op, Send)


def transfer_pairs(instruction: Instruction) -> Pairs | None:
    """Returns the pairs of devices between which a send or receive moves data; None if it does not say."""
    text = instruction.frontend_attributes.get(_PAIRS)
    found = re.findall(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}", str(text)) if text is not None else None
    return None if found is None else tuple((int(source), int(target)) for source, target in found)


def transfer_problems(module: Module) -> Iterator[Diagnostic]:
    """Yields the errors of a program's sends and receives."""
    ends: dict[Any, list[Instruction]] = {}
    for computation in module:
        for instruction in filter(is_transfer, computation):
            ends.setdefault(_channel(instruction), []).append(instruction)
    for channel, found in ends.items():
        yield from _ends(channel, found)
    for computation in module:
        if any(map(is_transfer, computation)):
            yield from _stuck(computation, ProcessGrid.of(module))


def _channel(instruction: Instruction) -> int | None:
    return instruction.attributes_as(ChannelAttributes).channel_id


def _ends(channel: int | None, found: list[Instruction]) -> Iterator[Diagnostic]:
    """Compares the two ends of a channel. Unrolled loops have several of both."""
    sends = [i for i in found if _sends(i)]
    receives = [i for i in found if not _sends(i)]
    first = found[0]
    name = f"{first.opcode} {first.name}"
    if len(sends) != len(receives):
        lacks = "receive" if len(sends) > len(receives) else "send"
        message = f"{name}: channel {channel} has {len(sends)} sends and {len(receives)} receives"
        yield Diagnostic(Severity.ERROR, message, first.location, f"each needs a {lacks} of the same channel_id")
        return
    for other in found[1:]:
        if transfer_pairs(other) != transfer_pairs(first):
            message = f"{other.opcode} {other.name}: other pairs of devices than {first.name} on channel {channel}"
            yield Diagnostic(Severity.ERROR, message, other.location, None, (note("here", first.location),))


def _stuck(computation: Computation, grid: ProcessGrid) -> Iterator[Diagnostic]:
    """Runs the waits of a computation on all devices in step, and yields where they stop."""
    starts = {i for i in computation if i.op.is_collective or is_transfer(i)}
    events = [i for i in computation if i in starts or (i.op.role is Role.DONE and i.operands[0] in starts)]
    if any(is_transfer(i) and transfer_pairs(i) is None for i in events):
        return
    begun = {instruction: place for place, instruction in enumerate(events)}
    other_end: dict[Instruction, int] = {}
    for kind, opposite in ((Send, Recv), (Recv, Send)):
        places: dict[Any, list[int]] = {}
        for place, i in enumerate(events):
            if isinstance(i.op, opposite):
                places.setdefault(_channel(i), []).append(place)
        for i in events:
            if isinstance(i.op, kind) and places.get(_channel(i)):
                other_end[i] = places[_channel(i)].pop(0)
    at = [0] * grid.size  # the event that each device has come to

    def may_pass(device: int, event: Instruction) -> bool:
        start = event.operands[0] if event.op.role is Role.DONE else event
        if start.op.is_collective and not (start is event and event.op.interface(Starts)):
            groups, pairs = grid.members(start)
            return all(at[d] >= begun[start] for group in (*groups, *pairs) if device in group for d in group)
        if start is event or start not in other_end:
            return True
        mine, theirs = (0, 1) if _sends(start) else (1, 0)
        peers = [pair[theirs] for pair in transfer_pairs(start) or () if pair[mine] == device]
        return all(at[peer] > other_end[start] for peer in peers)

    going = True
    while going:
        going = False
        for device in range(grid.size):
            while at[device] < len(events) and may_pass(device, events[at[device]]):
                at[device] += 1
                going = True
    for place in sorted({place for place in at if place < len(events)})[:1]:
        waiting = [device for device in range(grid.size) if at[device] == place]
        event = events[place]
        message = (f"{event.opcode} {event.name}: device{'s' * (len(waiting) > 1)} "
                   f"{', '.join(map(str, waiting[:8]))} would wait for ever")  # fmt: skip
        later = next((events[p] for p in sorted(set(at)) if place < p < len(events)), None)
        other = [note(f"the others wait at {later.name}", later.location)] if later is not None else []
        help = "a receive waits for its send, which must come before all that its device awaits"
        yield Diagnostic(Severity.ERROR, message, event.location, help, tuple(other))
