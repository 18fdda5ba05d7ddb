"""Runs collectives as non-blocking MPI operations between the ranks concerned.

Each group runs in one of two ways. If each rank has one member, MPI's operation of the same meaning computes the result
(only reductions need to know the type; others move bytes). Otherwise the operands of all members are gathered as bytes,
and each rank computes the reference for its own devices.

Assumption: all ranks start the collectives of a communicator in the same order, which holds for one program on all
devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.factors.sharding_rule import Monoid
from ...ir.types.shape import Shape
from ..ranks.watch import RankWatch
from .collective import Collective, Group, Operands, Send
from .reference import perform, reduce_members, split_evenly
from .transport import Arrived, Finish, FinishSends, Placing

Array = np.ndarray[Any, Any]
Requests = list[Any]
Wait = Callable[[Requests], None]
_TAGS = 1 << 14
_DIRECT_BYTES = 1 << 15  # larger reductions that MPI has no op for are divided among the group's ranks

_NATIVE: dict[str, dict[Monoid, str]] = {
    "iu": {
        Monoid.ADD: "SUM", Monoid.MULTIPLY: "PROD", Monoid.MAXIMUM: "MAX", Monoid.MINIMUM: "MIN",
        Monoid.AND: "BAND", Monoid.OR: "BOR", Monoid.XOR: "BXOR",
    },
    "fc": {Monoid.ADD: "SUM", Monoid.MULTIPLY: "PROD"},  # MPI's MAX and MIN lose NaNs
    "b": {Monoid.AND: "LAND", Monoid.OR: "LOR", Monoid.XOR: "LXOR"},
}  # fmt: skip


class MpiTransport:
    """Connects ranks by messages. `sets` are the tuples of ranks that run collectives together, the same list on all
    ranks; `tags` are the numbers of the collectives. Ranks wait for each other through the watch.
    """

    def __init__(
        self, mpi: Any, watch: RankWatch, placing: Placing, sets: Sequence[tuple[int, ...]], tags: dict[Collective, int]
    ) -> None:
        self.mpi = mpi
        self.watch = watch
        self.placing = placing
        self.tags = tags
        comm = watch.comm
        self.comm = comm.Dup()
        self.comms: dict[tuple[int, ...], Any] = {tuple(range(comm.size)): self.comm}
        for ranks in sets:
            self._make_comm(ranks)

    def close(self) -> None:
        """Frees the communicators."""
        for comm in self.comms.values():
            if comm is not None:
                comm.Free()
        self.comms.clear()

    def abandon(self) -> None:
        """Does nothing: communicators live as long as the process, unless all ranks free them."""

    def start_groups(self, collective: Collective, groups: tuple[Group, ...], arrived: Arrived) -> Finish:
        """Starts a collective of these groups, which have members on this rank and on others."""
        requests = Requests()
        try:
            ends = [self._start_group(collective, group, arrived, requests) for group in groups]
        except self.mpi.Exception as error:
            raise self.watch.lost(error) from error
        devices = [device for group in groups for device in group]

        def finish() -> dict[int, Operands]:
            self._wait(collective, requests, devices)
            return {device: result for end in ends for device, result in end().items()}

        return finish

    def start_sends(self, collective: Collective, sends: tuple[Send, ...], pieces: list[Operands]) -> FinishSends:
        """Starts to send over these pairs, each with one end on this rank: the pieces, or on the target arrays like
        them.
        """
        requests, kept, come = Requests(), list[Array](), list[tuple[Send, Operands]]()
        rank_of, tag = self.placing.rank_of, self.tags[collective] % _TAGS
        try:
            for send, arrays in zip(sends, pieces, strict=True):
                source, target, _ = send
                if rank_of[source] == self.placing.rank:
                    for array in arrays:
                        kept.append(as_bytes(array))
                        requests.append(self.comm.Isend([kept[-1], self.mpi.BYTE], rank_of[target], tag))
                    continue
                come.append((send, [np.empty_like(array, order="C") for array in arrays]))
                for array in come[-1][1]:
                    requests.append(self.comm.Irecv([as_bytes(array), self.mpi.BYTE], rank_of[source], tag))
        except self.mpi.Exception as error:
            raise self.watch.lost(error) from error
        devices = [device for send in sends for device in send[:2]]

        def finish(_: list[Array] = kept) -> list[tuple[Send, Operands]]:
            self._wait(collective, requests, devices)
            return come

        return finish

    def _wait(self, collective: Collective, requests: Requests, devices: Sequence[int]) -> None:
        self.watch.wait(requests, collective.instruction, self.placing.ranks(devices))

    def _make_comm(self, ranks: tuple[int, ...]) -> None:
        if ranks not in self.comms:
            number = len(self.comms)
            self.comms[ranks] = None  # counted on every rank, so that tags agree
            if self.placing.rank in ranks:
                members = self.comm.Get_group().Incl(ranks)
                self.comms[ranks] = self.comm.Create_group(members, tag=number % _TAGS)
                members.Free()

    def _start_group(self, collective: Collective, group: Group, arrived: Arrived, requests: Requests) -> Finish:
        ranks = self.placing.ranks(group)
        comm = self.comms[ranks]
        if len(ranks) == len(group):
            device = group[int(comm.rank)]

            def wait(more: Requests) -> None:
                self._wait(collective, more, group)

            end = _OneDevicePerRank(self.mpi, comm, collective, requests, wait).start(arrived[device])
            if end is not None:
                return lambda: {device: end()}
        return self._gather_and_compute(comm, collective, group, arrived, requests)

    def _gather_and_compute(
        self, comm: Any, collective: Collective, group: Group, arrived: Arrived, requests: Requests
    ) -> Finish:
        """Gathers all members' operands on all ranks concerned; each rank computes the reference."""
        rank_of, ranks = self.placing.rank_of, self.placing.ranks(group)
        order = [device for rank in ranks for device in group if rank_of[device] == rank]
        mine = self.placing.local(group)
        like = arrived[mine[0]]
        width = sum(array.nbytes for array in like)
        counts = [width * sum(rank_of[d] == rank for d in group) for rank in ranks]
        send = np.concatenate([as_bytes(array) for device in mine for array in arrived[device]])
        received = np.empty(width * len(group), np.uint8)
        requests.append(comm.Iallgatherv([send, self.mpi.BYTE], [received, counts, self.mpi.BYTE]))

        def finish(_: Array = send) -> dict[int, Operands]:
            rows = received.reshape(len(group), width)
            members = {device: unpack(row, like) for device, row in zip(order, rows, strict=True)}
            wanted = [number for number, device in enumerate(group) if device in mine]
            outcome = perform(collective, [members[device] for device in group], wanted)
            return dict(zip(mine, outcome, strict=True))

        return finish


