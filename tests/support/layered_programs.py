"""Random training steps of layered models as annotated HLO text: layers in loops or written out, micro-batches, and
weights that are whole (data parallel), divided by the data axis (FSDP), by the model axis (tensor parallel) or by both.

A layer is x + tanh(x w) v, its gradients by hand. The loops are those of `lax.scan`: weights are slices of stacked ones
at the counter, backwards at layers - 1 - counter, and gradients are written to the same places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Choose = Callable[[int, int], int]


@dataclass(frozen=True)
class Model:
    """Sizes, the mesh, and how weights lie: `kind` is dp, fsdp, tp or both. `micro` counts micro-batches."""

    layers: int = 3
    batch: int = 8
    width: int = 8
    hidden: int = 8
    data: int = 4
    model: int = 1
    kind: str = "fsdp"
    micro: int = 1
    loop: bool = True

    @staticmethod
    def random(choose: Choose, kind: str) -> Model:
        """A model of the kind with sizes that may not divide."""
        data, model = [(2, 1), (3, 1), (4, 1), (2, 2), (4, 2), (2, 3)][choose(0, 5)]
        return Model(
            choose(2, 4), data * choose(1, 9), choose(3, 9), choose(3, 9), data, model, kind, choose(1, 2),
            bool(choose(0, 3)),
        )  # fmt: skip

    def text(self) -> str:
        """The program: parameters are stacked weights w and v, and x; results new weights and the last activations."""
        return _Text(self).program()


class _Text:
    def __init__(self, model: Model) -> None:
        self.m = m = model
        self.mesh = f"mesh['data'={m.data},'model'={m.model}]"
        self.x, self.h = f"f32[{m.batch},{m.width}]", f"f32[{m.batch},{m.hidden}]"
        self.w, self.v = f"f32[{m.width},{m.hidden}]", f"f32[{m.hidden},{m.width}]"
        self.ws, self.vs, self.xs, self.hs = (f"f32[{m.layers},{s[4:]}" for s in (self.w, self.v, self.x, self.h))
        data = "{'data'}" if m.kind in ("fsdp", "both") else "{}"
        by_model = "{'model'}" if m.kind in ("tp", "both") else "{}"
        self.by_w = f"sharding={{{self.mesh}, [{{}}, {data}, {by_model}]}}"
        self.by_v = f"sharding={{{self.mesh}, [{{}}, {by_model}, {data}]}}"
        self.by_x = f"sharding={{{self.mesh}, [{{'data'}}, {{}}]}}"

    def forward(self, x: str, w: str, v: str, tag: str) -> str:
        """Lines that compute a layer: `t{tag}` and `y{tag}`."""
        return f"""  h{tag} = {self.h} dot({x}, {w}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  t{tag} = {self.h} tanh(h{tag})
  o{tag} = {self.x} dot(t{tag}, {v}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  y{tag} = {self.x} add({x}, o{tag})
"""

    def backward(self, x: str, t: str, w: str, v: str, g: str, tag: str) -> str:
        """Lines that compute the gradients of a layer: `gw{tag}`, `gv{tag}` and, of its input, `gx{tag}`."""
        return f"""  gv{tag} = {self.v} dot({t}, {g}), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  gt{tag} = {self.h} dot({g}, {v}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  unit{tag} = f32[] constant(1)
  ones{tag} = {self.h} broadcast(unit{tag}), dimensions={{}}
  tt{tag} = {self.h} multiply({t}, {t})
  slope{tag} = {self.h} subtract(ones{tag}, tt{tag})
  gh{tag} = {self.h} multiply(gt{tag}, slope{tag})
  gw{tag} = {self.w} dot({x}, gh{tag}), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  gi{tag} = {self.x} dot(gh{tag}, {w}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  gx{tag} = {self.x} add({g}, gi{tag})
"""

    def part(self, name: str, of: str, shape: str, place: str) -> str:
        dims = shape[4:-1]
        return f"""  {name}1 = f32[1,{dims}] dynamic-slice({of}, {place}, zero, zero), dynamic_slice_sizes={{1,{dims}}}
  {name} = {shape} reshape({name}1)
"""

    def write(self, name: str, into: str, value: str, shape: str, stack: str, place: str) -> str:
        return f"""  {name}1 = f32[1,{shape[4:]} reshape({value})
  {name} = {stack} dynamic-update-slice({into}, {name}1, {place}, zero, zero)
"""

    def condition(self, name: str, state: str, trips: int) -> str:
        return f"""{name} {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({trips})
  ROOT c = pred[] compare(i, n), direction=LT
}}
"""

    def body(self, name: str, state: str, elements: list[tuple[str, str]], lines: str, results: str) -> str:
        taken = "".join(
            f"  {n} = {s} get-tuple-element(s), index={k}\n" for k, (n, s) in enumerate(elements)
        )
        return (f"{name} {{\n  s = {state} parameter(0)\n{taken}  one = s32[] constant(1)\n  zero = s32[] constant(0)\n"
                f"  j = s32[] add(i, one)\n{lines}  ROOT next = {state} tuple({results})\n}}\n")  # fmt: skip

    def gradients(self) -> tuple[str, str]:
        """Computations for the loops, and lines that compute `gws`, `gvs` and `last` from x, w and v."""
        return self.in_loops() if self.m.loop else ("", self.written_out())

    def in_loops(self) -> tuple[str, str]:
        m = self.m
        up = [("i", "s32[]"), ("x", self.x), ("w", self.ws), ("v", self.vs), ("xs", self.xs), ("ts", self.hs)]
        down = [("i", "s32[]"), ("g", self.x), *up[2:], ("gws", self.ws), ("gvs", self.vs)]
        states = [f"({', '.join(s for _, s in e)})" for e in (up, down)]
        layer = self.part("wl", "w", self.w, "{}") + self.part("vl", "v", self.v, "{}")
        forth = (
            layer.replace("{}", "i") + self.forward("x", "wl", "vl", "")
            + self.write("nx", "xs", "x", self.x, self.xs, "i") + self.write("nt", "ts", "t", self.h, self.hs, "i")
        )  # fmt: skip
        back = (
            f"  top = s32[] constant({m.layers - 1})\n  k = s32[] subtract(top, i)\n" + layer.replace("{}", "k")
            + self.part("xl", "xs", self.x, "k") + self.part("tl", "ts", self.h, "k")
            + self.backward("xl", "tl", "wl", "vl", "g", "") + self.write("nw", "gws", "gw", self.w, self.ws, "k")
            + self.write("nv", "gvs", "gv", self.v, self.vs, "k")
        )  # fmt: skip
        computations = (
            self.condition("more_up", states[0], m.layers) + self.condition("more_down", states[1], m.layers)
            + self.body("up", states[0], up, forth, "j, y, w, v, nx, nt")
            + self.body("down", states[1], down, back, "j, gx, w, v, xs, ts, nw, nv")
        )  # fmt: skip
        shapes = {"xs": self.xs, "hs": self.hs, "ws": self.ws, "vs": self.vs}
        zeros = "  nil = f32[] constant(0)\n" + "".join(
            f"  z{n} = {s} broadcast(nil), dimensions={{}}\n" for n, s in shapes.items()
        )
        lines = f"""{zeros}  begin = s32[] constant(0)
  first = {states[0]} tuple(begin, x, w, v, zxs, zhs)
  forth = {states[0]} while(first), condition=more_up, body=up
  last = {self.x} get-tuple-element(forth), index=1
  kx = {self.xs} get-tuple-element(forth), index=4
  kt = {self.hs} get-tuple-element(forth), index=5
  second = {states[1]} tuple(begin, last, w, v, kx, kt, zws, zvs)
  back = {states[1]} while(second), condition=more_down, body=down
  gws = {self.ws} get-tuple-element(back), index=6
  gvs = {self.vs} get-tuple-element(back), index=7
"""
        return computations, lines

    def written_out(self) -> str:
        m, lines, x = self.m, "", "x"
        for n in range(m.layers):
            for name, shape in (("w", self.w), ("v", self.v)):
                lines += (f"  {name}_{n}1 = f32[1,{shape[4:]} slice({name}), slice={{[{n}:{n + 1}],"
                          + ",".join(f"[0:{d}]" for d in shape[4:-1].split(",")) + "}\n"
                          + f"  {name}_{n} = {shape} reshape({name}_{n}1)\n")  # fmt: skip
            lines += self.forward(x, f"w_{n}", f"v_{n}", f"_{n}")
            x = f"y_{n}"
        g = x
        for n in reversed(range(m.layers)):
            below = f"y_{n - 1}" if n else "x"
            lines += self.backward(below, f"t_{n}", f"w_{n}", f"v_{n}", g, f"_{n}")
            g = f"gx_{n}"
            for name, shape in (("gw", self.w), ("gv", self.v)):
                lines += f"  s{name}_{n} = f32[1,{shape[4:]} reshape({name}_{n})\n"
        for name, stack in (("gw", self.ws), ("gv", self.vs)):
            parts = ", ".join(f"s{name}_{n}" for n in range(m.layers))
            lines += f"  {name}s = {stack} concatenate({parts}), dimensions={{0}}\n"
        return lines + f"  last = {self.x} copy({x})\n"

    def program(self) -> str:
        m = self.m
        computations, lines = self.gradients()
        if m.micro > 1:
            more, lines = self.accumulated(lines)
            computations += more
        return f"""HloModule step, num_partitions={m.data * m.model}
{computations}ENTRY e {{
  w = {self.ws} parameter(0), {self.by_w}
  v = {self.vs} parameter(1), {self.by_v}
  x = {self.x} parameter(2), {self.by_x}
{lines}  rate = f32[] constant(0.01)
  rw = {self.ws} broadcast(rate), dimensions={{}}
  rv = {self.vs} broadcast(rate), dimensions={{}}
  dw = {self.ws} multiply(rw, gws)
  dv = {self.vs} multiply(rv, gvs)
  nw = {self.ws} subtract(w, dw), {self.by_w}
  nv = {self.vs} subtract(v, dv), {self.by_v}
  ROOT r = ({self.ws}, {self.vs}, {self.x}) tuple(nw, nv, last)
}}
"""

    def accumulated(self, lines: str) -> tuple[str, str]:
        """The same in a loop over micro-batches, which are x times 1, 2, ..; gradients are added up."""
        elements = [("i", "s32[]"), ("whole", self.x), ("w", self.ws), ("v", self.vs), ("aw", self.ws), ("av", self.vs)]
        state = f"({', '.join(s for _, s in elements)})"
        scaled = f"""  times = f32[] convert(j)
  many = {self.x} broadcast(times), dimensions={{}}
  x = {self.x} multiply(whole, many)
"""
        added = f"  bw = {self.ws} add(aw, gws)\n  bv = {self.vs} add(av, gvs)\n"
        body = self.body("micro", state, elements, scaled + lines + added, "j, last, w, v, bw, bv")
        outside = f"""  none = f32[] constant(0)
  aw = {self.ws} broadcast(none), dimensions={{}}
  av = {self.vs} broadcast(none), dimensions={{}}
  begin = s32[] constant(0)
  start = {state} tuple(begin, x, w, v, aw, av)
  all = {state} while(start), condition=more_micro, body=micro
  last = {self.x} get-tuple-element(all), index=1
  gws = {self.ws} get-tuple-element(all), index=4
  gvs = {self.vs} get-tuple-element(all), index=5
"""
        return body + self.condition("more_micro", state, self.m.micro), outside
