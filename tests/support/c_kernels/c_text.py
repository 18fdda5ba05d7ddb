"""Prints kernels as C with the vector extensions of gcc and clang: a second compiler must give the same bits as LLVM.

The semantics is that of the LLVM text, operation by operation. Masks are vectors of bytes 0 and -1. Compile with
`-ffp-contract=off -fwrapv`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.codegen.native.loops import (
    COMPARISONS,
    LANES,
    LOADS,
    Access,
    Do,
    Fold,
    Kernel,
    Lane,
    Nest,
    Node,
    Row,
    Store,
    Strip,
)

_C = {Lane.I8: "int8_t", Lane.I16: "int16_t", Lane.I32: "int32_t", Lane.I64: "int64_t", Lane.F32: "float",
      Lane.F64: "double", Lane.MASK: "int8_t"}  # fmt: skip

_HEAD = """#include <stdint.h>
#include <string.h>
#define EACH(r, e) for (int i = 0; i < 16; i++) r[i] = e;
#define CONVERT(x, t) __builtin_convertvector(x, t)
#define SELECT(m, x, y, v, w) ((v)((CONVERT(m, w) & (w)(x)) | (~CONVERT(m, w) & (w)(y))))
#define MAXIMUM(x, y, v, w) SELECT((x != x) | (y != y), x + y, (w)SELECT(CONVERT(x > y, vmask), x, y, v, w) & \\
    (w)SELECT(CONVERT(y > x, vmask), y, x, v, w), v, w)
#define MINIMUM(x, y, v, w) SELECT((x != x) | (y != y), x + y, (w)SELECT(CONVERT(x < y, vmask), x, y, v, w) | \\
    (w)SELECT(CONVERT(y < x, vmask), y, x, v, w), v, w)
