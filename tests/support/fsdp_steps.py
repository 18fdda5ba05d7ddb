"""Training steps of residual blocks under fully sharded data parallelism, as HLO text for any number of layers.

A block is `x + tanh(x * s @ w) @ u`, with a scale and two matrices; the loss is half the sum of squares, the update
plain gradient descent. Parameters are divided by their first dimension, the batch by its first.
"""

from __future__ import annotations


def fsdp_step(devices: int, layers: int, width: int = 16, batch: int = 16, element: str = "f32") -> str:
    """The step on a mesh with the axis `data`. Parameters: per layer `scale`, `in`, `out`; the batch."""
    mesh = f"mesh['data'={devices}]"
    x, m, v = (f"{element}[{dims}]" for dims in (f"{batch},{width}", f"{width},{width}", f"{width}"))
    whole, row = f"sharding={{{mesh}, [{{'data'}}, {{}}]}}", f"sharding={{{mesh}, [{{'data'}}]}}"
    adder = f"add {{ a = {element}[] parameter(0)  b = {element}[] parameter(1)  ROOT r = {element}[] add(a, b) }}"
    lines = [f"HloModule step, num_partitions={devices}", adder, "ENTRY e {"]

    def put(name: str, shape: str, text: str) -> str:
        lines.append(f"  {name} = {shape} {text}")
        return name

    def dot(name: str, shape: str, left: str, right: str, contracted: tuple[int, int]) -> str:
        dims = f"lhs_contracting_dims={{{contracted[0]}}}, rhs_contracting_dims={{{contracted[1]}}}"
        return put(name, shape, f"dot({left}, {right}), {dims}")

    for n in range(layers):
        put(f"scale{n}", v, f"parameter({3 * n}), {row}")
        put(f"in{n}", m, f"parameter({3 * n + 1}), {whole}")
        put(f"out{n}", m, f"parameter({3 * n + 2}), {whole}")
    now = put("x0", x, f"parameter({3 * layers}), {whole}")
    put("zero", f"{element}[]", "constant(0)")
    put("one", f"{element}[]", "constant(1)")
    put("ones", x, "broadcast(one), dimensions={}")
    put("rate", f"{element}[]", "constant(0.0625)")
    put("ratev", v, "broadcast(rate), dimensions={}")
    put("ratem", m, "broadcast(rate), dimensions={}")
    for n in range(layers):
        put(f"b{n}", x, f"broadcast(scale{n}), dimensions={{1}}")
        put(f"y{n}", x, f"multiply({now}, b{n})")
        put(f"t{n}", x, f"tanh({dot(f'h{n}', x, f'y{n}', f'in{n}', (1, 0))})")
        now = put(f"x{n + 1}", x, f"add({now}, {dot(f'o{n}', x, f't{n}', f'out{n}', (1, 0))})")
    gradient = now
    for n in reversed(range(layers)):
        dot(f"gout{n}", m, f"t{n}", gradient, (0, 0))
        dot(f"gt{n}", x, gradient, f"out{n}", (1, 1))
        put(f"tt{n}", x, f"multiply(t{n}, t{n})")
        put(f"slope{n}", x, f"subtract(ones, tt{n})")
        put(f"gh{n}", x, f"multiply(gt{n}, slope{n})")
        dot(f"gin{n}", m, f"y{n}", f"gh{n}", (0, 0))
        dot(f"gy{n}", x, f"gh{n}", f"in{n}", (1, 1))
        put(f"gyx{n}", x, f"multiply(gy{n}, x{n})")
        put(f"gscale{n}", v, f"reduce(gyx{n}, zero), dimensions={{0}}, to_apply=add")
        put(f"gx{n}", x, f"multiply(gy{n}, b{n})")
        gradient = put(f"g{n}", x, f"add({gradient}, gx{n})")
    results: list[str] = []
    for n in range(layers):
        for name, shape, rate in ((f"scale{n}", v, "ratev"), (f"in{n}", m, "ratem"), (f"out{n}", m, "ratem")):
            put(f"step_{name}", shape, f"multiply(g{name}, {rate})")
            results.append(put(f"new_{name}", shape, f"subtract({name}, step_{name})"))
    shapes = ", ".join([v, m, m] * layers)
    shardings = ", ".join([row[9:], whole[9:], whole[9:]] * layers)
    lines.append(f"  ROOT results = ({shapes}) tuple({', '.join(results)}), sharding={{{shardings}}}")
    return "\n".join(lines) + "\n}\n"
