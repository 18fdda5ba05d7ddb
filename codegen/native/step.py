"""The calling convention of machine code: loop kernels, products and their callers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class NativeStep:
    """A function of machine code and its constant arguments.

    The function takes the address of a block of 64-bit words: the addresses of the operands' first elements, of the
    results, of scratch arrays, and then `words`. `scratch` has the bytes of each scratch array, whose contents are
    arbitrary before and after. `owner` keeps the code in memory.
    """

    function: int
    scratch: tuple[int, ...] = ()
    words: tuple[int, ...] = ()
    owner: object = None


@dataclass(frozen=True, slots=True)
class StridedLayout:
    """The memory layout of an array: its sizes, and its strides per dimension, in elements.

    A stride may be 0 (a broadcast) or negative (a reversal). Addresses are those of element 0 in every dimension.
    """

    dims: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def dense(dims: tuple[int, ...]) -> StridedLayout:
        """Returns the layout of an array in row-major order without gaps."""
        strides, size = [0] * len(dims), 1
        for d in reversed(range(len(dims))):
            strides[d] = size
            size *= dims[d]
        return StridedLayout(dims, tuple(strides))

    @property
    def is_dense(self) -> bool:
        """Whether elements lie in row-major order without gaps; strides of dimensions of size 1 do not matter."""
        dense = StridedLayout.dense(self.dims).strides
        return all(n == 1 or a == b for n, a, b in zip(self.dims, self.strides, dense, strict=True))
