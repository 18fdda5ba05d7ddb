"""Machine code of kernels, compiled once per text in a process, and once per machine with a cache.

Calls of functions are first replaced by their expansions, which are written in the loop IR (see `functions`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from .builder import Builder
from .compile_llvm import Loaded, kept_code
from .functions import EXPANSIONS
from .llvm_text import llvm_text
from .loops import Do, Fold, Kernel, Nest, Node, Row, Store
from .lower import LoweredKernel
from .step import NativeStep


def native(kernel: Kernel) -> Loaded:
    """Returns the machine code of a kernel. Raises ImportError without llvmlite."""
    return _compiled(llvm_text(expand(kernel)))


def forget() -> None:
    """Forgets the machine code of this process; the cache on disk stays."""
    _compiled.cache_clear()


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Loaded:
    return Loaded(kept_code(text))


def step_of(lowered: LoweredKernel) -> NativeStep:
    """Compiles a kernel. Raises ImportError without llvmlite."""
    code = native(lowered.kernel)
    lanes = lowered.kernel.buffers[len(lowered.parameters) + len(lowered.results) :]
    scratch = tuple(size * lane.bits // 8 for size, lane in zip(lowered.scratch, lanes, strict=True))
    return NativeStep(code.address, scratch, (), code)


def expand(kernel: Kernel) -> Kernel:
    """Returns a kernel without calls. Raises KeyError for a function without an expansion for its type."""
    return Kernel(kernel.buffers, tuple(_nest(nest) for nest in kernel.nests))


def _nest(nest: Nest) -> Nest:
    builder = Builder(len(nest.rows))
    known: dict[Node, Node] = {}

    def made(nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            operands = [known[o] for o in node.operands]
            if node.do is Do.CALL:
                expansion: Callable[..., Node] = EXPANSIONS[node.data, node.lane]
                known[node] = expansion(builder, *operands)
            else:
                known[node] = builder.make(node.do, node.lane, *operands, data=node.data, varying=not node.uniform)

    def store(store: Store) -> None:
        at = known[store.at] if store.at is not None else None
        builder.store(store.access, known[store.value], store.do, store.identity, at)

    for step in nest.steps:
        made(step.nodes)
        for each in step.stores:
            store(each)
        if isinstance(step, Row):
            builder.end_row()
            continue
        results: list[tuple[Fold, Node]] = [(f, builder.fold(f.do, f.identity, known[f.value])) for f in step.folds]
        known.update((fold.result, result) for fold, result in results)
        builder.end_strip()
    return builder.finish(nest.rows, nest.columns, nest.unroll)
