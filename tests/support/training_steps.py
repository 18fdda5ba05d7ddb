"""Data-parallel training steps as HLO text: two dense layers of any size, Adam, gradients clipped by their norm."""

from __future__ import annotations


def clipped_adam(devices: int, inputs: int, hidden: int, outputs: int, batch: int, unit: str = "replicated") -> str:
    """A step on a mesh with the axis `data`. Parameters: weights, first and second moments, the batch; results: the new
    weights and moments. `unit` is the sharding of weights and moments.
    """
    dims = {"w": f"f32[{inputs},{hidden}]", "u": f"f32[{hidden},{outputs}]"}
    mesh = f"mesh['data'={devices}]"
    by_batch = f"sharding={{{mesh}, [{{'data'}}, {{}}]}}"
    lines = ["add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }", "ENTRY e {"]
    for number, name in enumerate(f"{kind}{w}" for kind in ("", "m", "v") for w in dims):
        lines.append(f"  {name} = {dims[name[-1]]} parameter({number}), sharding={{{unit}}}")
    x, h, y = f"f32[{batch},{inputs}]", f"f32[{batch},{hidden}]", f"f32[{batch},{outputs}]"
    lines += [
        f"  x = {x} parameter(6), {by_batch}",
        f"  h = {h} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
        f"  t = {h} tanh(h)",
        f"  y = {y} dot(t, u), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
        f"  gu = {dims['u']} dot(t, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}",
        f"  gt = {h} dot(y, u), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}",
        f"  one = f32[] constant(1)  ones = {h} broadcast(one), dimensions={{}}",
        f"  tt = {h} multiply(t, t)  slope = {h} subtract(ones, tt)  gh = {h} multiply(gt, slope)",
        f"  gw = {dims['w']} dot(x, gh), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}",
        "  zero = f32[] constant(0)  b1 = f32[] constant(0.9)  c1 = f32[] constant(0.1)  b2 = f32[] constant(0.99)",
        "  c2 = f32[] constant(0.01)  rate = f32[] constant(0.001)  tiny = f32[] constant(1e-8)",
    ]
    for n in dims:
        lines.append(f"  s{n} = {dims[n]} multiply(g{n}, g{n})")
        lines.append(f"  q{n} = f32[] reduce(s{n}, zero), dimensions={{0,1}}, to_apply=add")
    lines += ["  q = f32[] add(qw, qu)  norm = f32[] sqrt(q)  most = f32[] maximum(norm, one)"]
    for n, d in dims.items():
        for scalar in ("b1", "c1", "b2", "c2", "rate", "tiny", "most"):
            lines.append(f"  {scalar}{n} = {d} broadcast({scalar}), dimensions={{}}")
        lines += [
            f"  k{n} = {d} divide(g{n}, most{n})",
            f"  m1{n} = {d} multiply(m{n}, b1{n})  m2{n} = {d} multiply(k{n}, c1{n})  n{n} = {d} add(m1{n}, m2{n})",
            f"  kk{n} = {d} multiply(k{n}, k{n})  v1{n} = {d} multiply(v{n}, b2{n})",
            f"  v2{n} = {d} multiply(kk{n}, c2{n})  z{n} = {d} add(v1{n}, v2{n})",
            f"  root{n} = {d} sqrt(z{n})  below{n} = {d} add(root{n}, tiny{n})  step{n} = {d} divide(n{n}, below{n})",
            f"  scaled{n} = {d} multiply(step{n}, rate{n})  new{n} = {d} subtract({n}, scaled{n})",
        ]
    results = ", ".join(f"{kind}{n}" for kind in ("new", "n", "z") for n in dims)
    shapes = ", ".join([dims["w"], dims["u"]] * 3)
    lines.append(f"  ROOT results = ({shapes}) tuple({results}), sharding={{{', '.join(['{' + unit + '}'] * 6)}}}")
    return f"HloModule step, num_partitions={devices}\n" + "\n".join(lines) + "\n}\n"
