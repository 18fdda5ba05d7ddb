"""Faults planted in scheduled programs, each with what catches it: the reader, the verifier, the deadlock checker, the
proof. A row names the first that does, in this order; those before it have nothing to say.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import hloom
import pytest
from hloom.ir.diagnostics import Severity
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module
from hloom.ir.tools.verifier import verify
from support.schedule_programs import (
    BRANCH,
    LOOP,
    SCAN,
    SCAN_WHOLE,
    SCATTERED_WHOLE,
    SEND,
    STEP,
    STEP_WHOLE,
    SUM,
    SUM_WHOLE,
)


class Fault(NamedTuple):
    """What is wrong, in which program, the text that is edited and what stands there then, who catches it, and words of
    the message. `whole` is the program on one device, for proofs.
    """

    name: str
    program: str
    edits: tuple[tuple[str, str], ...]
    caught_by: str
    says: str
    whole: str = ""


_DROPPED_W = ("  w.2 = f32[6,6] all-gather-done(w.1)\n", "  w.2 = f32[6,6] get-tuple-element(w.1), index=1\n")
_AWAITED = "  s = f32[6] all-reduce-done(s.1)\n"
_AWAITED_V = "  v.2 = f32[6,6] all-gather-done(v.1)\n"
_PERMUTE = "source_target_pairs={{0,1},{1,0},{2,3},{3,2}}"
_RECV = "  recv.1 = (f32[2], token[]) recv-done(recv), channel_id=2\n"
_REDUCED = "  g.1 = f32[6] all-reduce(g.0), channel_id=2, groups={{0,1}}, SUMS\n"
_CONDITION = "  n = s32[] constant(4)\n  ROOT p = pred[] compare(i, n), direction=LT }"
_READS = """  n = s32[] constant(4)
  more = pred[] compare(i, n), direction=LT
  acc = f32[6] get-tuple-element(s), index=1
  one = f32[1] slice(acc), slice={[0:1]}
  first = f32[] reshape(one)
  most = f32[] constant(100)
  small = pred[] compare(first, most), direction=LT
  ROOT p = pred[] and(more, small) }"""
_ADDED = "sum = f32[6] add(acc, g)"
_SCATTERED = SCATTERED_WHOLE[SCATTERED_WHOLE.index("k = s32[1]") : SCATTERED_WHOLE.index("  one = s32[]")].rstrip()
_TAKE = SCATTERED_WHOLE[SCATTERED_WHOLE.index("take {") : SCATTERED_WHOLE.index("condition {")]

FAULTS = [
    # a start and its done
    Fault("a wait dropped, its result read", STEP, (_DROPPED_W,), "verifier", "before it has arrived", STEP_WHOLE),
    Fault("a wait dropped of an all-reduce", STEP, ((_AWAITED, "  s = f32[6] copy(s.1)\n"),), "verifier",
          "before it has arrived"),
    Fault("a start that nobody awaits", STEP,
          ((_AWAITED, "  s = f32[6] copy(s.0)\n"),), "verifier", "is never awaited"),
    Fault("awaited twice", STEP,
          ((_AWAITED, _AWAITED.replace("s =", "s.2 =") + _AWAITED),), "verifier", "is awaited twice"),
    Fault("a done before its start", STEP,
          (("  w.2 = f32[6,6] all-gather-done(w.1)\n", ""),
           ("  w.1 = (f32", "  w.2 = f32[6,6] all-gather-done(w.1)\n  w.1 = (f32")), "reader", "w.1"),
    Fault("a done of another op", STEP, (("all-gather-done(w.1)", "all-reduce-done(w.1)"),), "reader",
          "the operand must be its all-reduce-start"),
    Fault("the done of another start", STEP, (("all-gather-done(w.1)", "all-gather-done(v.1)"),), "verifier",
          "awaited"),
    # groups, channels, pairs
    Fault("a group without a device", STEP, (("channel_id=4, groups={{0,1}}", "channel_id=4, groups={{0}}"),),
          "deadlock", "device 1 is in none of its groups"),
    Fault("a device in two groups", STEP,
          (("channel_id=4, groups={{0,1}}", "channel_id=4, groups={{0,1},{1}}"),), "reader",
          "device 1 is in two groups"),
    Fault("a device that does not exist", STEP,
          (("channel_id=4, groups={{0,1}}", "channel_id=4, groups={{0,2}}"),), "verifier", "device 2"),
    Fault("one channel for two kinds", STEP, (("channel_id=4", "channel_id=2"),), "verifier", "channel 2 belongs to"),
    Fault("one channel for other devices", BRANCH, (("channel_id=4, " + _PERMUTE, "channel_id=3, "
          "source_target_pairs={{0,1},{1,0}}"),), "verifier", "channel 3 belongs to"),
    Fault("a pair with a device that does not exist", STEP, (("{{0,1},{1,0}}", "{{0,1},{1,2}}"),), "verifier",
          "device 2"),
    Fault("two sources of one target", STEP, (("{{0,1},{1,0}}", "{{0,1},{1,1}}"),), "reader", "is a target twice"),
    # control flow
    Fault("a predicate of the device number", BRANCH, (("divide(i, two)", "remainder(i, two)"),), "deadlock warning",
          "cannot show that predicate p of c is the same on devices 0 and 1 of group {0,1}"),
    Fault("a predicate of the device number alone", BRANCH,
          (("divide(i, two)", "remainder(i, two)"), ("and(large, own)", "copy(own)")), "deadlock",
          "device 1 waits for ever for device 0, both of group {0,1}"),
    Fault("a predicate that is not reduced", BRANCH,
          (("m = f32[] all-reduce(m.0), channel_id=1, groups={{0,1},{2,3}}, SUMS",
            "m = f32[] copy(m.0)"), ("and(large, own)", "copy(large)")), "deadlock warning", "predicate p of c"),
    Fault("starts in another order on other devices", BRANCH,
          (("divide(i, two)", "remainder(i, two)"), ("and(large, own)", "copy(own)"),
           ("{{0,1},{2,3}}, SUMS }", "{{0,2},{1,3}}, SUMS }")),
          "deadlock", "waits for ever"),
    Fault("a collective in one branch only", BRANCH,
          (("divide(i, two)", "remainder(i, two)"), ("and(large, own)", "copy(own)"),
           ("  ROOT t = f32[2] all-reduce(s), channel_id=5, groups={{0,1},{2,3}}, SUMS }",
            "  ROOT t = f32[2] copy(s) }")), "deadlock", "waits for ever"),
    Fault("groups across the branches", BRANCH, (("channel_id=2, groups={{0,1},{2,3}}",
          "channel_id=2, groups={{0,2},{1,3}}"),), "deadlock warning", "of group {0,2}"),
    Fault("trips that depend on the device", LOOP, (("divide(i, two)", "copy(i)"),), "deadlock",
          "l runs 5 times on device 0, 4 times on device 1"),
    Fault("trips that depend on data of the device", LOOP,
          (("first = u32[] divide(i, two)", "one = f32[1] slice(x), slice={[0:1]}\n  o = f32[] reshape(one)\n"
            "  first = u32[] convert(o)"),), "deadlock warning", "the number of trips of l"),
    Fault("groups across loops of other lengths", LOOP, (("{{0,1},{2,3}}", "{{0,2},{1,3}}"),), "deadlock",
          "l runs 5 times on device 0, 4 times on device 2"),
    # sends and receives
    Fault("a send that nobody receives", SEND, (("recv(k), channel_id=2", "recv(k), channel_id=3"),), "deadlock",
          "channel 2 has 1 sends and 0 receives"),
    Fault("a receive without end", SEND, ((_RECV, ""), ("get-tuple-element(recv.1)", "get-tuple-element(recv)")),
          "verifier",
          "is never awaited"),
    Fault("a reduction between a receive and its send", SEND,
          ((_RECV, ""), ("  send = ", _RECV + "  s = f32[2] all-reduce(x), channel_id=1, groups={{0,1}}, "
                         "SUMS\n  send = "),
           ("  s = f32[2] all-reduce(x), channel_id=1, groups={{0,1}}, SUMS\n  y",
            "  y")), "deadlock", "recv-done recv.1: device 1 would wait for ever"),
    Fault("other pairs at both ends", SEND,
          (('send(x, k), channel_id=2, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}',
            'send(x, k), channel_id=2, frontend_attributes={_xla_send_recv_source_target_pairs="{{1,0}}"}'),),
          "deadlock", "other pairs of devices"),
    # numbers: the order is fine, the program is not
    Fault("a wrong index before the loop", SCAN, (("first = s32[] constant(0)", "first = s32[] constant(1)"),), "proof",
          "", SCAN_WHOLE),
    Fault("a wrong index in the loop", SCAN, (("dynamic-slice(w, j, zero", "dynamic-slice(w, i, zero"),), "proof", "",
          SCAN_WHOLE),
    Fault("one trip too many", SCAN, (("n = s32[] constant(3)", "n = s32[] constant(4)"),), "proof", "", SCAN_WHOLE),
    Fault("the bucket of this layer, not the next", SCAN, (("tuple(j, y, w, next.1)", "tuple(j, y, w, v)"),), "proof",
          "",
          SCAN_WHOLE),
    Fault("results of a bucket exchanged", STEP,
          (("dot(x, w.2)", "dot(x, v.2)"), ("dot(h, v.2)", "dot(h, w.2)"), ("  h = ", _AWAITED_V + "  h = "),
           (_AWAITED_V + "  y", "  y")), "proof", "", STEP_WHOLE),
    Fault("added before the reduction, once per device", SUM, (("tuple(zero, zeros, x)", "tuple(zero, a, x)"),
          ("add(a, whole)", "copy(whole)")), "proof", "", SUM_WHOLE),
    Fault("an accumulator that the condition reads", SUM, ((_CONDITION, _READS),), "proof", "",
          SUM_WHOLE.replace(_CONDITION, _READS)),
    Fault("an accumulator that a condition around a reduction reads", SUM,
          ((_CONDITION, _READS), ("  g = f32[6] copy(g.0)\n", _REDUCED + "  g = f32[6] copy(g.0)\n"),
           ("f32[6] add(a, whole)", "f32[6] copy(whole)")), "deadlock warning", "the number of trips of l"),
    Fault("sunk over a scatter", SUM, (("condition {", _TAKE + "condition {"), (_ADDED, _SCATTERED)), "proof", "",
          SCATTERED_WHOLE),
]  # fmt: skip


def _planted(fault: Fault) -> str:
    text = fault.program
    for edit in fault.edits:
        old, new = (part.replace("SUMS", "use_global_device_ids=true, to_apply=add").replace(
            "groups=", "replica_groups=") for part in edit)
        assert old in text, f"{old} is not there"
        text = text.replace(old, new)
    return text


def _caught(fault: Fault, text: str) -> tuple[str, str]:
    """Returns who catches a program first, and what it says."""
    try:
        module = hloom.parse(text)
    except hloom.CompileError as error:
        said = str(error)
        return "verifier" if any(words in said for words in _OF_VERIFIER) else "reader", said
    findings = hloom.find_deadlocks(module)
    if findings:
        is_error = any(d.severity is Severity.ERROR for d in findings)
        return "deadlock" if is_error else "deadlock warning", "\n".join(d.render() for d in findings)
    verdict = hloom.prove(hloom.parse(fault.whole), module)
    return "" if verdict.is_equal else "proof", str(verdict)


_OF_VERIFIER = ("before it has arrived", "is never awaited", "is awaited twice", "belongs to", "name device")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_faults_are_caught(fault: Fault) -> None:
    text = _planted(fault)
    caught, said = _caught(fault, text)
    assert caught == fault.caught_by, said
    assert fault.says in said


def test_faults_are_of_many_kinds() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 20
    assert set(Counter(fault.caught_by for fault in FAULTS)) == {
        "reader", "verifier", "deadlock", "deadlock warning", "proof",
    }  # fmt: skip


@pytest.mark.parametrize(("whole", "local"), [(STEP_WHOLE, STEP), (SCAN_WHOLE, SCAN), (SUM_WHOLE, SUM)])
def test_without_faults_they_are_right(whole: str, local: str) -> None:
    module = hloom.parse(local)
    assert verify(module) == hloom.find_deadlocks(module) == []
    assert hloom.prove(hloom.parse(whole), module).is_equal


@pytest.mark.parametrize("program", [BRANCH, LOOP, SEND])
def test_without_faults_nothing_is_found(program: str) -> None:
    assert hloom.find_deadlocks(hloom.parse(program)) == []


def _one(module: Module, name: str) -> tuple[Computation, Instruction]:
    return next((c, i) for c in module for i in c if i.name == name)


def test_an_order_in_which_a_done_stands_before_its_start_is_found() -> None:
    """A pass that reorders makes no text."""
    module = hloom.parse(STEP)
    computation, start = _one(module, "w.1")
    order = [i for i in computation if i is not start]
    done = next(n for n, i in enumerate(order) if i.name == "w.2")
    computation.reorder([*order[: done + 1], start, *order[done + 1 :]])
    assert "w.2: operand w.1 is not defined before it" in str(verify(module)[0])