class _OneDevicePerRank:
    """Starts the collectives of a group with one member per rank. `start` returns the function that finishes it, or
    None where MPI has no such operation.
    """

    def __init__(self, mpi: Any, comm: Any, collective: Collective, requests: Requests, wait: Wait) -> None:
        self.mpi = mpi
        self.comm = comm
        self.collective = collective
        self.requests = requests
        self.wait = wait

    def start(self, operands: Operands) -> Callable[[], Operands] | None:
        kinds = {
            "all-reduce": self.all_reduce,
            "reduce-scatter": self.reduce_scatter,
            "all-gather": self.all_gather,
            "all-to-all": self.all_to_all,
            "collective-broadcast": self.broadcast,
        }
        return kinds[self.collective.kind](operands) if self.collective.kind in kinds else None

    def all_reduce(self, operands: Operands) -> Callable[[], Operands] | None:
        ops = self.native_ops(operands)
        if None in ops:
            large = sum(array.nbytes for array in operands) > _DIRECT_BYTES and self.comm.size > 2
            return self.distributed_reduce(operands) if large else None
        sent = [np.ascontiguousarray(array).reshape(array.shape) for array in operands]
        results = [np.empty_like(array) for array in sent]
        for array, result, op in zip(sent, results, ops, strict=True):
            self.requests.append(self.comm.Iallreduce(array, result, op))
        return lambda _=sent: results

    def distributed_reduce(self, operands: Operands) -> Callable[[], Operands]:
        """Combines one part of all operands on each rank, then gathers the parts on completion."""
        count = self.comm.size
        padded = [pad_flat(array, count) for array in operands]
        end = self.exchange(padded, lambda members: reduce_members(self.collective, members))

        def finish() -> Operands:
            results: Operands = []
            for part, array in zip(end(), operands, strict=True):
                whole = np.empty((count, *part.shape), part.dtype)
                sent = as_bytes(part)
                request = self.comm.Iallgather([sent, self.mpi.BYTE], [as_bytes(whole), self.mpi.BYTE])
                self.wait([request])
                results.append(whole.reshape(-1)[: array.size].reshape(array.shape))
            return results

        return finish

    def reduce_scatter(self, operands: Operands) -> Callable[[], Operands]:
        ops = self.native_ops(operands)
        if None in ops:
            parts = [self.parts(array) for array in operands]
            return self.exchange(parts, lambda members: reduce_members(self.collective, members))
        sent = [self.parts(array) for array in operands]
        results = [np.empty(part.shape[1:], part.dtype) for part in sent]
        for part, result, op in zip(sent, results, ops, strict=True):
            self.requests.append(self.comm.Ireduce_scatter_block(part, result, op=op))
        return lambda _=sent: results

    def all_gather(self, operands: Operands) -> Callable[[], Operands]:
        dim = self.collective.dimension
        assert dim is not None
        sent = [np.ascontiguousarray(array).reshape(array.shape) for array in operands]
        wholes = [np.empty((self.comm.size, *array.shape), array.dtype) for array in sent]
        for array, whole in zip(sent, wholes, strict=True):
            self.requests.append(
                self.comm.Iallgather([as_bytes(array), self.mpi.BYTE], [as_bytes(whole), self.mpi.BYTE])
            )
        return lambda _=sent: [join_parts(whole, dim) for whole in wholes]

    def all_to_all(self, operands: Operands) -> Callable[[], Operands]:
        dim = self.collective.dimension
        if dim is None:
            return self.exchange([stack_rows(operands)], lambda members: [member[0] for member in members])
        parts = [self.parts(array) for array in operands]
        return self.exchange(
            parts, lambda members: [np.concatenate(arrays, dim) for arrays in zip(*members, strict=True)]
        )

    def broadcast(self, operands: Operands) -> Callable[[], Operands]:
        results = [np.array(array, order="C") for array in operands]
        for result in results:
            self.requests.append(self.comm.Ibcast([as_bytes(result), self.mpi.BYTE], 0))
        return lambda: results

    def exchange(self, parts: list[Array], combine: Callable[[list[Operands]], Operands]) -> Callable[[], Operands]:
        """Sends row i of each (contiguous) array to rank i; `combine` computes the results from the received rows, in
        rank order.
        """
        received = [np.empty_like(part) for part in parts]
        for part, into in zip(parts, received, strict=True):
            self.requests.append(
                self.comm.Ialltoall([as_bytes(part), self.mpi.BYTE], [as_bytes(into), self.mpi.BYTE])
            )
        return lambda _=parts: combine([[into[i] for into in received] for i in range(self.comm.size)])

    def parts(self, array: Array) -> Array:
        """Returns the parts along the collective's dimension, as rows of one contiguous array."""
        dim, count = self.collective.dimension, self.comm.size
        assert dim is not None
        return stack_rows(split_evenly(array, count, dim, self.collective))

    def native_ops(self, operands: Operands) -> list[Any]:
        """Returns MPI's op of the same meaning for each operand, None where it has none."""
        return [self.native_op(a, shape) for a, shape in zip(operands, self.collective.results, strict=True)]

    def native_op(self, array: Array, shape: Shape) -> Any:
        """Returns MPI's op for the collective's monoid and the array's type; None unless the array holds the program's
        own type.
        """
        is_plain = array.dtype == shape.element.numpy and array.dtype.isbuiltin == 1 and array.dtype != np.float16
        if self.collective.monoid is None or not is_plain:
            return None
        tables = [ops for kinds, ops in _NATIVE.items() if array.dtype.kind in kinds]
        name = tables[0].get(self.collective.monoid) if tables else None
        return getattr(self.mpi, name) if name else None


def as_bytes(array: Array) -> Array:
    """Returns the bytes of an array, as a view if it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def unpack(row: Array, like: Sequence[Array]) -> Operands:
    """Splits bytes into arrays with the types and shapes of `like`."""
    result: Operands = []
    start = 0
    for array in like:
        result.append(row[start : start + array.nbytes].view(array.dtype).reshape(array.shape))
        start += array.nbytes
    return result


def stack_rows(arrays: Sequence[Array]) -> Array:
    """Stacks equal arrays as the rows of a contiguous one (np.stack would keep the memory order of the parts)."""
    return np.stack(arrays, out=np.empty((len(arrays), *arrays[0].shape), arrays[0].dtype))


def join_parts(parts: Array, dim: int) -> Array:
    """Concatenates rows of an array along one of their dimensions."""
    if dim == 0:
        return parts.reshape(parts.shape[0] * parts.shape[1], *parts.shape[2:])
    return np.concatenate(list(parts), dim)


def pad_flat(array: Array, rows: int) -> Array:
    """Returns the elements in order as this many equal rows, padded with zeros."""
    width = -(-array.size // rows)
    padded = np.zeros(rows * width, array.dtype)
    padded[: array.size] = array.reshape(-1)
    return padded.reshape(rows, width)
