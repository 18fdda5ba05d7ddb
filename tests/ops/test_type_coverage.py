"""Every op runs beside XLA with elements of every class that it takes: one table, made from the ops, and exact.

The programs are those of `typed_programs`, where the verifier says which types an op takes; all programs of an op are
compiled together. `type_gaps` lists what cannot be compared; every line of it is tested, and has to go when XLA learns
to do it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hloom.ir.graph.op import OPS
from hloom.ir.types.element_type import ELEMENT_TYPES
from hloom.runtime.simulator import run_devices
from ops.oracle import Array, compared_as, input_kind, mismatch, random_inputs, runs_on_xla
from ops.test_samples import INEXACT, SAMPLES
from ops.together import together
from ops.type_gaps import ALL, GAPS, UNCOMPARED, UNCOMPARED_TYPES, UNTYPED, How
from ops.typed_programs import CLASSES, TEMPLATES, Program, accepted, chosen, one_of_each
from support.xla_attempts import survives
from support.xla_runner import compile_text

CLASS_OF = {element: name for name, elements in CLASSES.items() for element in elements}

# XLA's quick emitters lose NaN and small numbers of f8 types in these ops, or end the process.
NOT_QUICK = INEXACT | {"atan2", "divide", "fusion", "multiply", "tanh"}


def _left_out(opcode: str) -> set[str]:
    return {element for gap in GAPS for code, element in gap.cases() if code == opcode}


def _differences(opcode: str, programs: Sequence[Program]) -> list[str]:
    """Where XLA and we compute different numbers, of two sets of inputs."""
    module = together([p.module for p in programs])
    executable = compile_text(module.to_text(), replicas=module.replica_count, quick=opcode not in NOT_QUICK)
    found: list[str] = []
    for seed in range(2):
        given = [[_inputs(p, 10 * seed + device) for p in programs] for device in range(module.replica_count)]
        theirs = [iter(out) for out in executable.run([[x for part in row for x in part] for row in given])]
        for number, program in enumerate(programs):
            with np.errstate(all="ignore"):
                ours = run_devices(program.module, [row[number] for row in given])
            for values, others in zip(ours, theirs, strict=True):
                wrong = [mismatch(np.asarray(v), next(others), compared_as(program.text, opcode)) for v in values]
                found += [f"{w}\nin\n{program.text}" for w in wrong if w]
    return found


def _inputs(program: Program, seed: int) -> list[Array]:
    shapes = [leaf for p in program.module.entry.parameters for leaf in p.shape.leaves()]
    return random_inputs(shapes, seed, input_kind(program.text))


def test_every_op_is_in_the_table() -> None:
    assert sorted(OPS) == sorted([*TEMPLATES, *UNTYPED, *UNCOMPARED])
    assert all(any(map(runs_on_xla, SAMPLES[opcode])) for opcode in UNTYPED)


def test_every_type_is_in_the_table() -> None:
    assert {e.name for e in ELEMENT_TYPES.values() if e.numpy is not None} == {*CLASS_OF, *UNCOMPARED_TYPES}


@pytest.mark.parametrize("element", UNCOMPARED_TYPES)
def test_has_no_buffers(element: str) -> None:
    pytest.importorskip("jax")
    with pytest.raises(Exception, match="Invalid XLA PrimitiveType"):
        compile_text(f"HloModule m\nENTRY e {{ x = {element}[4] parameter(0) ROOT r = {element}[4] copy(x) }}")


def _check(opcode: str, programs: Mapping[str, Sequence[Program]]) -> None:
    """Compares programs of every class that the op takes and that is no gap."""
    pytest.importorskip("jax")
    taken = accepted(opcode).keys() - _left_out(opcode)
    assert programs.keys() == {name for name, elements in CLASSES.items() if set(elements) & taken}
    found = _differences(opcode, [p for of_class in programs.values() for p in of_class]) if programs else []
    assert not found, "\n".join(found)


@pytest.mark.share(4)
@pytest.mark.parametrize("opcode", TEMPLATES)
def test_agrees_with_xla(opcode: str) -> None:
    """One program of every class."""
    _check(opcode, {name: [program] for name, program in one_of_each(opcode, _left_out(opcode)).items()})


@pytest.mark.slow
@pytest.mark.parametrize("opcode", TEMPLATES)
def test_agrees_with_xla_for_every_type(opcode: str) -> None:
    """Every template for every type, at least two programs of every class."""
    classes = {name: programs for name, programs in chosen(opcode, _left_out(opcode)).items() if programs}
    assert all(len(programs) >= 2 for programs in classes.values())
    _check(opcode, classes)


def test_gaps_are_of_what_ops_take() -> None:
    assert [case for gap in GAPS for case in gap.cases() if case[1] not in accepted(case[0])] == []


def _attempts(how: How) -> list[Any]:
    """The op and the type of every gap of a kind; where the gap is of all types, one of every class will do."""
    found: list[tuple[str, str]] = []
    for gap in GAPS:
        cases = list(gap.cases()) if gap.how is how else []
        if gap.elements == ALL:
            cases = list({(opcode, CLASS_OF[element]): (opcode, element) for opcode, element in cases}.values())
        found += cases
    return [pytest.param(*case, id="-".join(case)) for case in found]


@pytest.mark.share(4)
@pytest.mark.parametrize(("opcode", "element"), _attempts(How.REFUSES))
def test_refuses(opcode: str, element: str) -> None:
    pytest.importorskip("jax")
    module = accepted(opcode)[element][0].module
    with pytest.raises(Exception, match=r"UNIMPLEMENTED|UNKNOWN|INTERNAL|INVALID_ARGUMENT"):
        compile_text(module.to_text(), replicas=module.replica_count)


@pytest.mark.parametrize(("opcode", "element"), _attempts(How.DIES))
def test_dies(opcode: str, element: str) -> None:
    pytest.importorskip("jax")
    program = accepted(opcode)[element][0]
    arguments = [_inputs(program, device) for device in range(program.module.replica_count)]
    assert not survives(program.module.to_text(), arguments)


@pytest.mark.share(4)
@pytest.mark.parametrize(("opcode", "element"), _attempts(How.ERRS))
def test_errs(opcode: str, element: str) -> None:
    pytest.importorskip("jax")
    assert _differences(opcode, accepted(opcode)[element])
