"""A training step of equal layers: each has a weight, its gradient by a backward pass, and its new value."""

from __future__ import annotations

import re

ROWS, WIDTH = 64, 32
_DOT = "dot({}, {}), lhs_contracting_dims={{{}}}, rhs_contracting_dims={{{}}}"


def deep_step(layers: int, lines: str = "", results: str = "", header: str = "") -> str:
    """Returns the step as HLO text, with further lines, results (`, extra`) and header."""
    x, w = f"f32[{ROWS},{WIDTH}]", f"f32[{WIDTH},{WIDTH}]"
    text = [f"  h0 = {x} parameter(0)", f"  t = {x} parameter(1)"]
    text += [f"  w{n} = {w} parameter({n + 2})" for n in range(layers)]
    for n in range(layers):
        text += [f"  d{n} = {x} {_DOT.format(f'h{n}', f'w{n}', 1, 0)}", f"  h{n + 1} = {x} tanh(d{n})"]
    text.append(f"  g{layers} = {x} subtract(h{layers}, t)")
    for n in reversed(range(layers)):
        text += [
            f"  m{n} = {x} multiply(g{n + 1}, h{n + 1})", f"  g{n} = {x} {_DOT.format(f'm{n}', f'w{n}', 1, 1)}",
            f"  k{n} = {w} {_DOT.format(f'h{n}', f'm{n}', 0, 0)}", f"  n{n} = {w} subtract(w{n}, k{n})",
        ]  # fmt: skip
    shared = ", ".join(f"{{{n}}}: ({n + 2}, {{}}, may-alias)" for n in range(layers))
    made = ", ".join(f"n{n}" for n in range(layers))
    kinds = ", ".join([w] * layers + [w] * results.count(","))
    body = "\n".join([*text, *([lines] if lines else []), f"  ROOT r = ({kinds}) tuple({made}{results})"])
    return f"HloModule step, input_output_alias={{ {shared} }}{header}\nENTRY e {{\n{body}\n}}\n"


def renewed_before(layers: int) -> str:
    """Returns a step whose layers renew the weight of the next one, as HLO text, but for the last one."""
    text = deep_step(layers)
    for n in range(layers - 1):
        new = f"  e{n} = f32[{WIDTH},{WIDTH}] negate(w{n + 1})\n  n{n} = f32[{WIDTH},{WIDTH}] subtract(k{n}, e{n})"
        text = text.replace(f"  n{n} = f32[{WIDTH},{WIDTH}] subtract(w{n}, k{n})", new)
    shared = ", ".join(f"{{{n}}}: ({n + 3}, {{}}, may-alias)" for n in range(layers - 1))
    return re.sub(r"input_output_alias={.*}", f"input_output_alias={{ {shared} }}", text, count=1)
