"""The calling convention of machine code: loop kernels, products and their callers."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.types.literal import Array


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

    @staticmethod
    def of(x: Array) -> StridedLayout | None:
        """Returns the layout of an array; None if machine code cannot read it: it is not aligned, or a stride is no
        multiple of the size of elements.
        """
        steps = [divmod(stride, x.itemsize) for stride in x.strides]
        is_whole = x.flags.aligned and not any(rest for _, rest in steps)
        return StridedLayout(x.shape, tuple(step for step, _ in steps)) if is_whole else None

    @property
    def is_dense(self) -> bool:
        """Whether elements lie in row-major order without gaps; strides of dimensions of size 1 do not matter."""
        dense = StridedLayout.dense(self.dims).strides
        return all(n == 1 or a == b for n, a, b in zip(self.dims, self.strides, dense, strict=True))
