"""Compiles a computation into a plan: a flat list of steps over numbered buffers.

Compiling resolves once what does not change between runs. Tuples become groups of buffers (`tuple` and
`get-tuple-element` cost nothing at run time), operands become buffer numbers, ops become closures over their shapes,
and the last reader of a buffer frees it. A computation with one call site is inlined; others become plans of their own.
A collective starts at its place and is waited for just before its first use. Ops that only move elements of its result
(views, mostly) are no use: they run when somebody reads what they give.

Assumption: operands come before their users, and a computation does not call itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from ...ir.brief import brief
from ...ir.diagnostics import Diagnostic, Severity
from ...ir.graph.attributes import Callee
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import DeviceNumber, Draws, PassesOn, sources_of
from ...ir.graph.module import Module
from ...ir.graph.op import Kernel, NotEvaluable, Role, ShapeError, Value
from ...ir.graph.update import UpdatingKernel
from ...ir.ops.async_ops import blank
from ...ir.ops.control import Call, Conditional, Fusion, While
from ...ir.ops.starts import Starts
from ...ir.reached import followers_first
from ...ir.time_limit import check_time
from ...ir.tools.process_grid import ProcessGrid
from ...ir.tools.spmd import RegionBoundary, is_region_boundary, region_boundaries
from ...ir.types.shape import Shape
from ..fabric.collective import GridCollective
from .call_graph import count_call_sites, device_dependent, in_branches, live_instructions, with_effects
from .embedded import embedded_kernel
from .interpreter import Step, StepPlan, find_last_uses
from .kernels import GROUPS, NUMPY, KernelProvider, zero_of
from .regions import ShardStep, join
from .steps import (
    CallStep,
    ComputeStep,
    ConditionalStep,
    DeviceIdStep,
    RngStep,
    StartStep,
    Tree,
    TupleComputeStep,
    WaitStep,
    WhileStep,
    tree_leaves,
)
from .updates import UpdateStep

FOLDED_BYTES = 1 << 16  # results of ops without operands up to this size are computed once, at compile time

# The kernels of these ops work on trees of buffers as on values.
_CALLS = (Role.CALL, Role.FUSION)


class Compilation:
    """Compiles the plans of one module on one process grid, each once. `collectives` lists all collectives in order,
    `refused` the errors of ops that have no kernel and will be executed.
    """

    def __init__(self, module: Module, grid: ProcessGrid, kernels: KernelProvider = NUMPY) -> None:
        self.module = module
        self.grid = grid
        self.kernels = kernels
        self.collectives: list[GridCollective] = []
        self.refused: list[Diagnostic] = []
        self._optional = in_branches(module)
        self._plans: dict[Computation, StepPlan] = {}
        self._kernels: dict[Computation, Kernel] = {}
        self._groups: dict[Instruction, Kernel | None] = {}
        self._device_dependent = device_dependent(module)
        self._call_sites = count_call_sites(module)
        self.effects = with_effects(module)

    def plan(self, computation: Computation) -> StepPlan:
        """Returns the plan of a computation. Raises CompileError for collectives that do not fit the grid."""
        if computation not in self._plans:
            for callee in followers_first([computation], self._called):
                if callee not in self._plans and (callee is computation or not self.is_inlined(callee)):
                    self._plans[callee] = _Builder(self, callee).build()
        return self._plans[computation]

    def kernel(self, callee: Callee) -> Kernel:
        """Returns a computation as a function on values, for ops that apply one to elements (reduce, sort, ..)."""
        assert isinstance(callee, Computation)
        if callee not in self._kernels:
            self._kernels[callee] = embedded_kernel(self.plan(callee), callee, self.grid)
        return self._kernels[callee]

    def kernel_of(self, instruction: Instruction) -> Kernel | None:
        """Returns the kernel of an instruction; None for a group whose ops have kernels of their own. A missing kernel
        is refused, inside a branch only when it is executed.
        """
        try:
            kernel = self.kernels.kernel(instruction, self.kernel)
            return NUMPY.kernel(instruction, self.kernel) if kernel is None else kernel
        except (NotEvaluable, ShapeError) as error:
            self.refuse(instruction, error)
            message, help = error.message, error.help

        def report(*_: Value) -> NoReturn:
            raise NotEvaluable(message, help)

        return report

    def group(self, instruction: Instruction) -> Kernel | None:
        """Returns one kernel for an instruction with all that it calls, if the provider takes them together."""
        if instruction not in self._groups:
            can_be = instruction.op.role in GROUPS and self._device_dependent.isdisjoint(instruction.called())
            self._groups[instruction] = self.kernel_of(instruction) if can_be else None
        return self._groups[instruction]

    def forget(self) -> None:
        """Drops the plans, which hold kernels: these may hold the compilation, to compile more in the run."""
        self._plans, self._kernels, self._groups = {}, {}, {}

    def _called(self, computation: Computation) -> Iterator[Computation]:
        """Yields the computations that instructions call, except for those that the provider takes as groups."""
        return (callee for i in computation if i.called() and self.group(i) is None for callee in i.called())

    def refuse(self, instruction: Instruction, error: NotEvaluable | ShapeError) -> None:
        """Records an op without a kernel. In a branch that may not run it is not an error, unless it has an effect."""
        acts = instruction.op.has_side_effect(instruction.attributes)
        if acts or instruction.parent not in self._optional:
            message = f"{instruction.opcode} {instruction.name}: {error.message}"
            self.refused.append(Diagnostic(Severity.ERROR, message, instruction.location, error.help))

    def is_inlined(self, computation: Computation) -> bool:
        """Returns whether the only use of the computation is one call."""
        return self._call_sites.get(computation, 0) == 1


@brief
@dataclass
class _Scope:
    """A computation that is being compiled: the values so far, and the call that it is inlined for."""

    computation: Computation
    rest: Iterator[Instruction]
    values: dict[Instruction, Tree]
    call: Instruction | None = None


class _Builder:
    """Compiles the plan of one computation."""

    def __init__(self, owner: Compilation, computation: Computation) -> None:
        self.owner = owner
        self.computation = computation
        self.plan = StepPlan(computation)
        self.constants: set[int] = set()
        self.pending: dict[int, WaitStep] = {}  # buffers that a started collective will fill
        self.moves: dict[int, Step] = {}  # buffers to be filled with elements of those

    def build(self) -> StepPlan:
        parameters = [self.new_tree(p.shape) for p in self.computation.parameters]
        self.plan.parameters = tuple(i for tree in parameters for i in tree_leaves(tree))
        self.plan.results = tuple(tree_leaves(self.walk(parameters)))
        for buffer in self.plan.results:
            if buffer in self.moves:
                self.arrive(buffer)
        for wait in list(dict.fromkeys(self.pending.values())):
            self.plan.steps.append(wait)
        find_last_uses(self.plan)
        return self.plan

    def scope(self, computation: Computation, arguments: list[Tree], call: Instruction | None) -> _Scope:
        """Returns the start of a walk through a computation."""
        values = dict(zip(computation.parameters, arguments, strict=True))
        return _Scope(computation, iter(live_instructions(computation, self.owner.effects)), values, call)

    def walk(self, arguments: list[Tree]) -> Tree:
        """Emits the steps of the computation and of those inlined into it; returns the tree of the root."""
        scopes = [self.scope(self.computation, arguments, None)]
        while True:
            check_time()
            scope = scopes[-1]
            instruction = next(scope.rest, None)
            if instruction is None:
                result = scope.values[scope.computation.root]
                scopes.pop()
                if not scopes:
                    return result
                assert scope.call is not None
                scopes[-1].values[scope.call] = result
            elif instruction not in scope.values:
                operands = [scope.values[o] for o in instruction.operands]
                callee = instruction.called()[0] if instruction.op.role in _CALLS else None
                if callee is not None and self.owner.is_inlined(callee) and self.owner.group(instruction) is None:
                    scopes.append(self.scope(callee, operands, instruction))
                else:
                    scope.values[instruction] = self.emit(instruction, operands)

    def emit(self, instruction: Instruction, operands: list[Tree]) -> Tree:
        """Emits the steps of one instruction and returns the tree of its value."""
        op = instruction.op
        if op.interface(PassesOn):
            return op.kernel(instruction.call, self.owner.kernel)(*operands)
        if (start := op.interface(Starts)) is not None:
            return self.emit_start(start, instruction, operands)
        if op.is_collective:
            collective = GridCollective.of(instruction, self.owner.grid, self.owner.kernel)
            result = self.new_tree(instruction.shape)
            self.emit_collective(collective, [i for tree in operands for i in tree_leaves(tree)], tree_leaves(result))
            return result
        if is_region_boundary(instruction):
            return self.emit_border(instruction, operands)
        if op.interface(DeviceNumber):
            result = self.new_tree(instruction.shape)
            self.push(DeviceIdStep(instruction, (), tree_leaves(result)))
            return result
        is_group = op.role in GROUPS
        kernel = self.owner.group(instruction) if is_group else self.owner.kernel_of(instruction)
        if kernel is None:
            return next(emit for kind, emit in _CONTROL.items() if isinstance(op, kind))(self, instruction, operands)
        result = self.new_tree(instruction.shape)
        if op.interface(Draws):
            self.push(RngStep(instruction, kernel, operands, result))
        else:
            self.emit_compute(instruction, kernel, operands, result)
        return result

    def emit_compute(self, instruction: Instruction, kernel: Kernel, operands: list[Tree], result: Tree) -> None:
        if not operands and self.fold(instruction, kernel, result):
            return
        if isinstance(result, int) and all(isinstance(o, int) for o in operands):
            if isinstance(kernel, UpdatingKernel):
                self.push(UpdateStep(instruction, kernel, operands, result))
            elif len(operands) == 1 and self.is_coming(operands[0]) and sources_of(instruction):
                self.moves[result] = ComputeStep(instruction, kernel, operands, result)
            else:
                self.push(ComputeStep(instruction, kernel, operands, result))
        else:
            self.push(TupleComputeStep(instruction, kernel, operands, tree_leaves(result)))

    def fold(self, instruction: Instruction, kernel: Kernel, result: Tree) -> bool:
        """Computes an op without operands now, if it always returns the same small array."""
        shape, op = instruction.shape, instruction.op
        if not isinstance(result, int) or shape.byte_size > FOLDED_BYTES or op.has_side_effect(instruction.attributes):
            return False
        try:
            self.plan.template[result] = kernel()
        except NotEvaluable:
            return False  # reported if it is executed
        self.plan.folded[result] = instruction
        self.constants.add(result)
        return True

    def emit_collective(self, collective: GridCollective, reads: list[int], writes: list[int]) -> None:
        self.owner.collectives.append(collective)
        handle = self.new_buffer()
        self.push(StartStep(collective.instruction, collective, reads, handle))
        wait = WaitStep(collective.instruction, [handle], writes)
        for buffer in wait.writes:
            self.pending[buffer] = wait

    def emit_border(self, instruction: Instruction, operands: list[Tree]) -> Tree:
        borders = region_boundaries(instruction, self.owner.grid.partitions)
        crossed = [self.cross(instruction, b, tree) for b, tree in zip(borders, operands, strict=True)]
        return tuple(crossed) if instruction.shape.is_tuple else crossed[0]

    def cross(self, instruction: Instruction, border: RegionBoundary | None, value: int) -> int:
        """Emits the steps that move one array into or out of a manual region; returns the buffer of the result."""
        if border is None or not border.tiling.used():
            return value
        result = self.new_buffer()
        if border.leaves_region:
            add = partial(self.owner.kernels.add, border.whole.element)
            self.emit_collective(join(instruction, border, self.owner.grid, add), [value], [result])
        else:
            zero = zero_of(self.owner.kernels, border.whole.element)
            self.push(ShardStep(instruction, border, self.owner.grid.partitions, value, result, zero))
        return result

    def emit_start(self, op: Starts, instruction: Instruction, operands: list[Tree]) -> Tree:
        """Emits the op that a start begins; a collective is then waited for at the first use of the done."""
        form, (wrapped, attributes) = op.form_of(instruction.shape), op.unwrap(instruction.attributes)
        shape, location = form.result_of(instruction.shape), instruction.location
        inner = Instruction(instruction.name, wrapped, instruction.operands, attributes, shape, location)
        inner.backend_config, inner.parent = instruction.backend_config, instruction.parent
        contexts = [self.constant_tree(blank(s)) for s in form.contexts_of(instruction.shape)]
        return op.arrange(instruction.call, operands, self.emit(inner, operands), contexts, tuple)

    def constant_tree(self, value: Value) -> Tree:
        """Allocates buffers that hold a value from the start."""
        if isinstance(value, tuple):
            return tuple(self.constant_tree(v) for v in value)  # pyright: ignore[reportUnknownVariableType]
        buffer = self.new_buffer()
        self.plan.template[buffer] = value
        self.constants.add(buffer)
        return buffer

    def emit_call(self, instruction: Instruction, operands: list[Tree]) -> Tree:
        result = self.new_tree(instruction.shape)
        callee = self.owner.plan(instruction.called()[0])
        self.push(CallStep(instruction, callee, tree_leaves(tuple(operands)), tree_leaves(result)))
        return result

    def emit_while(self, instruction: Instruction, operands: list[Tree]) -> Tree:
        result = self.new_tree(instruction.shape)
        condition, body = (self.owner.plan(c) for c in instruction.called())
        self.push(WhileStep(instruction, condition, body, tree_leaves(operands[0]), tree_leaves(result)))
        return result

    def emit_conditional(self, instruction: Instruction, operands: list[Tree]) -> Tree:
        result = self.new_tree(instruction.shape)
        reads, slices = tree_leaves(operands[0]), list[slice]()
        for tree in operands[1:]:
            leaves = tree_leaves(tree)
            slices.append(slice(len(reads), len(reads) + len(leaves)))
            reads += leaves
        branches = [self.owner.plan(c) for c in instruction.attributes.branches]  # pyright: ignore
        self.push(ConditionalStep(instruction, branches, reads, slices, tree_leaves(result)))
        return result

    def push(self, step: Step) -> None:
        """Appends a step, after the waits for its operands."""
        for buffer in step.reads:
            self.arrive(buffer)
        self.plan.steps.append(step)

    def is_coming(self, buffer: int) -> bool:
        """Whether a buffer waits for a collective."""
        return buffer in self.pending or buffer in self.moves

    def arrive(self, buffer: int) -> None:
        """Appends the step that fills a buffer which waits for a collective."""
        move = self.moves.pop(buffer, None)
        if move is not None:
            self.push(move)
        wait = self.pending.get(buffer)
        if wait is not None:
            self.plan.steps.append(wait)
            for written in wait.writes:
                del self.pending[written]

    def new_buffer(self) -> int:
        self.plan.template.append(None)
        return len(self.plan.template) - 1

    def new_tree(self, shape: Shape) -> Tree:
        """Allocates buffers for the leaves of a value."""
        return tuple(map(self.new_tree, shape.elements)) if shape.is_tuple else self.new_buffer()


_Emit = Callable[[_Builder, Instruction, list[Tree]], Tree]
_CONTROL: dict[type[Any], _Emit] = {
    Call: _Builder.emit_call,
    Fusion: _Builder.emit_call,
    While: _Builder.emit_while,
    Conditional: _Builder.emit_conditional,
}
