"""Starts MPI's own operations for a group with one device on each of its ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...cost.host import HOST
from ...ir.factors.sharding_rule import Monoid
from ...ir.types.literal import Array
from ...ir.types.memory import aligned_array
from ...ir.types.shape import Shape
from .collective import GridCollective, Operands
from .packing import Buffers, Rows
from .reference import reduce_members, split_evenly

Requests = list[Any]
Wait = Callable[[Requests], None]
Reduction = Callable[[Array, Array, Any], Any]  # from rows, for the result and by this op: the request

_NATIVE: dict[str, dict[Monoid, str]] = {
    "iu": {
        Monoid.ADD: "SUM", Monoid.MULTIPLY: "PROD", Monoid.MAXIMUM: "MAX", Monoid.MINIMUM: "MIN",
        Monoid.AND: "BAND", Monoid.OR: "BOR", Monoid.XOR: "BXOR",
    },
    "fc": {Monoid.ADD: "SUM", Monoid.MULTIPLY: "PROD"},  # MPI's MAX and MIN lose NaNs
    "b": {Monoid.AND: "LAND", Monoid.OR: "LOR", Monoid.XOR: "LXOR"},
}  # fmt: skip


class OneDevicePerRank:
    """Starts the collectives of a group with one member per rank. `start` returns the function that finishes it, or
    None where MPI has no such operation.
    """

    def __init__(
        self, mpi: Any, comm: Any, collective: GridCollective, requests: Requests, wait: Wait, buffers: Buffers
    ) -> None:
        self.mpi = mpi
        self.buffers = buffers
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
            large = sum(array.nbytes for array in operands) > HOST.direct_reduction and self.comm.size > 2
            return self.distributed_reduce(operands) if large else None
        flat = [np.ascontiguousarray(array).reshape(1, -1) for array in operands]

        def begin(given: Array, into: Array, op: Any) -> Any:
            return self.comm.Iallreduce(given, into, op)

        end = self.reduced(flat, ops, begin)
        return lambda: [x.reshape(array.shape) for x, array in zip(end(), operands, strict=True)]

    def reduced(self, parts: list[Array], ops: list[Any], begin: Reduction) -> Callable[[], Operands]:
        """Reduces arrays, given as rows, those of one type together; each comes back as one row."""
        alike: dict[np.dtype[Any], list[int]] = {}
        for number, part in enumerate(parts):
            alike.setdefault(part.dtype, []).append(number)
        results: dict[int, Array] = {}
        used: list[Array] = []
        for dtype, numbers in alike.items():
            rows, widths = len(parts[0]), [parts[n][:1].size for n in numbers]
            ends = np.cumsum(widths)
            given = parts[numbers[0]]
            if len(numbers) > 1:
                used.append(self.buffers.take(rows * int(ends[-1]) * dtype.itemsize))
                given = used[-1].view(dtype).reshape(rows, -1)
                for n, end, width in zip(numbers, ends, widths, strict=True):
                    given[:, end - width : end] = parts[n].reshape(rows, width)
            into = aligned_array((int(ends[-1]),), dtype)
            self.requests.append(begin(given, into, ops[numbers[0]]))
            for n, end, width in zip(numbers, ends, widths, strict=True):
                results[n] = into[end - width : end].reshape(parts[n].shape[1:])

        def finish(_: list[Array] = parts) -> Operands:
            for buffer in used:
                self.buffers.give(buffer)
            return [results[n] for n in range(len(parts))]

        return finish

    def distributed_reduce(self, operands: Operands) -> Callable[[], Operands]:
        """Combines one part of all operands on each rank, then gathers the parts on completion."""
        count = self.comm.size
        padded = [pad_flat(array, count) for array in operands]
        end = self.exchange(padded, lambda members: reduce_members(self.collective, members))

        def finish() -> Operands:
            results: Operands = []
            for part, array in zip(end(), operands, strict=True):
                whole = aligned_array((count, *part.shape), part.dtype)
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

        def begin(given: Array, into: Array, op: Any) -> Any:
            return self.comm.Ireduce_scatter_block(given, into, op=op)

        return self.reduced([self.parts(array) for array in operands], ops, begin)

    def all_gather(self, operands: Operands) -> Callable[[], Operands]:
        dim = self.collective.dimension
        assert dim is not None
        if len(operands) > 1:
            rows = Rows.of([array[None] for array in operands])
            sent, whole = self.buffers.take(rows.ends[-1]), self.buffers.take(self.comm.size * rows.ends[-1])
            rows.pack([array[None] for array in operands], sent)
        else:
            rows, sent = None, as_bytes(operands[0])
            whole = aligned_array((self.comm.size, *operands[0].shape), operands[0].dtype)
        self.requests.append(self.comm.Iallgather([sent, self.mpi.BYTE], [as_bytes(whole), self.mpi.BYTE]))

        def finish() -> Operands:
            if rows is None:
                return [join_parts(whole, dim)]
            received = whole.reshape(self.comm.size, -1)
            results = [np.concatenate(list(rows.part(received, n)), dim) for n in range(len(operands))]
            for buffer in (sent, whole):
                self.buffers.give(buffer)
            return results

        return finish

    def all_to_all(self, operands: Operands) -> Callable[[], Operands]:
        dim = self.collective.dimension
        if dim is None:
            return self.exchange([stack_rows(operands)], lambda members: [member[0] for member in members])
        parts = [self.parts(array) for array in operands]
        return self.exchange(
            parts, lambda members: [np.concatenate(arrays, dim) for arrays in zip(*members, strict=True)]
        )

    def broadcast(self, operands: Operands) -> Callable[[], Operands]:
        rows = Rows.of([array[None] for array in operands])
        packed = rows.pack([array[None] for array in operands], np.empty(rows.ends[-1], np.uint8))
        self.requests.append(self.comm.Ibcast([packed, self.mpi.BYTE], 0))
        return lambda: [rows.part(packed, number)[0] for number in range(len(operands))]

    def exchange(self, parts: list[Array], combine: Callable[[list[Operands]], Operands]) -> Callable[[], Operands]:
        """Sends row i of each (contiguous) array to rank i; `combine` computes the results from the received rows, in
        rank order.
        """
        rows = Rows.of(parts)
        if len(parts) > 1:
            sent = rows.pack(parts, self.buffers.take(self.comm.size * rows.ends[-1]))
            into = aligned_array(sent.shape, sent.dtype)
            received = [rows.part(into, number) for number in range(len(parts))]
        else:
            received = [aligned_array(parts[0].shape, parts[0].dtype)]
            sent, into = as_bytes(parts[0]), as_bytes(received[0])
        self.requests.append(self.comm.Ialltoall([sent, self.mpi.BYTE], [into, self.mpi.BYTE]))

        def finish(_: list[Array] = parts) -> Operands:
            if len(parts) > 1:
                self.buffers.give(sent.reshape(-1))
            return combine([[part[i] for part in received] for i in range(self.comm.size)])

        return finish

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
    return np.stack(arrays, out=aligned_array((len(arrays), *arrays[0].shape), arrays[0].dtype))


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
