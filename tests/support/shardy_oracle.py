"""Shardy as an outside oracle: its propagation on the very program that Hloom propagates.

XLA runs Shardy on HLO that it turns into StableHLO for the purpose; so does this. A program is first brought to the
form in which Hloom propagates it (calls inlined, loops without broadcasts and dead state, dead code gone), each
instruction gets its own name as `op_name`, and jaxlib's MLIR carries those names as locations through
`sdy-propagation-pipeline`. Afterwards every op with a location that is an instruction's name tells that instruction's
sharding, whatever passes inserted or merged around it.

jaxlib registers the import of Shardy's attributes but not that of its custom calls, so `_import_calls` makes sharding
constraints and manual computations of them. Needs jax; call `pytest.importorskip("jax")` first.
"""

# MLIR's Python bindings leave most types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import hloom
from hloom.frontends.hlo_text.shardings import parse_shardy
from hloom.ir.graph.instruction import Metadata
from hloom.ir.graph.module import Module
from hloom.ir.sharding.mesh import Mesh
from hloom.ir.sharding.sharding import Sharding
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.cleanup.dce import DeadCodeElimination
from hloom.passes.cleanup.dead_loop_state import DeadLoopState
from hloom.passes.cleanup.inline import CallInliner
from hloom.passes.cleanup.sink_broadcasts import SinkBroadcasts
from hloom.passes.cleanup.synchronous import Synchronous

IMPORT = "builtin.module(xla-sdy-round-trip-import-shardy-attrs)"
PIPELINE = "builtin.module(sdy-propagation-pipeline)"
CONTROL = frozenset({"func.func", "stablehlo.while", "stablehlo.case", "stablehlo.if"})  # regions that hold values


def prepare(text: str) -> tuple[Module, dict[str, str]]:
    """The program as both sides get it, each instruction named in its metadata, and the op_names it had."""
    module = hloom.parse(text)
    passes = Synchronous(), CallInliner(), SinkBroadcasts(), DeadLoopState(), DeadCodeElimination()
    run_pipeline(passes, module, PassContext())
    module = hloom.parse(module.to_text())  # names are unique in the module now
    op_names: dict[str, str] = {}
    for computation in module:
        for instruction in computation:
            op_names[instruction.name] = instruction.metadata.op_name if instruction.metadata else ""
            instruction.metadata = Metadata.named(instruction.name)
    return module, op_names


def propagate(module: Module) -> dict[str, list[Sharding | None]]:
    """Per instruction of a module from `prepare`, the shardings of its array leaves as Shardy leaves them.

    None is a value without a sharding, which is replicated. Instructions of which no op is left are missing.
    """
    with context():
        mlir = to_stablehlo(module)
        run(PIPELINE, mlir)
        return dict(_results(mlir, module))


def to_stablehlo(module: Module) -> Any:
    """The program as an MLIR module with Shardy's attributes and ops; call it inside an MLIR context."""
    hlo: Any = importlib.import_module("jaxlib._hlo")
    xla: Any = importlib.import_module("jaxlib._jax")
    ir: Any = importlib.import_module("jaxlib.mlir.ir")
    parsed = hlo.hlo_module_from_text(module.to_text())
    mlir = ir.Module.parse(xla.mlir.hlo_to_stablehlo(parsed.as_serialized_hlo_module_proto()))
    run(IMPORT, mlir)
    _import_calls(mlir)
    return mlir


def run(pipeline: str, mlir: Any) -> None:
    """Runs an MLIR pass pipeline in place."""
    importlib.import_module("jaxlib.mlir.passmanager").PassManager.parse(pipeline).run(mlir.operation)


def context() -> Any:
    """An MLIR context with the dialects that JAX uses."""
    return importlib.import_module("jax._src.interpreters.mlir").make_ir_context()


# -- Shardy's custom calls


def _import_calls(mlir: Any) -> None:
    """Shardy's custom calls become ops of its dialect; `mhlo.topk` the custom call that Shardy has a rule for."""
    ir: Any = importlib.import_module("jaxlib.mlir.ir")
    for op in list(_ops(mlir)):
        if op.name == "mhlo.topk":
            _replace(op, "stablehlo.custom_call", {"call_target_name": ir.StringAttr.get("mhlo.topk")})
            continue
        target = _target(op)
        if target == "Sharding":
            per_value = _sdy().TensorShardingPerValueAttr(op.attributes["sdy.sharding"])
            _replace(op, "sdy.sharding_constraint", {"sharding": per_value.shardings[0]})
        elif target == "xla.sdy.LocalToGlobalShape":
            _import_manual(op)


def _replace(op: Any, name: str, attributes: Mapping[str, Any]) -> None:
    ir: Any = importlib.import_module("jaxlib.mlir.ir")
    made = ir.Operation.create(
        name, [r.type for r in op.results], list(op.operands), dict(attributes),
        loc=op.location, ip=ir.InsertionPoint(op))  # fmt: skip
    for old, new in zip(op.results, made.results, strict=True):
        old.replace_all_uses_with(new)
    op.erase()


