"""Moves data between devices that all run in this process."""

from __future__ import annotations

from collections.abc import Sequence

from .collective import GridCollective, Operands, check_complete, result_outside_groups
from .reference import outgoing_pieces, perform, permute_result


class LocalFabric:
    """Connects all devices in this process, in lock step: a collective is complete as soon as it starts.

    It is an error of the program if only some devices of a group arrive (because the others took another branch, or
    left the loop): on real devices the program would hang.
    """

    needs_progress = False

    def progress(self) -> None:
        """Does nothing."""

    def start(self, collective: GridCollective, devices: Sequence[int], operands: list[Operands]) -> list[Operands]:
        """Returns the results of each device. Raises CompileError for an incomplete group."""
        arrived = dict(zip(devices, operands, strict=True))
        if collective.kind == "collective-permute":
            return self._permute(collective, devices, arrived)
        results: dict[int, Operands] = {}
        made: dict[tuple[int, ...], list[Operands]] = {}  # groups with the same arrays share one outcome
        for group in collective.groups:
            if any(device in arrived for device in group):
                check_complete(collective, group, arrived)
                members = [arrived[device] for device in group]
                key = tuple(id(array) for operands in members for array in operands)
                if key not in made:
                    made[key] = perform(collective, members)
                results.update(zip(group, made[key], strict=True))
        return [results[d] if d in results else result_outside_groups(collective, d, arrived[d]) for d in devices]

    def wait(self, handle: list[Operands]) -> list[Operands]:
        """Returns the results of each device."""
        return handle

    def _permute(
        self, collective: GridCollective, devices: Sequence[int], arrived: dict[int, Operands]
    ) -> list[Operands]:
        results: dict[int, list[tuple[int, Operands]]] = {}
        for source, target, slot in collective.sends:
            if source in arrived or target in arrived:
                check_complete(collective, (source, target), arrived)
                results.setdefault(target, []).append((slot, outgoing_pieces(collective, arrived[source], slot)))
        return [permute_result(collective, arrived[d], results.get(d, ())) for d in devices]
