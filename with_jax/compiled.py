"""The stages of a function that Hloom compiles for JAX ahead of time: those of `jax.jit`, with Hloom's programs."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..cost.collectives import Collective, collectives
from ..frontends.extras import imported
from ..ir.diagnostics import Diagnostic
from ..ir.graph.module import Module
from ..passes.result import Partitioned
from . import PURPOSE
from .primitive import program_in
from .program import DeviceProgram


class Traced:
    """A traced function: a `jax.stages.Traced` whose `lower` gives Hloom's program."""

    def __init__(self, traced: Any) -> None:
        self._traced = traced

    def __getattr__(self, name: str) -> Any:
        return getattr(self._traced, name)

    def lower(self, **options: Any) -> Any:
        """Returns the `Lowered` function, or JAX's own of a program that Hloom leaves to XLA: one for several platforms
        or with dimensions that have no numbers. Raises CompileError for programs that Hloom cannot take over.
        """
        stage = self._traced.lower(**options)
        program = program_in(self._traced, stage)
        return stage if program is None else Lowered.of(stage, program)


class Lowered(Module):
    """A function of JAX on arguments of certain shapes: a GLOBAL module, which `compile` partitions for JAX.

    It has the names of `jax.stages.Lowered`, too. Its texts and costs are those of the program before partitioning.
    """

    _stage: Any
    _program: DeviceProgram

    @staticmethod
    def of(stage: Any, program: DeviceProgram) -> Lowered:
        """Wraps a lowering of JAX."""
        result = Lowered(program.module.name, program.module.source)
        result.take(program.module.__copy__())
        result._stage, result._program = stage, program
        return result

    def compile(self, compiler_options: Any = None, **options: Any) -> Compiled:
        """Compiles the program of each device for JAX's devices. Raises CompileError."""
        return Compiled(self._stage.compile(compiler_options, **options), self._program.program)

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """Returns the program before partitioning, as StableHLO or another `dialect`."""
        text: str = self._program.lowered.as_text(dialect, debug_info=debug_info)
        return text

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """Returns the program before partitioning, as an object of MLIR or XLA."""
        return self._program.lowered.compiler_ir(dialect)

    def cost_analysis(self) -> Any:
        """Returns XLA's estimate of the costs of the program before partitioning."""
        return self._program.lowered.cost_analysis()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_stage" not in vars(self):
            raise AttributeError(name)
        return getattr(self._stage, name)


class Compiled:
    """A partitioned program that runs on JAX's devices. Called, it takes and returns what the user's function does.

    It is a `jax.stages.Compiled` with `program`, the program of each device. `in_shardings` and `out_shardings` are
    those of the leaves of arguments and results.
    """

    def __init__(self, stage: Any, program: Partitioned) -> None:
        self._stage, self.program = stage, program

    @property
    def in_shardings(self) -> list[Any]:
        """The shardings of the leaves of the arguments."""
        return imported("jax", PURPOSE).tree.leaves(self._stage.input_shardings)

    @property
    def out_shardings(self) -> list[Any]:
        """The shardings of the leaves of the results."""
        return imported("jax", PURPOSE).tree.leaves(self._stage.output_shardings)

    @cached_property
    def collectives(self) -> list[Collective]:
        """The collectives of the program, with the user's lines."""
        return collectives(self.program)

    @property
    def remarks(self) -> tuple[Diagnostic, ...]:
        """The remarks of partitioning on avoidable costs, with figures."""
        return self.program.remarks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program; static arguments are left out. Raises TypeError for arguments of another structure."""
        return self._stage(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)
