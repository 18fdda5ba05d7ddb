"""What hloom.partition gives back: the module, remarks, warnings and the certificate; and what it takes."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from typing import Any

import hloom
import numpy as np
import pytest

# A factorization needs whole matrices, and their rows are divided.
TEXT = """HloModule m
ENTRY e {
  x = f32[8,8] parameter(0), sharding={mesh['x'=4], [{'x'}, {}]}
  y = f32[8,8] add(x, x)
  ROOT r = f32[8,8] cholesky(y), lower=true, sharding={mesh['x'=4], [{'x'}, {}]}
}
"""


@dataclass(frozen=True)
class Idle(hloom.Pass):
    """Does nothing but say that it ran."""

    name = "idle"

    def run(self, module: hloom.Module, context: hloom.PassContext) -> bool:
        context.diagnostics.warning("idle ran")
        return False


def test_the_result_is_a_module_and_says_what_was_found() -> None:
    local = hloom.partition(hloom.parse(TEXT))
    assert local.module is local
    assert isinstance(local, hloom.Module)
    assert [r.category for r in local.remarks] == ["replication"]
    assert local.warnings == ()
    found = [(r.cause, r.certificate.received_bytes) for r in local.certificate.reshardings]
    assert found[0][0].startswith("operand of cholesky")
    assert sum(received for _, received in found) == local.certificate.received_bytes
    assert local.certificate.received_bytes == sum(c.sent_bytes for c in hloom.collectives(local))
    assert local.certificate.ratio >= 1
    assert local.certificate.machine == "the default machine"
    assert 1 <= local.certificate.time_ratio < 2
    x = np.diag(np.arange(8, dtype=np.float32)) + 1
    for program in (local, copy.copy(local), copy.deepcopy(local), pickle.loads(pickle.dumps(local))):
        (result,) = hloom.simulate(program, [x])
        np.testing.assert_allclose(result @ result.T, x + x, rtol=1e-6)


def test_warnings_of_the_text_and_of_passes() -> None:
    text = TEXT.replace("y = f32[8,8] add(x, x)", "k = f32[8,8] constant(7)\n  y = f32[8,8] add(x, k)")
    local = hloom.partition(hloom.parse(text), passes=(*hloom.PIPELINE, Idle()))
    assert [w.category for w in local.warnings] == ["constant", ""]
    assert local.warnings[1].message == "idle ran"


def test_passes_as_text_and_without_the_partitioner() -> None:
    module = hloom.parse(TEXT)
    names = ",".join(p.name for p in hloom.PIPELINE)
    assert hloom.partition(module, passes=names).to_text() == hloom.partition(module).to_text()
    with pytest.raises(hloom.CompileError, match="leave m sharded, not the program of each device"):
        hloom.partition(module, passes="propagate")
    with pytest.raises(hloom.CompileError, match="pass propagate must come before spmd-partition"):
        hloom.partition(module, passes="spmd-partition,propagate")


@dataclass(frozen=True)
class FreeMemory(hloom.Machine):
    """Sending takes forever, so that work is repeated wherever that saves a collective."""

    received: float

    def collective(self, kind: Any, digits: Any, order: Any = None) -> hloom.Transfer:
        return self.fastest

    def memory(self, count: float) -> float:
        return count

    def work(self, points: float, element: Any) -> float:
        return points

    @property
    def fastest(self) -> hloom.Transfer:
        return hloom.Transfer(0.0, self.received)


def test_the_machine_decides() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[64,64] parameter(0), sharding={mesh['x'=4], [{'x'}, {}]}
  w = f32[64,64] parameter(1), sharding={replicated}
  d = f32[64,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[64,64] sine(d), sharding={replicated}
}"""
    module = hloom.parse(text)
    assert hloom.collectives(hloom.partition(module, machine=FreeMemory(1e9)))[0].cause.startswith("result of")
    # Where sending costs next to nothing, tiles are computed apart and put together at the end, too.
    assert sum(c.sent_bytes for c in hloom.collectives(hloom.partition(module, machine=FreeMemory(1e-9)))) == 12288


def _nothing(*_: object) -> None:
    pass


def _no_number(*_: object) -> float:
    return float("nan")


@pytest.mark.parametrize(
    ("member", "value", "message"),
    [
        ("collective", _nothing, "Odd.collective must be Transfer, found NoneType None; write hloom.Transfer"),
        ("fastest", 3, "Odd.collective must be Transfer, found int 3"),
        ("received", 0.0, "Odd.collective: per_byte must be above 0, found 0.0"),
        ("memory", _nothing, "Odd.memory must be float, found NoneType None; picoseconds, at least 0"),
        ("work", _no_number, "Odd.work must be float, found float nan; picoseconds, at least 0"),
        ("__hash__", None, "Odd must be hashable, since plans are cached by machine"),
    ],
)
def test_a_machine_answers_in_times(member: str, value: object, message: str) -> None:
    odd: type[FreeMemory] = type("Odd", (FreeMemory,), {} if member == "received" else {member: value})
    with pytest.raises(TypeError, match=message):
        hloom.partition(hloom.parse(TEXT), machine=odd(0.0 if member == "received" else 1.0))


def test_a_form_is_overridden_in_one_call_only() -> None:
    def doubled(local: hloom.LocalOp) -> hloom.Instruction:
        x = local.operands[0].instruction
        two = local.emitter.splat(local.emitter.constant(2.0, x.shape.element), x.shape.dims)
        return local.emitter.add("multiply", (x, two))

    module = hloom.parse(TEXT)
    forms = hloom.local_forms().override("add", hloom.LocalForm(doubled))
    changed, plain = hloom.partition(module, forms=forms), hloom.partition(module)
    assert "add" not in {i.opcode for i in changed.entry}
    assert "add" in {i.opcode for i in plain.entry}
    x = np.diag(np.arange(8, dtype=np.float32)) + 1
    (found,), (expected,) = hloom.simulate(changed, [x]), hloom.simulate(plain, [x])
    np.testing.assert_array_equal(found, expected)


def test_the_certificate_is_of_the_machine() -> None:
    """A collective takes its latency at least, in the time and in its bound."""
    local = hloom.partition(hloom.parse(TEXT), machine=hloom.parse_machine("h100"))
    certificate = local.certificate
    assert certificate.machine == "h100"
    moved = [r.certificate for r in certificate.reshardings if r.certificate.bound_bytes]
    assert certificate.bound_seconds >= 14e-6 * len(moved) > 0
    assert certificate.seconds >= certificate.bound_seconds
    assert all(c.seconds >= c.bound_seconds and c.machine == "h100" for c in moved)