def _import_manual(end: Any) -> None:
    """Moves what lies between GlobalToLocalShape and LocalToGlobalShape into an `sdy.manual_computation`."""
    ir: Any = importlib.import_module("jaxlib.mlir.ir")
    body, start = _between(end)
    entering, leaving = _elements(start), _elements(end)
    attributes = {key: _frontend(op, f"xla.sdy.{key}") for key, op in
                  (("in_shardings", start), ("out_shardings", end), ("manual_axes", end))}  # fmt: skip
    made = ir.Operation.create(
        "sdy.manual_computation", [r.type for r in leaving], list(start.operands), attributes,
        regions=1, loc=end.location, ip=ir.InsertionPoint(end))  # fmt: skip
    block = made.regions[0].blocks.append(*[r.type for r in entering], arg_locs=[start.location] * len(entering))
    for op in body:
        block.append(op)
    with ir.InsertionPoint(block):
        ir.Operation.create("sdy.return", [], list(end.operands), loc=end.location)
    for old, new in zip((*entering, *leaving), (*block.arguments, *made.results), strict=True):
        old.replace_all_uses_with(new)
    for op in (*(r.owner for r in (*entering, *leaving) if r.owner not in (start, end)), end, start):
        op.erase()


def _elements(op: Any) -> list[Any]:
    """The arrays of the result: those of a tuple are the results of its get-tuple-elements."""
    if not str(op.results[0].type).startswith("tuple"):
        return list(op.results)
    users = [use.owner for use in op.results[0].uses]
    return [u.results[0] for u in sorted(users, key=lambda u: u.attributes["index"].value)]


def _between(end: Any) -> tuple[list[Any], Any]:
    """The ops, in order, that the end of a manual computation needs from its start on, and the start."""
    needed: set[Any] = set()
    starts: set[Any] = set()
    todo = [o.owner for o in end.operands]
    while todo:
        op = todo.pop()
        if op in needed or op in starts:
            continue
        if _target(op) == "xla.sdy.GlobalToLocalShape":
            starts.add(op)
            continue
        needed.add(op)
        todo += [o.owner for inner in _within(op) for o in inner.operands if not _is_block(o.owner)]
    if len(starts) != 1:
        raise ValueError(f"a manual computation with {len(starts)} starts")
    unpacking = {use.owner for start in starts for use in start.results[0].uses
                 if use.owner.name == "stablehlo.get_tuple_element"}  # fmt: skip
    operations = [op.operation for op in end.operation.block.operations]
    return [op for op in operations if op in needed - unpacking], starts.pop()


def _target(op: Any) -> str | None:
    """The target, if the op is a custom call."""
    return op.attributes["call_target_name"].value if op.name == "stablehlo.custom_call" else None


def _is_block(owner: Any) -> bool:
    return not hasattr(owner, "attributes")


def _frontend(op: Any, key: str) -> Any:
    ir: Any = importlib.import_module("jaxlib.mlir.ir")
    return ir.Attribute.parse(op.attributes["mhlo.frontend_attributes"][key].value)


def _sdy() -> Any:
    return importlib.import_module("jaxlib.mlir.dialects.sdy")


# -- reading the result


def _ops(mlir: Any) -> Iterator[Any]:
    for op in mlir.body.operations:
        yield from _within(op.operation)


def _within(op: Any, regions_of: frozenset[str] | None = None) -> Iterator[Any]:
    """The op and those inside; with `regions_of`, only inside ops of these names."""
    yield op
    for region in op.regions if regions_of is None or op.name in regions_of else ():
        for block in region.blocks:
            for inner in list(block.operations):
                yield from _within(inner.operation, regions_of)


def _results(mlir: Any, module: Module) -> Iterator[tuple[str, list[Sharding | None]]]:
    constraints = {i.name for c in module for i in c if i.opcode == "custom-call"}
    main = next(op for op in mlir.body.operations if op.operation.name == "func.func" and op.name.value == "main")
    parameters = sorted(module.entry.parameters, key=lambda p: getattr(p.attributes, "number"))  # noqa: B009
    for index, parameter in enumerate(parameters):
        attributes = main.arg_attrs[index]
        found = attributes["sdy.sharding"] if _has(attributes, "sdy.sharding") else None
        yield parameter.name, [_sharding(str(found), module.meshes) if found is not None else None]
    for op in _within(main.operation, CONTROL):
        name = _location_name(op)
        if name is None or not op.results or (op.name == "sdy.reshard" and name not in constraints):
            continue
        if op.name == "sdy.reshard":
            yield name, [_sharding(str(op.attributes["sharding"]), module.meshes)]
        elif op.name == "sdy.manual_computation":
            yield name, _per_value(op.attributes["out_shardings"], module.meshes)
        elif _has(op.attributes, "sdy.sharding"):
            yield name, _per_value(op.attributes["sdy.sharding"], module.meshes)
        else:
            yield name, [None] * len(op.results)


def _has(attributes: Any, key: str) -> bool:
    return key in attributes  # MLIR dictionaries have no `get`


def _location_name(op: Any) -> str | None:
    match = re.match(r'loc\("([^"]+)"', str(op.location))
    return match[1] if match else None


def _per_value(attribute: Any, meshes: Mapping[str, Mesh]) -> list[Sharding | None]:
    found, _ = parse_shardy(str(attribute), meshes)
    return list(found)


def _sharding(text: str, meshes: Mapping[str, Mesh]) -> Sharding:
    return parse_shardy(text, meshes)[0][0]
