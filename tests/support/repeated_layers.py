"""Random programs of many equal layers, forwards and backwards, in which one layer may differ."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

DIFFERENCES = ("none", "op", "annotation", "constant", "type", "shape")

_MESHES = ("'a'=2,'b'=2", "'a'=4,'b'=2", "'a'=2,'b'=3")
_DIVISIONS = ("{'a'}, {}", "{}, {'a'}", "{'a'}, {'b'}", "{'b'}, {}", "{}, {'a','b'}", "{}, {}", "{?}, {'b'}")
_KINDS = ("tanh", "add", "multiply", "up", "down", "norm", "turn", "constant", "iota")
_NARROW, _WIDE, _WEIGHT = "f32[8,16]", "f32[8,24]", "f32[16,24]"
_DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
_OUTER = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
_SUM = "add {\n  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n  ROOT s = f32[] add(p, q)\n}\n"

Value = tuple[str, str]  # name and shape


@dataclass
class _Step:
    """An op of the layer: its kind, the places of its operands among the values before it, and its annotation."""

    kind: str
    operands: tuple[float, float]
    annotation: str


@dataclass
class Program:
    """A random program; `difference` tells how one layer in the middle differs."""

    seed: int
    layers: int
    difference: str = "none"
    lines: list[str] = field(default_factory=list[str])
    parameters: list[str] = field(default_factory=list[str])
    results: list[Value] = field(default_factory=list[Value])

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.mesh = f"mesh[{self.random.choice(_MESHES)}]"

    def text(self) -> str:
        """The program as HLO text."""
        odd = self.random.randrange(2, self.layers - 2)
        forward = [self._step() for _ in range(self.random.randint(3, 8))]
        backward = [self._step() for _ in range(self.random.randint(0, 6))]
        up, down, between = self._sharding(0.7), self._sharding(0.5), self._sharding(0.3)
        shared = self._parameter("shared", _NARROW, self._sharding(0.5))
        stream = self._parameter("x", _NARROW, self._sharding(0.8))
        weights = [
            (self._parameter(f"w{n}", _WEIGHT, up), self._parameter(f"v{n}", "f32[24,16]", down))
            for n in range(self.layers)
        ]
        saved: list[list[Value]] = []
        for n, (_, v) in enumerate(weights):
            pool = [(stream, _NARROW), (shared, _NARROW)]
            self._layer(forward, pool, weights[n], f"f.{n}", self.difference if n == odd else "none")
            saved.append([p for p in pool if p[0] != shared])
            stream = self._line(f"y{n}", _NARROW, f"add({stream}, {self._narrow(pool, v, f'o{n}')})", between)
        for n in reversed(range(self.layers) if backward else ()):
            (w, v), pool = weights[n], [(stream, _NARROW), *saved[n]]
            self._layer(backward, pool, weights[n], f"b.{n}", "none")
            last, wide = self._narrow(pool, v, f"c.{n}"), self._wide(pool, w, f"d{n}")
            gradient = self._line(f"g{n}", _WEIGHT, f"dot({saved[n][0][0]}, {wide}), {_OUTER}")
            stream = self._line(f"z{n}", _NARROW, f"add({stream}, {last})")
            self.results.append((self._line(f"u.{n}", _WEIGHT, f"subtract({w}, {gradient})"), _WEIGHT))
        self.results.append((stream, _NARROW))
        names, shapes = zip(*self.results, strict=True)
        root = f"  ROOT r = ({', '.join(shapes)}) tuple({', '.join(names)})\n"
        return f"HloModule m\n{_SUM}ENTRY e {{\n{''.join(self.parameters)}{''.join(self.lines)}{root}}}\n"

    def _sharding(self, chance: float) -> str:
        if self.random.random() >= chance:
            return ""
        return f", sharding={{{self.mesh}, [{self.random.choice(_DIVISIONS)}]}}"

    def _step(self) -> _Step:
        place = self.random.random() ** 0.5, self.random.random()
        return _Step(self.random.choice(_KINDS), place, self._sharding(0.15))

    def _parameter(self, name: str, shape: str, annotation: str) -> str:
        self.parameters.append(f"  {name} = {shape} parameter({len(self.parameters)}){annotation}\n")
        return name

    def _line(self, name: str, shape: str, op: str, annotation: str = "") -> str:
        self.lines.append(f"  {name} = {shape} {op}{annotation}\n")
        return name

    def _wide(self, pool: list[Value], weight: str, name: str) -> str:
        found = next((v for v, s in reversed(pool) if s == _WIDE), "")
        return found or self._line(name, _WIDE, f"dot({pool[0][0]}, {weight}), {_DOT}")

    def _narrow(self, pool: list[Value], weight: str, name: str) -> str:
        value, shape = pool[-1]
        return value if shape == _NARROW else self._line(name, _NARROW, f"dot({value}, {weight}), {_DOT}")

    def _layer(
        self, steps: list[_Step], pool: list[Value], weights: tuple[str, str], tag: str, difference: str
    ) -> None:  # fmt: skip
        for number, step in enumerate(steps):
            name = f"{tag}.{number}"
            x, shape = pool[int(step.operands[0] * len(pool))]
            alike = [v for v, s in pool if s == shape]
            y, annotation = alike[int(step.operands[1] * len(alike))], step.annotation
            if number == len(steps) // 2 and difference == "annotation":
                annotation = f", sharding={{{self.mesh}, [{{'b'}}, {{'a'}}]}}"
            elif number == len(steps) // 2:
                x = self._odd(difference, name, x, shape)
            pool.append(self._op(step.kind, name, x, y, shape, weights, annotation))

    def _odd(self, difference: str, name: str, x: str, shape: str) -> str:
        """Adds the difference before a value is used."""
        if difference == "op":
            return self._line(f"{name}.odd", shape, f"sine({x})")
        if difference == "constant":
            one = self._line(f"{name}.one", "f32[]", "constant(2)")
            ones = self._line(f"{name}.ones", shape, f"broadcast({one}), dimensions={{}}")
            return self._line(f"{name}.odd", shape, f"multiply({x}, {ones})")
        if difference == "type":
            low = self._line(f"{name}.low", shape.replace("f32", "bf16"), f"convert({x})")
            return self._line(f"{name}.odd", shape, f"convert({low})")
        if difference == "shape":
            flat = self._line(f"{name}.flat", f"f32[{8 * int(shape[6:8])}]", f"reshape({x})")
            return self._line(f"{name}.odd", shape, f"reshape({flat})")
        return x

    def _op(
        self, kind: str, name: str, x: str, y: str, shape: str, weights: tuple[str, str], annotation: str
    ) -> Value:  # fmt: skip
        if kind in ("up", "down"):
            shape, weight = (_WIDE, weights[0]) if shape == _NARROW else (_NARROW, weights[1])
            return self._line(name, shape, f"dot({x}, {weight}), {_DOT}", annotation), shape
        if kind == "norm":
            zero = self._line(f"{name}.zero", "f32[]", "constant(0)")
            row = self._line(f"{name}.sum", "f32[8]", f"reduce({x}, {zero}), dimensions={{1}}, to_apply=add")
            wide = self._line(f"{name}.wide", shape, f"broadcast({row}), dimensions={{0}}")
            return self._line(name, shape, f"subtract({x}, {wide})", annotation), shape
        if kind == "turn":
            turned = f"f32[{shape[6:8]},8]"
            other = self._line(f"{name}.t", turned, f"transpose({x}), dimensions={{1,0}}", annotation)
            return self._line(name, shape, f"transpose({other}), dimensions={{1,0}}"), shape
        if kind == "constant":
            half = self._line(f"{name}.c", "f32[]", "constant(0.5)")
            y = self._line(f"{name}.i", shape, f"broadcast({half}), dimensions={{}}")
        elif kind == "iota":
            y = self._line(f"{name}.i", shape, "iota(), iota_dimension=1")
        if kind == "tanh":
            return self._line(name, shape, f"tanh({x})", annotation), shape
        return self._line(name, shape, f"{'add' if kind == 'add' else 'multiply'}({x}, {y})", annotation), shape
