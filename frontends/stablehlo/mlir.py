"""Converts between HLO and StableHLO by jaxlib's MLIR. Only this file uses private parts of jaxlib.

Versions are checked by `extras.imported`; a part that has moved is an error that says so.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from ...ir.diagnostics import CompileError, Diagnostic, Location, Severity, SourceFile, fail
from ..extras import imported

PURPOSE = "to read and write StableHLO"
_PORTABLE = b"StableHLO_v"  # the producer of an artifact whose format is stable among versions
_SHARDINGS = ("sdy.sharding", "mhlo.sharding")
_TEXT = "-"  # MLIR's name of a text that it reads
_MESSAGE = re.compile(r"^-:(\d+):(\d+): (error|note): (.*)$", re.MULTILINE)


Place = tuple[int, int]
"""Line and column, both from 1."""


class Converted(NamedTuple):
    """HLO made of a program in StableHLO, and facts about the program that HLO does not keep."""

    proto: bytes  # a serialized HloModuleProto
    partitions: int
    free_results: frozenset[int]
    parameters: tuple[Place | None, ...]  # in the text, if it is read from text


def to_hlo(program: str | bytes, name: str) -> Converted:
    """Converts a program in StableHLO: text, MLIR bytecode or a portable artifact. Raises CompileError; for text each
    error has its place.
    """
    jaxlib = imported("jaxlib._jax", PURPOSE)
    try:
        computation = jaxlib.mlir.mlir_module_to_xla_computation(program, use_tuple_args=False, return_tuple=False)
    except RuntimeError as error:
        _fail(str(error), program, name)
    data: bytes = computation.as_serialized_hlo_module_proto()
    module = _parsed(program)
    attributes = module.operation.attributes
    partitions = int(attributes["mhlo.num_partitions"]) if "mhlo.num_partitions" in attributes else 1
    return Converted(data, partitions, free_results(module), _parameters(module))


def _parameters(module: Any) -> tuple[Place | None, ...]:
    with module.context:
        return tuple(_place(argument.location) for argument in _main(module).arguments)


def _place(location: Any) -> Place | None:
    """Returns line and column of a location in the text that was parsed; None for one in another file."""
    is_here = getattr(location, "filename", None) == _TEXT
    return (int(location.start_line), int(location.start_col)) if is_here else None


def free_results(module: Any) -> frozenset[int]:
    """Returns the numbers of the results of `main` for which an MLIR module has no sharding.

    The conversion to HLO makes them `{replicated}` as soon as another result has a sharding.
    """
    with module.context:
        given = _main(module).attributes
        results = list(given["res_attrs"]) if "res_attrs" in given else []
        return frozenset(n for n, result in enumerate(results) if not any(name in result for name in _SHARDINGS))


def _main(module: Any) -> Any:
    return next(f for f in module.body.operations if f.attributes["sym_name"].value == "main")


ArgumentAttributes = Mapping[int, tuple[str, int | None]]
"""Attributes of parameters by number: a name, and a number or nothing."""


def from_hlo(proto: bytes, name: str, counts: Mapping[str, int], of_parameters: ArgumentAttributes) -> Any:
    """Returns the MLIR module of a serialized HloModuleProto.

    `counts` are further attributes of the module, `of_parameters` those of parameters. Raises CompileError if StableHLO
    cannot express the module.
    """
    jaxlib = imported("jaxlib._jax", PURPOSE)
    try:
        # The first leaves ops that StableHLO lacks (erf, topk) in another dialect, the second makes them custom-calls.
        converted: bytes = jaxlib.mlir.mhlo_to_stablehlo(jaxlib.mlir.hlo_to_stablehlo(proto))
    except RuntimeError as error:
        fail(f"{name} has no form in StableHLO: {error}")
    module = _parsed(converted)
    ir = imported("jaxlib.mlir.ir", PURPOSE)
    with module.context:
        number = ir.IntegerType.get_signless(32)
        for key, value in counts.items():
            module.operation.attributes[key] = ir.IntegerAttr.get(number, value)
        main = _main(module)
        attributes = [{a.name: a.attr for a in given} for given in main.arg_attrs]
        for place, (key, value) in of_parameters.items():
            attributes[place][key] = ir.BoolAttr.get(True) if value is None else ir.IntegerAttr.get(number, value)
        main.arg_attrs = [ir.DictAttr.get(given) for given in attributes]
        _keep_algorithms(ir, module)
    return module


def _keep_algorithms(ir: Any, module: Any) -> None:
    """Writes products of matrices and vectors with an algorithm as `dot_general`: jaxlib makes them the shorter `dot`,
    which has none, so that the module could not be serialized.
    """
    found: list[Any] = []

    def note(operation: Any) -> Any:
        if operation.name == "stablehlo.dot" and "algorithm" in operation.attributes:
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(note)
    for dot in found:
        lhs, rhs = dot.operands
        numbers = f"lhs_contracting_dimensions = [{lhs.type.rank - 1}], rhs_contracting_dimensions = [0]"
        attributes = {name: dot.attributes[name] for name in dot.attributes}
        attributes["dot_dimension_numbers"] = ir.Attribute.parse(f"#stablehlo.dot<{numbers}>")
        new = ir.Operation.create(
            "stablehlo.dot_general", [dot.results[0].type], [lhs, rhs], attributes, loc=dot.location,
            ip=ir.InsertionPoint(dot),
        )  # fmt: skip
        dot.results[0].replace_all_uses_with(new.results[0])
        dot.erase()


def refined(module: Any, name: str) -> bytes | None:
    """Returns a program in which all sizes are known; None if they are already. What JAX exports with symbolic shapes
    has parameters of unknown sizes, which follow from its calls. Raises CompileError.
    """
    ir = imported("jaxlib.mlir.ir", PURPOSE)
    with module.context:
        functions = [f for f in module.body.operations if "function_type" in f.attributes]
        types = [t for f in functions for t in ir.FunctionType(f.attributes["function_type"].value).inputs]
        if all(t.has_static_shape for t in types if isinstance(t, ir.RankedTensorType)):
            return None
    jaxlib, code = imported("jaxlib._jax", PURPOSE), io.BytesIO()
    module.operation.write_bytecode(file=code)
    options = {"enable_shape_assertions": True, "validate_static_shapes": True}
    try:
        found: bytes = jaxlib.mlir.refine_polymorphic_shapes(code.getvalue(), **options)
    except (RuntimeError, ValueError) as error:
        fail(f"{name} has sizes that are not known: {error}")
    return found


def text_of(module: Any) -> str:
    """Prints an MLIR module, with the places that its operations have."""
    text: str = module.operation.get_asm(enable_debug_info=True)
    return text


def portable_artifact(module: Any) -> bytes:
    """Serializes an MLIR module as a portable artifact of the current version of StableHLO."""
    stablehlo = imported("jaxlib.mlir.dialects.stablehlo", PURPOSE)
    data: bytes = stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version())
    return data


def require_readable(proto: bytes, name: str) -> None:
    """Raises CompileError if XLA does not read a serialized HloModuleProto."""
    hlo = imported("jaxlib._hlo", PURPOSE)
    try:
        hlo.XlaComputation(proto).as_hlo_module()
    except (RuntimeError, ValueError) as error:
        fail(f"XLA does not read {name}: {error}")


def _parsed(program: str | bytes) -> Any:
    ir = imported("jaxlib.mlir.ir", PURPOSE)
    registry = ir.DialectRegistry()
    imported("jaxlib.mlir._mlir_libs._jax_mlir_ext", PURPOSE).register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    stablehlo, *others = (imported(f"jaxlib.mlir.dialects.{d}", PURPOSE) for d in ("stablehlo", "chlo", "sdy"))
    for dialect in (stablehlo, *others):
        dialect.register_dialect(context)
    if isinstance(program, bytes) and _PORTABLE in program[:64]:
        return stablehlo.deserialize_portable_artifact(context, program)
    return ir.Module.parse(program, context)


def _fail(message: str, program: str | bytes, name: str) -> NoReturn:
    """Raises the errors that MLIR reports about a program, at their places if it is text."""
    if not isinstance(program, str):
        fail(f"{name} is not a valid StableHLO program: {message.removeprefix('UNKNOWN: ').strip()}")
    source = SourceFile(name, program)
    errors: list[Diagnostic] = []
    for line, column, kind, text in _MESSAGE.findall(message.removeprefix("UNKNOWN: ")):
        found = Diagnostic(Severity(kind), text, place_in(source, int(line), int(column)))
        if kind == "error":
            errors.append(found)
        elif errors and "current operation" not in text:
            last = errors.pop()
            errors.append(Diagnostic(last.severity, last.message, last.location, notes=(*last.notes, found)))
    if errors:
        raise CompileError(errors)
    fail(f"{name} is not a valid StableHLO program: {message}")


def place_in(source: SourceFile, line: int, column: int) -> Location:
    """Returns the location of a line and a column, both from 1, to the end of the line."""
    begin = min(source.offset(line, column), len(source.text))
    end = source.offset(line, 1) + len(source.line_text(line)) if line <= source.lines else begin
    return Location(source, begin, max(end, begin + 1))
