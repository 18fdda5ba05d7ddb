"""Fusions of training steps as HLO text, and the same functions in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

HEAD = """add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a,b) }}
max {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a,b) }}
"""

_MEANS = """
  zero = f32[] constant(0)
  n = f32[{R}] broadcast(f32[] constant({C})), dimensions={{}}
  eps = f32[{R}] broadcast(f32[] constant(1e-5)), dimensions={{}}"""
_GELU = """
  k3 = f32[{R},{C}] broadcast(f32[] constant(0.044715)), dimensions={{}}
  k = f32[{R},{C}] broadcast(f32[] constant(0.7978845608)), dimensions={{}}
  one = f32[{R},{C}] broadcast(f32[] constant(1)), dimensions={{}}
  half = f32[{R},{C}] broadcast(f32[] constant(0.5)), dimensions={{}}
  uu = f32[{R},{C}] multiply(u, u)
  uuu = f32[{R},{C}] multiply(uu, u)
  a3 = f32[{R},{C}] multiply(k3, uuu)
  us = f32[{R},{C}] add(u, a3)
  ks = f32[{R},{C}] multiply(k, us)
  t = f32[{R},{C}] tanh(ks)
  t1 = f32[{R},{C}] add(one, t)
  hu = f32[{R},{C}] multiply(half, u)
  g = f32[{R},{C}] multiply(hu, t1)"""
_MAX_SUM = """
  x = f32[{R},{C}] parameter(0)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[{R}] reduce(x, low), dimensions={{1}}, to_apply=max
  mb = f32[{R},{C}] broadcast(m), dimensions={{0}}
  d = f32[{R},{C}] subtract(x, mb)
  e = f32[{R},{C}] exponential(d)
  s = f32[{R}] reduce(e, zero), dimensions={{1}}, to_apply=add"""
_SQUARES = (
    _MEANS
    + """
  xx = f32[{R},{C}] multiply(x, x)
  ss = f32[{R}] reduce(xx, zero), dimensions={{1}}, to_apply=add
  v = f32[{R}] divide(ss, n)
  ve = f32[{R}] add(v, eps)
  r = f32[{R}] rsqrt(ve)
  rb = f32[{R},{C}] broadcast(r), dimensions={{0}}
  wb = f32[{R},{C}] broadcast(w), dimensions={{1}}"""
)


def _adamw() -> str:
    numbers = {"b1": 0.9, "c1": 0.1, "b2": 0.95, "c2": 0.05, "k1": 1.2, "k2": 1.3, "lr": 1e-3, "wd": 0.1, "e8": 1e-8}
    lines = [f"{name} = f32[] parameter({n})" for n, name in enumerate("pmvg")]
    lines = [line.replace("f32[]", "f32[{R},{C}]") for line in lines]
    lines += [f"{n} = f32[{{R}},{{C}}] broadcast(f32[] constant({v})), dimensions={{{{}}}}" for n, v in numbers.items()]
    steps = """m1 multiply b1 m, m2 multiply c1 g, mn add m1 m2, gg multiply g g, v1 multiply b2 v, v2 multiply c2 gg,
        vn add v1 v2, mh multiply mn k1, vh multiply vn k2, sq sqrt vh, de add sq e8, up divide mh de,
        dp multiply wd p, us add up dp, st multiply lr us, pn subtract p st"""
    for step in steps.split(","):
        name, opcode, *operands = step.split()
        lines.append(f"{name} = f32[{{R}},{{C}}] {opcode}({', '.join(operands)})")
    array = "f32[{R},{C}]"
    lines.append(f"ROOT o = ({array}, {array}, {array}) tuple(pn, mn, vn)")
    return "\n" + "\n".join("  " + line for line in lines)


BODIES: dict[str, str] = {
    "softmax": _MAX_SUM + """
  sb = f32[{R},{C}] broadcast(s), dimensions={{0}}
  ROOT y = f32[{R},{C}] divide(e, sb)""",
    "gelu-tanh": "\n  u = f32[{R},{C}] parameter(0)" + _GELU.replace("  g = ", "  ROOT g = "),
    "bias+gelu+residual": """
  x = f32[{R},{C}] parameter(0)
  w = f32[{C}] parameter(1)
  z = f32[{R},{C}] parameter(2)
  wb = f32[{R},{C}] broadcast(w), dimensions={{1}}
  u = f32[{R},{C}] add(x, wb)""" + _GELU + """
  ROOT o = f32[{R},{C}] add(g, z)""",
    "silu(x)*y": """
  x = f32[{R},{C}] parameter(0)
  y = f32[{R},{C}] parameter(1)
  l = f32[{R},{C}] logistic(x)
  a = f32[{R},{C}] multiply(x, l)
  ROOT o = f32[{R},{C}] multiply(a, y)""",
    "layernorm": """
  x = f32[{R},{C}] parameter(0)
  w = f32[{C}] parameter(1)
  b = f32[{C}] parameter(2)""" + _MEANS + """
  s = f32[{R}] reduce(x, zero), dimensions={{1}}, to_apply=add
  m = f32[{R}] divide(s, n)
  mb = f32[{R},{C}] broadcast(m), dimensions={{0}}
  d = f32[{R},{C}] subtract(x, mb)
  dd = f32[{R},{C}] multiply(d, d)
  ss = f32[{R}] reduce(dd, zero), dimensions={{1}}, to_apply=add
  v = f32[{R}] divide(ss, n)
  ve = f32[{R}] add(v, eps)
  r = f32[{R}] rsqrt(ve)
  rb = f32[{R},{C}] broadcast(r), dimensions={{0}}
  wb = f32[{R},{C}] broadcast(w), dimensions={{1}}
  bb = f32[{R},{C}] broadcast(b), dimensions={{1}}
  dr = f32[{R},{C}] multiply(d, rb)
  dw = f32[{R},{C}] multiply(dr, wb)
  y = f32[{R},{C}] add(dw, bb)
  ROOT o = (f32[{R},{C}], f32[{R}], f32[{R}]) tuple(y, m, r)""",
    "rmsnorm": """
  x = f32[{R},{C}] parameter(0)
  w = f32[{C}] parameter(1)""" + _SQUARES + """
  xr = f32[{R},{C}] multiply(x, rb)
  ROOT o = f32[{R},{C}] multiply(xr, wb)""",
    "rmsnorm backward": """
  x = f32[{R},{C}] parameter(0)
  w = f32[{C}] parameter(1)
  g = f32[{R},{C}] parameter(2)""" + _SQUARES + """
  t = f32[{R},{C}] multiply(g, wb)
  tx = f32[{R},{C}] multiply(t, x)
  q = f32[{R}] reduce(tx, zero), dimensions={{1}}, to_apply=add
  qm = f32[{R}] divide(q, n)
  r2 = f32[{R}] multiply(r, r)
  r3 = f32[{R}] multiply(r2, r)
  k = f32[{R}] multiply(qm, r3)
  kb = f32[{R},{C}] broadcast(k), dimensions={{0}}
  tr = f32[{R},{C}] multiply(t, rb)
  xk = f32[{R},{C}] multiply(x, kb)
  dx = f32[{R},{C}] subtract(tr, xk)
  xr = f32[{R},{C}] multiply(x, rb)
  gx = f32[{R},{C}] multiply(g, xr)
  dw = f32[{C}] reduce(gx, zero), dimensions={{0}}, to_apply=add
  ROOT o = (f32[{R},{C}], f32[{C}]) tuple(dx, dw)""",
    "AdamW": _adamw(),
    "row max + sum exp": _MAX_SUM + """
  ROOT o = (f32[{R}], f32[{R}]) tuple(m, s)""",
}  # fmt: skip


def text(name: str, rows: int, columns: int) -> str:
    """Returns a module that is the fused computation."""
    body = BODIES[name]
    constants: list[str] = []
    lines: list[str] = []
    for line in body.split("\n"):
        before, found, rest = line.partition("broadcast(f32[] constant(")
        if found:
            value, rest = rest.split("))", 1)
            constants.append(f"  number{len(constants)} = f32[] constant({value})")
            line = f"{before}broadcast(number{len(constants) - 1}){rest}"
        lines.append(line)
    inside = "\n".join(constants + lines)
    return (HEAD + "ENTRY fused {{" + inside + "\n}}\n").format(R=rows, C=columns)


def in_jax(jax: Any, jnp: Any) -> dict[str, Callable[..., Any]]:
    """Returns the functions in JAX."""

    def rms(x: Any, w: Any) -> Any:
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w

    def layernorm(x: Any, w: Any, b: Any) -> Any:
        m = x.mean(-1, keepdims=True)
        r = jax.lax.rsqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5)
        return (x - m) * r * w + b, m[:, 0], r[:, 0]

    def adamw(p: Any, m: Any, v: Any, g: Any) -> Any:
        m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
        return p - 1e-3 * ((m * 1.2) / (jnp.sqrt(v * 1.3) + 1e-8) + 0.1 * p), m, v

    def max_sum(x: Any) -> Any:
        m = x.max(-1)
        return m, jnp.exp(x - m[:, None]).sum(-1)

    def bias_gelu(x: Any, w: Any, z: Any) -> Any:
        return jax.nn.gelu(x + w) + z

    def silu(x: Any, y: Any) -> Any:
        return jax.nn.silu(x) * y

    def rms_backward(x: Any, w: Any, g: Any) -> Any:
        return jax.vjp(rms, x, w)[1](g)

    return {
        "softmax": jax.nn.softmax,
        "gelu-tanh": jax.nn.gelu,
        "bias+gelu+residual": bias_gelu,
        "silu(x)*y": silu,
        "layernorm": layernorm,
        "rmsnorm": rms,
        "rmsnorm backward": rms_backward,
        "AdamW": adamw,
        "row max + sum exp": max_sum,
    }
