"""Templates of calls, starts, collectives and custom-calls (see `typed_programs`). Collectives run on two replicas."""

from __future__ import annotations

from ops.template import one, whole

_TWO = "HloModule m, replica_count=2\n"
_ADD = "add { a = E[] parameter(0) b = E[] parameter(1) ROOT c = add(a, b) }\n"
_LARGER = "larger { a = E[] parameter(0) b = E[] parameter(1) ROOT c = MAXIMUM(a, b) }\n"
_TURN = "turn { a = E[4] parameter(0) ROOT r = reverse(a), dimensions={0} }\n"
_SAME = "same { a = E[4] parameter(0) ROOT r = copy(a) }\n"
_SWAP = "swap { a = E[4] parameter(0) b = E[4] parameter(1) ROOT r = tuple(b, a) }\n"
_CHOOSE = "choose { p = pred[] parameter(0) a = E[] parameter(1) b = E[] parameter(2) ROOT r = select(p, a, b) }\n"
_LAST = "last { a = E[] parameter(0) b = E[] parameter(1) ROOT r = copy(b) }\n"
_LOOP = """body {
  s = (s32[], E[4]) parameter(0)
  n = get-tuple-element(s), index=0
  x = get-tuple-element(s), index=1
  one = s32[] constant(1)
  m = add(n, one)
  y = STEP
  ROOT t = tuple(m, y)
}
condition {
  s = (s32[], E[4]) parameter(0)
  n = get-tuple-element(s), index=0
  end = s32[] constant(3)
  ROOT c = compare(n, end), direction=LT
}
"""
_PERMUTED = "source_target_pairs={{0,1},{1,0}}"


def _loop(step: str) -> str:
    return whole(
        _LOOP.replace("STEP", step),
        "x = E[4] parameter(0)",
        "zero = s32[] constant(0)",
        "s = tuple(zero, x)",
        "ROOT r = while(s), condition=condition, body=body",
    )


def _two(opcode: str, operands: str, attributes: str, computations: str = "", result: str = "") -> str:
    """A program for two replicas."""
    return one(opcode, operands, attributes, result, head=_TWO + computations)


def _pair(opcode: str, operands: str, start: str, attributes: str, head: str = "") -> str:
    """A start and its done, of parameters."""
    names = ", ".join(f"p{n}" for n in range(len(operands.split())))
    parameters = [f"p{n} = {s} parameter({n})" for n, s in enumerate(operands.split())]
    return whole(head, *parameters, f"s = {start} {opcode}-start({names}){attributes}", f"ROOT r = {opcode}-done(s)")


def _ragged(operand: str, result: str) -> str:
    """Every replica sends two rows to each; what comes from replica r lies at row 2 r."""
    return whole(
        _TWO,
        f"x = E[{operand}] parameter(0)",
        f"o = E[{result}] parameter(1)",
        "sizes = s32[2] constant({2, 2})",
        "from = s32[2] constant({0, 2})",
        "r = replica-id()",
        "s = s32[] convert(r)",
        "t = add(s, s)",
        "to = s32[2] broadcast(t), dimensions={}",
        "ROOT y = ragged-all-to-all(x, o, from, sizes, to, sizes), replica_groups={{0,1}}",
    )


_REDUCED = (
    _pair("all-reduce", "E[4]", "E[4]", ", to_apply=add", _TWO + _ADD),
    _pair("all-reduce", "E[4]", "E[4]", ", to_apply=larger", _TWO + _LARGER),
)
_GATHERED = (
    _pair("all-gather", "E[4]", "(E[4], E[8])", ", dimensions={0}", _TWO),
    _pair("all-gather", "E[2,3]", "(E[2,3], E[2,6])", ", dimensions={1}", _TWO),
)
_SENT = (
    _pair("collective-permute", "E[4]", "(E[4], E[4], u32[], u32[])", f", {_PERMUTED}", _TWO),
    _pair("collective-permute", "E[]", "(E[], E[], u32[], u32[])", ", source_target_pairs={{1,0}}", _TWO),
)
_COPIED = (_pair("copy", "E[4]", "(E[4], E[4], u32[])", ""), _pair("copy", "E[]", "(E[], E[], u32[])", ""))
_STARTED = (
    _pair("async", "E[4]", "((E[4]), E[4])", ", calls=same", _SAME),
    _pair("async", "E[4]", "((E[4]), E[4])", ", calls=turn", _TURN),
)
_UPDATE = "u = async-update(s)\n  ROOT r = async-done(u)"
_UPDATED = tuple(text.replace("ROOT r = async-done(s)", _UPDATE) for text in _STARTED)

