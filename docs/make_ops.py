"""Writes docs/ops.md, the page of all ops, from the classes of the ops and the samples of the tests.

    python docs/make_ops.py

Everything on the page is asked of the op itself: its docstring, arity and attributes, and, for its first sample, its
sharding rule and whether it has a kernel. A test compares the page with what this makes, so the page cannot go stale.
Needs the package and numpy; reads the samples below tests/ but not XLA.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in (".import", "tests") if str(ROOT / folder) not in sys.path]

from hloom.frontends import parse  # noqa: E402
from hloom.ir.graph.attributes import AttributeField, attribute_fields  # noqa: E402
from hloom.ir.graph.instruction import Instruction  # noqa: E402
from hloom.ir.graph.interfaces import DeviceNumber, Draws, has_result_hint  # noqa: E402
from hloom.ir.graph.op import OPS, AnyOp, NotEvaluable, Role  # noqa: E402
from hloom.ir.graph.python_values import described  # noqa: E402
from hloom.ir.tools.printer import value_text  # noqa: E402
from ops.oracle import SUMS, ULPS  # noqa: E402
from ops.type_gaps import GAPS, UNCOMPARED, UNCOMPARED_TYPES, How  # noqa: E402
from support.op_samples import all_samples  # noqa: E402

PAGE = ROOT / "docs" / "ops.md"

_HEAD = """\
# Ops

Made by `python docs/make_ops.py` from the classes in `ir/ops/`; do not edit by hand.

- **operands**: how many; `1..` is one or more.
- **attributes**: name, what it takes, and the default in text form; one without a default must be written, unless it
  is *optional*. Attributes that every instruction may have (sharding, metadata, ..) are not listed.
- **rule**: the sharding rule of a sample program, as in `([i k], [k j]) -> [i j] {i=4, j=5, k=6} reduction={k}`:
  the factors of each dimension of operands and results, their sizes, and those that are not simply divided. Elements
  of a tuple count as operands and results of their own. Ops without one are handled by the structure of the program.
- **numpy**: whether the evaluator computes the op; *runtime* means that the runtime supplies it (collectives, numbers
  of devices, arguments).
"""

_BOUNDS = """\
## How close to XLA

The greatest difference from XLA's CPU back end that the tests allow, in units in the last place of the result type. Ops
that are not listed have to agree exactly, but for complex numbers, where 8 is allowed. For sums the unit is that of the
largest element of the result. Where a line does not name the type, floats of a byte or less may differ by no more than
1, those of two bytes by no more than 4 units, and so may their sums.
"""

_GAPS = """\
## Not compared with XLA

Every op runs beside XLA with programs of each class of types that it takes: pred, signed, unsigned, less than a byte,
floats of a byte or less, bf16, f16, f32, f64, complex. These cannot be compared on its CPU back end.
"""


def page() -> str:
    """The text of docs/ops.md."""
    families: dict[str, list[AnyOp]] = {}
    for op in OPS.values():
        families.setdefault(_family(op), []).append(op)
    samples = all_samples()
    parts = [_HEAD]
    for family in sorted(families):
        parts.append(f"## {family}\n\n{_about(families[family][0])}\n")
        parts += [_entry(op, _sample(op, samples)) for op in families[family]]
    return "\n".join([*parts, _BOUNDS, _bounds(), _GAPS, _gaps()])


def _family(op: AnyOp) -> str:
    return type(op).__module__.rpartition(".")[2]


def _paragraph(text: str | None) -> str:
    """The first paragraph of a docstring on one line, as Markdown."""
    return _plain(" ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split()))


def _plain(text: str) -> str:
    """Text outside backticks with the characters that Markdown would interpret escaped."""
    parts = text.split("`")
    for place in range(0, len(parts), 2):
        for character in "\\*_<>|":
            parts[place] = parts[place].replace(character, "\\" + character)
    return "`".join(parts)


def _about(op: AnyOp) -> str:
    return _paragraph(sys.modules[type(op).__module__].__doc__)


def _sample(op: AnyOp, samples: dict[str, list[str]]) -> Instruction | None:
    """The first use of the op in its first sample."""
    texts = samples.get(op.opcode)
    uses = (i for c in parse(texts[0]) for i in c if i.opcode == op.opcode) if texts else iter(())
    return next(uses, None)


def _entry(op: AnyOp, use: Instruction | None) -> str:
    lines = [f"### {op.opcode}\n", f"{_paragraph(type(op).__doc__)}\n", f"- operands: {_arity(op)}"]
    fields = [_field(field) for field in attribute_fields(op.attributes).values()]
    lines += ["- attributes:", *fields] if fields else []
    if use is not None and not (op.is_collective or op.is_control or op.interface(DeviceNumber)):
        lines.append(f"- rule: `{op.sharding_rule(use.call)}`")
    lines.append(f"- numpy: {_evaluated(op, use)}")
    kinds = {
        "collective": op.is_collective,
        "calls computations that may hold collectives": op.is_control,
        "element-wise": op.is_elementwise,
        "has a side effect": op.side_effect,
        "draws from the hidden random state of the device": op.interface(Draws),
        "the result shape must be written": has_result_hint(op),
    }
    found = [words for words, holds in kinds.items() if holds]
    lines += [f"- {', '.join(found)}"] if found else []
    return "\n".join(lines) + "\n"


def _arity(op: AnyOp) -> str:
    least, greatest = op.arity
    return str(least) if least == greatest else f"{least}..{'' if greatest is None else greatest}"


def _field(field: AttributeField) -> str:
    where = " (between the parentheses)" if field.inline else ""
    if field.required:
        default = ""
    elif field.default is None:
        default = ", optional"
    else:
        default = f", default `{value_text(field.default) or '{}'}`"
    return f"  - `{field.name}`{where}: {_plain(described(field.type))}{default}"


def _evaluated(op: AnyOp, use: Instruction | None) -> str:
    if op.is_collective or op.interface(DeviceNumber) or op.role is Role.PARAMETER:
        return "runtime"
    if use is None:
        return "not known: no sample"
    try:
        op.kernel(use.call, lambda computation: _nothing)
    except NotEvaluable:
        return "no"
    return "yes"


def _nothing(*operands: Any) -> None:
    """Stands for a called computation: the kernel is made here, but never run."""


def _bounds() -> str:
    rows = [f"| {key.replace(' ', ', ')} | {bound:g} | {_measure(key)} |" for key, bound in sorted(ULPS.items())]
    return _table(("op, type", "units", "of"), rows)


def _gaps() -> str:
    rows = [(gap.opcodes, gap.elements or "all", gap.how.value, gap.why) for gap in GAPS]
    rows += [("all", element, How.REFUSES.value, why) for element, why in UNCOMPARED_TYPES.items()]
    rows += [(opcode, "all", "", why) for opcode, why in UNCOMPARED.items()]
    lists = ((opcodes.replace(" ", ", "), types.replace(" ", ", "), how, why) for opcodes, types, how, why in rows)
    return _table(("ops", "types", "XLA", "reason"), (f"| {' | '.join(row)} |" for row in lists))


def _measure(key: str) -> str:
    return "the largest element" if key.partition(" ")[0] in SUMS else "each element"


def _table(head: tuple[str, ...], rows: Iterable[str]) -> str:
    return "\n".join([f"| {' | '.join(head)} |", "|" + " --- |" * len(head), *rows]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
