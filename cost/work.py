"""The contractions of a program: their multiply-adds, their executions, and the number of devices that repeat them.

Kernels that say what they compute, and solvers of triangular systems, count with them (`Multiplies`). Other ops are
counted by the bytes that they read and write, which dominate their time. The program may be Hloom's or one compiled and
printed by XLA; contractions inside of fusions count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..ir.checked_call import checked
from ..ir.graph.algebra import Algebra
from ..ir.graph.instruction import Instruction
from ..ir.graph.interfaces import Multiplies, products_of
from ..ir.graph.module import Module
from ..ir.graph.op import AnyOp, OpCall
from ..ir.graph.stack_frames import source_line
from ..ir.types.element_type import ElementType
from .runs import Execution, runs
from .uses import algebra, may_be

REPEATED = "hloom.repeated"  # frontend attribute of a contraction: the number of devices that compute the same


@dataclass(frozen=True, slots=True)
class Contraction:
    """One instruction that sums products, or is known to compute as many. `multiply_adds` are those of one execution on
    one device.

    `alike` devices compute the same in a program that Hloom partitioned; 1 if it is not known. `count` is the number of
    executions, including known trip counts of loops; `exact` is False if an unknown trip count was taken as 1.
    """

    opcode: str
    name: str
    multiply_adds: int
    count: int
    alike: int = 1
    op_name: str = ""
    source: str = ""
    exact: bool = True

    @property
    def work(self) -> int:
        """The multiply-adds of one device in all executions."""
        return self.multiply_adds * self.count

    @property
    def repeated_work(self) -> int:
        """The part of `work` that no device would do if the devices that compute the same divided it."""
        return self.work - self.work // self.alike


@checked
def contractions(module: Module) -> list[Contraction]:
    """Returns all contractions that the entry reaches, in program order."""
    return [_record(run) for run in runs(module, fused=True, having=may_compute) if computes(run.instruction)]


def is_contraction(instruction: Instruction) -> bool:
    """Whether an instruction sums products, so that its arithmetic may cost more than its memory traffic."""
    return algebra(instruction) is Algebra.BILINEAR


def may_compute(op: AnyOp) -> bool:
    """Whether uses of an op may be contractions, or known to compute as much as one."""
    return may_be(op, Algebra.BILINEAR) or op.interface(Multiplies) is not None


def computes(instruction: Instruction) -> bool:
    """Whether an instruction is a contraction, or is known to compute as much as one."""
    return is_contraction(instruction) or products_of(instruction) is not None


def multiply_adds(instruction: Instruction) -> int:
    """Returns the multiply-adds of one execution of an instruction that computes: of a contraction the points of its
    index space.
    """
    known = None if is_contraction(instruction) else products_of(instruction)
    return _points(instruction.op, instruction.call) if known is None else known.multiply_adds


def element_of(instruction: Instruction) -> ElementType:
    """Returns the type in which an instruction computes products: of a contraction that of its first operand, else that
    of its largest operand, or result if it has no operands.
    """
    if is_contraction(instruction):
        return instruction.operands[0].shape.element
    given = [s for o in instruction.operands for s in o.shape.leaves()]
    return max(given or instruction.shape.leaves(), key=lambda s: s.byte_size).element


@lru_cache(maxsize=4096)
def _points(op: AnyOp, call: OpCall[Any]) -> int:
    return math.prod(factor.size for factor in op.sharding_rule(call).factors)


def _record(run: Execution) -> Contraction:
    instruction = run.instruction
    alike = str(instruction.frontend_attributes.get(REPEATED, "1")).strip('"')
    op_name = instruction.metadata.op_name if instruction.metadata else ""
    return Contraction(
        instruction.opcode, instruction.name, multiply_adds(instruction), run.count,
        int(alike) if alike.isdigit() and int(alike) else 1, op_name, source_line(instruction), run.exact,
    )  # fmt: skip