typedef int8_t vmask __attribute__((vector_size(16)));
"""
_INFIX = {Do.ADD: "+", Do.SUB: "-", Do.MUL: "*", Do.DIV: "/", Do.SDIV: "/", Do.UDIV: "/", Do.SREM: "%", Do.UREM: "%",
          Do.AND: "&", Do.OR: "|", Do.XOR: "^", Do.SHL: "<<", Do.LSHR: ">>", Do.ASHR: ">>", Do.EQ: "==", Do.NE: "!=",
          Do.LT: "<", Do.LE: "<=", Do.ULT: "<", Do.ULE: "<="}  # fmt: skip
_UNSIGNED = frozenset((Do.UDIV, Do.UREM, Do.LSHR, Do.ULT, Do.ULE, Do.UMAXIMUM, Do.UMINIMUM))
_EACH = {Do.FMA: "fma", Do.SQRT: "sqrt", Do.FLOOR: "floor", Do.CEIL: "ceil", Do.TRUNC: "trunc", Do.RINT: "rint"}
_UNSIGNED_SOURCE = frozenset((Do.ZEXT, Do.FROM_UNSIGNED))


def c_text(kernel: Kernel, name: str = "kernel") -> str:
    """Returns a C file with one function `name`. The kernel must have no calls left."""
    printer = _Printer(kernel)
    for nest in kernel.nests:
        printer.rows(nest, 0)
    return f"{_HEAD}{_types()}void {name}(void **buffers) {{\n" + "\n".join(printer.lines) + "\n}\n"


def _types() -> str:
    text = ""
    for lane in _C:
        if lane is Lane.MASK:
            continue
        size = f"__attribute__((vector_size({LANES * lane.bits // 8})))"
        text += f"typedef {_C[lane]} v{lane.text} {size};\n"
        if not lane.is_float:
            text += f"typedef u{_C[lane]} vu{lane.bits} {size};\n"
        element, kind = _C[lane], f"v{lane.text}"
        text += (
            f"static inline {kind} load_{lane.text}(const {element} *p, int64_t s, vmask m) {{\n"
            f"  {kind} r; EACH(r, m[i] ? p[i * s] : 0) return r; }}\n"
            f"static inline void store_{lane.text}({element} *p, {kind} x, int64_t s, vmask m) {{\n"
            f"  for (int i = 0; i < 16; i++) if (m[i]) p[i * s] = x[i]; }}\n"
        )
    return text


def _first_lanes(count: int) -> str:
    return "((vmask){" + ", ".join("-1" if n < count else "0" for n in range(LANES)) + "})"


def _constant(bits: int, lane: Lane) -> str:
    if lane is Lane.MASK:
        return _first_lanes(LANES if bits else 0)
    return f"((v{lane.text})((vu{lane.bits}){{}} + (u{_C[lane.integer]})0x{bits:x}u{'ll' if lane.bits == 64 else ''}))"


class _Printer:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self.names = 0

    def new(self, lane: Lane, text: str) -> str:
        self.names += 1
        self.lines.append(f"v{lane.text} t{self.names} = {text};")
        return f"t{self.names}"

    def rows(self, nest: Nest, depth: int) -> None:
        if depth < len(nest.rows):
            self.lines.append(f"for (int64_t r{depth} = 0; r{depth} < {nest.rows[depth]}; r{depth}++) {{")
            self.rows(nest, depth + 1)
            self.lines.append("}")
            return
        known: dict[Node, str] = {}
        for step in nest.steps:
            if isinstance(step, Row):
                self.emit(step.nodes, known, "0", LANES)
                for store in step.stores:
                    self.store(nest, store, known, "0", 1)
            else:
                self.strips(nest, step, known)

    def strips(self, nest: Nest, strip: Strip, known: dict[Node, str]) -> None:
        accumulators = {f: [self.new(f.value.lane, _constant(f.identity, f.value.lane)) for _ in range(nest.unroll)]
                        for f in strip.folds}  # fmt: skip
        whole, tail = divmod(nest.columns, LANES)
        grouped = whole - whole % nest.unroll
        for first, last, copies in ((0, grouped, nest.unroll), (grouped, whole, 1)):
            if last > first:
                self.lines.append(f"for (int64_t c = {first * LANES}; c < {last * LANES}; c += {copies * LANES}) {{")
                for copy in range(copies):
                    self.copy(nest, strip, known, f"(c + {copy * LANES})", LANES, copy, accumulators)
                self.lines.append("}")
        if tail:
            self.lines.append("{")
            self.copy(nest, strip, known, str(whole * LANES), tail, 0, accumulators)
            self.lines.append("}")
        for fold, names in accumulators.items():
            known[fold.result] = self.folded(fold, names)

    def copy(
        self, nest: Nest, strip: Strip, known: dict[Node, str], column: str, count: int, copy: int,
        accumulators: dict[Fold, list[str]],
    ) -> None:  # fmt: skip
        own = dict(known)
        self.lines.append("{")
        self.emit(strip.nodes, own, column, count)
        for store in strip.stores:
            self.store(nest, store, own, column, count)
        for fold, names in accumulators.items():
            lane, value = fold.value.lane, self.value(fold.value, own)
            if count < LANES:
                other = _constant(fold.identity, lane)
                value = self.operation(Do.SELECT, lane, lane, [_first_lanes(count), value, other])
            self.lines.append(f"{names[copy]} = {self.operation(fold.do, lane, lane, [names[copy], value])};")
        self.lines.append("}")

    def folded(self, fold: Fold, names: list[str]) -> str:
        lane = fold.value.lane
        while len(names) > 1:
            names = [self.operation(fold.do, lane, lane, names[n : n + 2]) for n in range(0, len(names), 2)]
        value = names[0]
        for half in (8, 4, 2, 1):
            places = ", ".join(str((n + half) % LANES) for n in range(LANES))
            other = self.new(lane, f"__builtin_shufflevector({value}, {value}, {places})")
            value = self.operation(fold.do, lane, lane, [value, other])
        self.names += 1
        self.lines.append(f"v{lane.text} t{self.names}; EACH(t{self.names}, {value}[0])")
        return f"t{self.names}"

    def value(self, node: Node, known: dict[Node, str]) -> str:
        return _constant(node.data, node.lane) if node.do is Do.CONSTANT else known[node]

    def emit(self, nodes: tuple[Node, ...], known: dict[Node, str], column: str, count: int) -> None:
        for node in nodes:
            if node.do in LOADS:
                at, own = node.place_and_mask()
                mask = _first_lanes(count)
                if own is not None:
                    mask = f"({self.value(own, known)} & {mask})"
                if at is not None and not at.uniform:
                    place = f"{self.value(at, known)}[i] + i * {node.data.column}"
                    self.names += 1
                    known[node] = f"t{self.names}"
                    element = f"{mask}[i] ? ({self.place(node.data, column)})[{place}] : 0"
                    self.lines.append(f"v{node.lane.text} t{self.names}; EACH(t{self.names}, {element})")
                    continue
                further = f" + {self.value(at, known)}[0]" if at is not None else ""
                known[node] = self.load(node.data, node.lane, column, mask, further)
            elif node.do is Do.INDEX:
                self.names += 1
                counter = f"r{node.data}" if node.uniform else f"{column} + i"
                self.lines.append(f"v{node.lane.text} t{self.names}; EACH(t{self.names}, {counter})")
                known[node] = f"t{self.names}"
            elif node.do is not Do.CONSTANT:
                operands = [self.value(o, known) for o in node.operands]
                known[node] = self.operation(node.do, node.lane, node.operands[-1].lane, operands)

    def operation(self, do: Do, lane: Lane, source: Lane, x: Sequence[str]) -> str:
        """Prints one operation with results of type `lane`; `source` is the type of its last operand."""
        kind = f"v{lane.text}"
        if do in _EACH:
            word = f"__builtin_{_EACH[do]}{'f' if lane is Lane.F32 else ''}"
            self.names += 1
            name = f"t{self.names}"
            self.lines.append(f"{kind} {name}; EACH({name}, {word}({', '.join(f'{o}[i]' for o in x)}))")
            return name
        wide = "vmask" if lane is Lane.MASK else f"v{lane.integer.text}"
        if do is Do.SELECT:
            return self.new(lane, f"SELECT({', '.join(x)}, {kind}, {wide})")
        if do in (Do.MAXIMUM, Do.MINIMUM) and lane.is_float:
            return self.new(lane, f"{do.name}({', '.join(x)}, {kind}, {wide})")
        unsigned = f"(vu{source.bits})" if do in _UNSIGNED else ""
        if do in (Do.MAXIMUM, Do.MINIMUM, Do.UMAXIMUM, Do.UMINIMUM):
            sign = ">" if do in (Do.MAXIMUM, Do.UMAXIMUM) else "<"
            mask = f"CONVERT({unsigned}{x[0]} {sign} {unsigned}{x[1]}, vmask)"
            return self.new(lane, f"SELECT({mask}, {x[0]}, {x[1]}, {kind}, {wide})")
        if do in COMPARISONS and source is not Lane.MASK:
            return self.new(lane, f"CONVERT({unsigned}{x[0]} {_INFIX[do]} {unsigned}{x[1]}, vmask)")
        if do in _INFIX:
            return self.new(lane, f"({kind})({unsigned}{x[0]} {_INFIX[do]} {unsigned}{x[1]})")
        if do is Do.BITCAST:
            return self.new(lane, f"({kind}){x[0]}")
        if source is Lane.MASK:
            one = " & 1" if do is Do.ZEXT else ""
            return self.new(lane, f"CONVERT({x[0]}, {kind}){one}")
        if do is Do.TO_UNSIGNED:
            return self.new(lane, f"({kind})CONVERT({x[0]}, vu{lane.bits})")
        given = f"(vu{source.bits}){x[0]}" if do in _UNSIGNED_SOURCE else x[0]
        return self.new(lane, f"CONVERT({given}, {kind})")

    # -- memory

    def place(self, access: Access, column: str) -> str:
        lane = self.kernel.buffers[access.buffer]
        steps = [f"r{n} * {s}" for n, s in enumerate(access.strides[:-1]) if s]
        steps += [f"{column} * {access.column}"] if access.column else []
        return f"({_C[lane]} *)buffers[{access.buffer}] + ({' + '.join([str(access.offset), *steps])})"

    def load(self, access: Access, lane: Lane, column: str, mask: str, further: str = "") -> str:
        return self.new(lane, f"load_{lane.text}({self.place(access, column)}{further}, {access.column}, {mask})")

    def store(self, nest: Nest, store: Store, known: dict[Node, str], column: str, count: int) -> None:
        lane, value, mask = store.value.lane, self.value(store.value, known), _first_lanes(count)
        if store.do:
            later = " | ".join(["0", *(f"(r{n} != 0)" for n in store.combined_rows(nest.rows))])
            old = self.load(store.access, lane, column, mask)
            identity = _constant(store.identity, lane)
            old = self.operation(Do.SELECT, lane, lane, [f"((vmask){{}} - (int8_t)({later}))", old, identity])
            value = self.operation(store.do, lane, lane, [old, value])
        further = f" + {self.value(store.at, known)}[0]" if store.at is not None else ""
        place = self.place(store.access, column) + further
        self.lines.append(f"store_{lane.text}({place}, {value}, {store.access.column}, {mask});")