TEMPLATES: dict[str, tuple[str, ...]] = {
    "call": (one("call", "E[4] E[4]", "to_apply=swap", head=_SWAP), one("call", "E[4]", "to_apply=turn", head=_TURN)),
    "while": (_loop("reverse(x), dimensions={0}"), _loop("concatenate(x), dimensions={0}")),
    "conditional": (
        one("conditional", "pred[] E[4] E[4]", "true_computation=turn, false_computation=same", head=_TURN + _SAME),
        whole(
            _TURN + _SAME,
            "x = E[4] parameter(0)",
            "i = s32[] constant(1)",
            "ROOT r = conditional(i, x, x), branch_computations={turn, same}",
        ),
    ),
    "fusion": (
        one("fusion", "E[4]", "kind=kLoop, calls=turn", "E[4]", head=_TURN),
        one("fusion", "E[4] E[4]", "kind=kLoop, calls=swap", "(E[4], E[4])", head=_SWAP),
    ),
    "map": (
        one("map", "pred[3,4] E[3,4] E[3,4]", "dimensions={0,1}, to_apply=choose", head=_CHOOSE),
        one("map", "E[5] E[5]", "dimensions={0}, to_apply=last", head=_LAST),
    ),
    "async-start": _STARTED,
    "async-done": _STARTED,
    "async-update": _UPDATED,
    "copy-start": _COPIED,
    "copy-done": _COPIED,
    "all-reduce": (
        _two("all-reduce", "E[4]", "to_apply=add", _ADD),
        _two("all-reduce", "E[4]", "to_apply=larger", _LARGER),
    ),
    "all-reduce-start": _REDUCED,
    "all-reduce-done": _REDUCED,
    "reduce-scatter": (
        _two("reduce-scatter", "E[4]", "dimensions={0}, to_apply=add", _ADD, "E[2]"),
        _two("reduce-scatter", "E[3,4]", "dimensions={1}, to_apply=larger", _LARGER, "E[3,2]"),
    ),
    "all-gather": (
        _two("all-gather", "E[4]", "dimensions={0}", "", "E[8]"),
        _two("all-gather", "E[2,3]", "dimensions={1}", "", "E[2,6]"),
    ),
    "all-gather-start": _GATHERED,
    "all-gather-done": _GATHERED,
    "all-to-all": (
        _two("all-to-all", "E[4]", "dimensions={0}, replica_groups={{0,1}}"),
        _two("all-to-all", "E[4] E[4]", ""),
    ),
    "collective-permute": (
        _two("collective-permute", "E[4]", _PERMUTED),
        _two("collective-permute", "E[]", "source_target_pairs={{1,0}}"),
    ),
    "collective-permute-start": _SENT,
    "collective-permute-done": _SENT,
    "collective-broadcast": (
        _two("collective-broadcast", "E[4]", "replica_groups={{0,1}}"),
        _two("collective-broadcast", "E[]", "replica_groups={{1,0}}"),
    ),
    "ragged-all-to-all": (_ragged("4", "6"), _ragged("4,3", "5,3")),
    "custom-call": (
        one("custom-call", "E[3]", 'custom_call_target="MoveToHost"', "E[3]"),
        one("custom-call", "E[3,2]", 'custom_call_target="Sharding", sharding={replicated}', "E[3,2]"),
    ),
}
