"""The programs to whose times `hloom machine calibrate` fits the speed of native code.

Each is a chain of equal stages, long enough that what a run costs by itself is a small part. Shapes and ops vary, so
that each kind of work prevails in some: ops on elements, functions, conversions, sums and extremes along short and long
rows and across rows, moves, products of several sizes, convolutions, loops, and ops that numpy computes. Some read
arrays that caches no longer hold, or that have the same place in them, and some do other work beside (`native_cold`).
"""

from __future__ import annotations

from collections.abc import Iterator

from .native_cold import with_others, with_updates
from .native_images import convolutions
from .native_moves import moves
from .native_nests import nests

_REDUCERS = """add {{ a = {t}[] parameter(0)
 b = {t}[] parameter(1)
 ROOT r = {t}[] add(a, b) }}
max {{ a = {t}[] parameter(0)
 b = {t}[] parameter(1)
 ROOT r = {t}[] maximum(a, b) }}
"""
_SOFTMAX = """m = {t}[{R}] reduce(v, low), dimensions={{1}}, to_apply=max
mb = {s} broadcast(m), dimensions={{0}}
d = {s} subtract(v, mb)
e = {s} exponential(d)
s = {t}[{R}] reduce(e, z), dimensions={{1}}, to_apply=add
sb = {s} broadcast(s), dimensions={{0}}
r = {s} divide(e, sb)"""
_NORM = """q = {s} multiply(v, v)
s = {t}[{R}] reduce(q, z), dimensions={{1}}, to_apply=add
k = {t}[{R}] broadcast(c), dimensions={{}}
a = {t}[{R}] add(s, k)
k1 = {t}[{R}] rsqrt(a)
ib = {s} broadcast(k1), dimensions={{0}}
r = {s} multiply(v, ib)"""
_COLUMNS = """s = {t}[{C}] reduce(v, z), dimensions={{0}}, to_apply=add
q = {t}[{C}] opt-barrier(s)
b = {s} broadcast(q), dimensions={{1}}
r = {s} subtract(v, b)"""
_MASK = """x = s32[{R},{C}] iota(), iota_dimension=0
y = s32[{R},{C}] iota(), iota_dimension=1
p = pred[{R},{C}] compare(x, y), direction=GE
k = {s} broadcast(c), dimensions={{}}
r = {s} select(p, v, k)"""
_TURN = """t = {t}[{C},{R}] transpose(v), dimensions={{1,0}}
u = {t}[{C},{R}] negate(t)
q = {t}[{C},{R}] opt-barrier(u)
r = {s} reshape(q)"""
_SCALE = """b = {s} broadcast(w), dimensions={{1}}
p = {s} multiply(v, b)
r = {s} add(p, b)"""
_CONVERT = """f = f32[{R},{C}] convert(v)
q = f32[{R},{C}] multiply(f, f)
a = f32[{R},{C}] add(q, f)
r = {s} convert(a)"""
_POWERS = "\n".join(
    line for n in range(8)
    for line in (f"p{n} = {{s}} multiply({f'a{n - 1}' if n else 'v'}, v)", f"a{n} = {{s}} add(p{n}, v)")
) + "\nr = {s} negate(a7)"  # fmt: skip
_ADAM = """mn = {s} add(v, v)
q = {s} multiply(v, v)
g = {s} sqrt(q)
k = {s} broadcast(c), dimensions={{}}
e = {s} add(g, k)
u = {s} divide(mn, e)
r = {s} subtract(v, u)"""

_PART = """q = {t}[1,{C}] dynamic-slice(v, i, i), dynamic_slice_sizes={{1,{C}}}
b = {t}[1,{C}] opt-barrier(q)
n = {t}[{C}] reshape(b)
g = {s} broadcast(n), dimensions={{1}}
r = {s} add(v, g)"""
_ROWS = """q = {s} gather(v, j), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}}, {ROW}
b = {s} opt-barrier(q)
r = {s} negate(b)"""
_UPDATE = """u = {s} negate(v)
q = {t}[1,{C}] slice(v), slice={{[0:1], [0:{C}]}}
d = {s} dynamic-update-slice(u, q, o, o)
r = {s} add(d, u)"""

_STAGES: tuple[tuple[str, str, tuple[int, int], int], ...] = (
    ("r = {s} negate(v)", "f32", (1, 16), 100),
    ("n = {s} negate(v)\nr = {s} add(n, v)", "f32", (32, 128), 60),
    ("n = {s} negate(v)\nr = {s} add(n, v)", "f32", (128, 128), 30),
    (_POWERS, "f32", (64, 128), 40),
    (_POWERS, "bf16", (64, 64), 30),
    ("r = {s} exponential(v)", "f32", (64, 128), 30),
    ("r = {s} tanh(v)", "f32", (64, 128), 20),
    ("r = {s} logistic(v)", "bf16", (32, 128), 20),
    (_ADAM, "f32", (64, 128), 30),
    (_CONVERT, "bf16", (64, 128), 40),
    ("k = {s} broadcast(c), dimensions={{}}\nr = {s} maximum(v, k)", "f32", (64, 128), 40),
    (_MASK, "f32", (128, 64), 30),
    (_SOFTMAX, "f32", (512, 16), 10),
    (_SOFTMAX, "f32", (128, 128), 10),
    (_SOFTMAX, "f32", (16, 2048), 10),
    (_SOFTMAX, "f32", (1024, 4), 10),
    (_SOFTMAX, "bf16", (128, 64), 10),
    (_NORM, "f32", (256, 32), 15),
    (_NORM, "f32", (64, 512), 15),
    (_NORM, "bf16", (64, 64), 15),
    (_COLUMNS, "f32", (512, 16), 10),
    (_COLUMNS, "f32", (256, 128), 10),
    (_COLUMNS, "f32", (2048, 4), 10),
    (_SCALE, "f32", (2048, 4), 10),
    (_SCALE, "f32", (512, 24), 10),
    (_TURN, "f32", (128, 128), 10),
    (_TURN, "f32", (16, 256), 20),
    (_TURN, "f32", (64, 1024), 5),
    (_TURN, "f32", (64, 512), 5),
    (_TURN, "f32", (1024, 512), 2),
    (_TURN, "bf16", (1024, 64), 5),
    (_TURN, "bf16", (64, 96), 20),
    ("n = {s} negate(v)\nr = {s} add(n, v)", "f32", (1024, 512), 6),
    (_ADAM, "f32", (1024, 1024), 3),
    ("n = {s} negate(v)\nr = {s} add(n, v)", "f32", (2048, 2048), 2),
    ("r = {s} cosine(v)", "f32", (32, 64), 20),
    (_PART, "f32", (32, 256), 20),
    (_PART, "bf16", (4, 4096), 20),
    (_ROWS, "f32", (64, 64), 10),
    (_UPDATE, "f32", (4, 64), 10),
    (_UPDATE, "f32", (256, 512), 5),
)
"""Stages on v, their type, rows and columns, and how many follow each other."""

_PRODUCTS: tuple[tuple[str, int, int, int, int, str, int], ...] = (
    ("f32", 1, 16, 16, 16, "n", 40),
    ("f32", 1, 64, 64, 64, "n", 30),
    ("f32", 1, 128, 512, 128, "n", 10),
    ("f32", 1, 512, 128, 96, "n", 10),
    ("f32", 1, 256, 256, 256, "n", 6),
    ("f32", 1, 512, 768, 512, "n", 1),
    ("f32", 1, 64, 256, 128, "t", 10),
    ("f32", 1, 256, 64, 64, "c", 10),
    ("f32", 32, 16, 16, 16, "n", 10),
    ("f32", 32, 16, 16, 16, "t", 10),
    ("f32", 16, 64, 16, 64, "t", 10),
    ("f32", 64, 8, 8, 4, "n", 10),
    ("f32", 1, 1, 256, 256, "n", 10),
    ("f32", 1, 8, 256, 512, "n", 10),
    ("f32", 256, 1, 16, 4, "n", 10),
    ("f32", 64, 1, 64, 64, "n", 4),
    ("f32", 64, 1, 16, 256, "n", 4),
    ("f32", 1, 1, 1024, 1024, "n", 4),
    ("f32", 48, 24, 32, 1, "n", 10),
    ("f32", 96, 8, 48, 1, "n", 10),
    ("f32", 128, 1, 12, 24, "n", 10),
    ("f32", 48, 12, 20, 2, "t", 10),
    ("f32", 32, 24, 128, 4, "t", 6),
    ("f32", 16, 160, 192, 3, "n", 3),
    ("bf16", 48, 12, 8, 1, "n", 10),
    ("f32", 1, 3, 2, 3, "n", 40),
    ("bf16", 1, 64, 64, 64, "n", 20),
    ("bf16", 1, 128, 256, 64, "n", 10),
    ("bf16", 32, 16, 8, 16, "t", 10),
)
"""Type, batch, rows, inner, columns, whether the right or the left matrix lies by columns, and how many products."""

_LOOPS = (
    (64, 50, 0), (64, 2, 0), (64, 2000, 0), (32768, 2, 0), (16384, 3, 4), (8192, 3, 12), (16384, 4, 8), (64, 2, 24),
    (16, 3, 48), (16384, 2, 24),
)  # fmt: skip
_MANY = ((16384, 4, 6), (32768, 2, 10))
"""Elements, trips, and stacks that each trip writes, of loops in machine code; also with many kernels between."""

_BY_PYTHON = ((64, 10, 1), (64, 4, 6), (2048, 4, 4))
"""The same of loops that Python runs."""

_WEIGHTS = (
    (16384, 3, 10, 10), (16384, 2, 40, 40), (32768, 2, 24, 24), (64, 3, 40, 40), (16384, 2, 40, 4), (32768, 3, 20, 60),
    (16384, 3, 12, 120), (64, 2, 12, 120),
)  # fmt: skip
"""The elements of the arrays of a loop, its trips, the number of arrays, and that of the kernels that read one."""

_COLD = (
    ("f32", 256, 256, 2, 10), ("f32", 512, 128, 4, 6), ("bf16", 256, 256, 3, 16), ("f32", 64, 128, 6, 40),
    ("f32", 512, 512, 3, 16),
)  # fmt: skip
"""Type, rows and columns of arrays, the number of those that an update reads, and how many updates there are."""

_PASSED = ((48, False), (40, True), (120, True))
"""Parameters that a program returns, as they are or turned."""

_WINDOWS = (
    ("f32", 16, 9, False), ("f32", 64, 9, False), ("bf16", 16, 9, False), ("bf16", 96, 9, False), ("f32", 24, 2, True),
    ("f32", 64, 3, True), ("bf16", 16, 3, True), ("bf16", 96, 2, True),
)  # fmt: skip
"""Type, side of an array with eight channels and of the windows over it, and whether they select elements. Native code
has those of few elements, numpy the others.
"""

_LAYERS = (
    ("f32", 64, 128, 40, "r = {s} tanh(v)"), ("bf16", 128, 64, 60, "r = {s} exponential(v)"),
    ("f32", 32, 256, 20, _NORM), ("bf16", 128, 96, 40, _NORM), ("f32", 256, 64, 60, _SOFTMAX),
)  # fmt: skip
"""Type, rows and columns, layers with weights of their own, and the ops after each product."""

_UPDATES = (("f32", 64, 128, 60), ("f32", 256, 256, 12), ("bf16", 128, 64, 60))
"""Type, rows and columns of arrays, and how many of them are updated, each by another one."""

_LONGER = 4  # so that a run by itself takes little of the time


def native_programs() -> Iterator[str]:
    """Yields the texts of the programs."""
    for body, element, (rows, columns), count in _STAGES:
        yield _chain(body, element, rows, columns, _LONGER * count)
    for product in _PRODUCTS:
        yield _products(product)
    for convolution in convolutions():
        yield _convolutions(*convolution)
    for layers in _LAYERS:
        yield _layers(*layers)
    for updates in _UPDATES:
        yield _updates(*updates)
    for weights in _WEIGHTS:
        yield _weights(*weights)
        yield with_others(_weights(*weights))
    for cold in _COLD:
        yield _cold(*cold)
    for passed in _PASSED:
        yield _passed(*passed)
        yield with_others(_passed(*passed))
    for windows in _WINDOWS:
        yield _windows(*windows)
    for windows in _WINDOWS[::3]:
        yield with_others(_windows(*windows))
        yield with_updates(_windows(*windows))
    for weights in _WEIGHTS[:4]:
        yield with_updates(_weights(*weights))
    for body, element, (rows, columns), _ in _STAGES[:3]:
        yield with_updates(_chain(body, element, rows, columns, 1))
    for loops, kernels, by_python in ((_LOOPS, 1, False), (_MANY, 8, False), (_BY_PYTHON, 1, True)):
        for width, trips, stacks in loops:
            yield _loop(width, trips, stacks, kernels, by_python)
    yield from nests()
    yield from moves()


def _text(lines: list[str], element: str = "f32", others: str = "") -> str:
    *before, last = lines
    body = "\n".join([*before, f"ROOT {last}"])
    return f"HloModule calibrate\n{_REDUCERS.format(t=element)}{others}ENTRY e {{\n{body}\n}}"


def _chain(body: str, element: str, rows: int, columns: int, count: int) -> str:
    shape = f"{element}[{rows},{columns}]"
    lines = [f"v0 = {shape} parameter(0)", f"w = {element}[{columns}] parameter(1)", "i = s32[] parameter(2)",
             f"j = s32[{rows},1] parameter(3)", *_constants(element)]  # fmt: skip
    for n in range(count):
        lines += [*_stage(body, element, rows, columns, n), f"v{n + 1} = {shape} opt-barrier(r_{n})"]
    return _text(lines, element)


def _layers(element: str, rows: int, columns: int, count: int, body: str) -> str:
    """Returns layers of a product and other ops, and the products of their gradients by the weights."""
    shape, weight = f"{element}[{rows},{columns}]", f"{element}[{columns},{columns}]"
    lines = [f"x0 = {shape} parameter(0)", *_constants(element)]
    lines += [f"w{n} = {weight} parameter({n + 1})" for n in range(count)]
    for n in range(count):
        lines.append(f"v{n} = {shape} dot(x{n}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}")
        lines += [*_stage(body, element, rows, columns, n), f"x{n + 1} = {shape} copy(r_{n})"]
    grown = [f"g{n} = {weight} dot(x{n}, r_{n}), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}"
             for n in reversed(range(count))]  # fmt: skip
    return _text([*lines, *grown, *_all([f"g{n}" for n in range(count)], weight)], element)


def _updates(element: str, rows: int, columns: int, count: int) -> str:
    shape = f"{element}[{rows},{columns}]"
    lines = [f"{name}{n} = {shape} parameter({2 * n + k})" for n in range(count) for k, name in enumerate("vm")]
    lines += _constants(element)
    for n in range(count):
        lines += [*_stage(_ADAM, element, rows, columns, n), f"y{n} = {shape} multiply(r_{n}, m{n})"]
    return _text([*lines, *_all([f"y{n}" for n in range(count)], shape)], element)


def _cold(element: str, rows: int, columns: int, reads: int, count: int) -> str:
    """Returns sums of arrays, each of its own ones, so that caches do not hold them when they are read again."""
    shape = f"{element}[{rows},{columns}]"
    lines = [f"x{n}_{k} = {shape} parameter({reads * n + k})" for n in range(count) for k in range(reads)]
    for n in range(count):
        lines += [f"y{n}_{k} = {shape} add({f'y{n}_{k - 1}' if k > 1 else f'x{n}_0'}, x{n}_{k})"
                  for k in range(1, reads)]  # fmt: skip
    return _text([*lines, *_all([f"y{n}_{reads - 1}" for n in range(count)], shape)], element)


def _weights(width: int, trips: int, count: int, kernels: int) -> str:
    """Returns a loop whose trips add arrays of its state to another one, each by a kernel."""
    array = f"f32[{width}]"
    body = [f"w{n} = {array} get-tuple-element(p), index={n + 2}" for n in range(count)]
    for n in range(kernels):
        body += [f"a{n} = {array} add(y{n}, w{n % count})", f"y{n + 1} = {array} opt-barrier(a{n})"]
    body.append(f"x = {array} get-tuple-element(p), index=1")
    body = [body[-1], f"y0 = {array} negate(x)", *body[:-1]]
    return _while(trips, [array] * (count + 1), body, [f"y{kernels}", *(f"w{n}" for n in range(count))])


def _passed(count: int, turned: bool) -> str:
    lines = [f"x{n} = f32[8,16] parameter({n})" for n in range(count)]
    shape, text = ("f32[16,8]", "transpose({}), dimensions={{1,0}}") if turned else ("f32[8,16]", "opt-barrier({})")
    lines += [f"y{n} = {shape} {text.format(f'x{n}')}" for n in range(count)]
    return _text([*lines, *_all([f"y{n}" for n in range(count)], shape)])


def _windows(element: str, side: int, size: int, selects: bool) -> str:
    fewer = (side - size) // 2 + 1
    image, pooled = f"{element}[{side},{side},8]", f"{element}[{fewer},{fewer},8]"
    window = f"window={{size={size}x{size}x1 stride=2x2x1}}"
    lines = [f"x = {image} parameter(0)", f"y = {pooled} parameter(1)", *_constants(element)]
    if selects:
        text = f"{image} select-and-scatter(x, y, z), {window}, select=ge, scatter=add"
    else:
        text = f"{pooled} reduce-window(x, low), {window}, to_apply=max"
    ge = f"ge {{ a = {element}[] parameter(0)\n b = {element}[] parameter(1)\n"
    ge += " ROOT r = pred[] compare(a, b), direction=GE }\n"
    return _text([*lines, f"r = {text}"], element, ge)


def _constants(element: str) -> list[str]:
    return [f"c = {element}[] constant(0.5)", f"z = {element}[] constant(0)", "o = s32[] constant(0)",
            f"low = {element}[] constant(-inf)"]  # fmt: skip


def _stage(body: str, element: str, rows: int, columns: int, number: int) -> list[str]:
    row = f"index_vector_dim=1, slice_sizes={{1,{columns}}}"
    stage = body.format(t=element, s=f"{element}[{rows},{columns}]", R=rows, C=columns, ROW=row)
    return [_renamed(line, number, {"w", "c", "z", "o", "low", "v", "i", "j"}) for line in stage.splitlines()]


def _renamed(line: str, stage: int, shared: set[str]) -> str:
    """Gives the values of a line the number of its stage."""
    name, rest = line.split(" = ", 1)
    head, arguments = rest.split("(", 1)
    operands, end = arguments.split(")", 1)
    names = [o.strip() for o in operands.split(",") if o.strip()]
    named = [f"v{stage}" if o == "v" else o if o in shared else f"{o}_{stage}" for o in names]
    return f"{name}_{stage} = {head}({', '.join(named)}){end}"


def _products(product: tuple[str, int, int, int, int, str, int]) -> str:
    element, batch, rows, inner, columns, kind, times = product
    count = _LONGER * times
    lefts = (inner, rows) if kind == "c" else (rows, inner)
    rights = (columns, inner) if kind == "t" else (inner, columns)
    left, right, out = (f"{element}[{batch},{a},{b}]" for a, b in (lefts, rights, (rows, columns)))
    where = f"lhs_contracting_dims={{{1 if kind == 'c' else 2}}}, rhs_contracting_dims={{{2 if kind == 't' else 1}}}"
    where += ", lhs_batch_dims={0}, rhs_batch_dims={0}"
    lines = [f"w = {right} parameter(0)", *(f"x{n} = {left} parameter({n + 1})" for n in range(2))]
    lines += [f"y{n} = {out} dot(x{n % 2}, w), {where}" for n in range(count)]
    return _text([*lines, *_all([f"y{n}" for n in range(count)], out)])


def _convolutions(element: str, lines: list[str], made: list[tuple[str, str]]) -> str:
    names = [f"y{n}" for n in range(len(made))]
    lines = [*lines, *(f"{name} = {shape} {text}" for name, (shape, text) in zip(names, made, strict=True))]
    return _text([*lines, *_all(names, made[0][0])], element)


def _all(names: list[str], shape: str) -> list[str]:
    """Returns lines that need all of these values."""
    return [f"r = ({', '.join([shape] * len(names))}) tuple({', '.join(names)})"]


def _loop(width: int, trips: int, stacks: int, kernels: int, by_python: bool) -> str:
    """Returns a loop that changes an array by kernels, and puts it into stacks; into new ones if it is to run
    `by_python`, as updates at unsigned indices of 64 bits do.
    """
    array, stack = f"f32[{width}]", f"f32[{trips},{width}]"
    index = "u64" if by_python else "s32"
    body = [f"o = {index}[] constant(0)", f"at = {index}[] convert(i)"]
    body += [f"x = {array} get-tuple-element(p), index=1", f"y0 = {array} add(x, x)"]
    for n in range(stacks):
        given = f"{'given' if by_python else 'old'}{n}"
        body += [f"{given} = {stack} get-tuple-element(p), index={n + 2}", f"q{n} = f32[1,{width}] reshape(y{n})"]
        if by_python:
            body.append(f"old{n} = {stack} negate(given{n})")
        body.append(f"new{n} = {stack} dynamic-update-slice(old{n}, q{n}, at, o)")
        body.append(f"y{n}_0 = {array} negate(y{n})")
        for k in range(kernels):
            body += [f"b{n}_{k} = {array} opt-barrier(y{n}_{k})", f"y{n}_{k + 1} = {array} negate(b{n}_{k})"]
        body.append(f"y{n + 1} = {array} opt-barrier(y{n}_{kernels})")
    return _while(trips, [array, *[stack] * stacks], body, [f"y{stacks}", *(f"new{n}" for n in range(stacks))])


def _while(trips: int, shapes: list[str], body: list[str], results: list[str]) -> str:
    """Returns a loop over a state of a counter and these arrays. Its body reads the state p, and makes the results."""
    state = f"(s32[], {', '.join(shapes)})"
    counter = [f"p = {state} parameter(0)", "i = s32[] get-tuple-element(p), index=0"]
    body = [*counter, "k = s32[] constant(1)", "j = s32[] add(i, k)", *body,
            f"ROOT t = {state} tuple({', '.join(['j', *results])})"]  # fmt: skip
    test = [*counter, f"n = s32[] constant({trips})", "ROOT c = pred[] compare(i, n), direction=LT"]
    others = "".join(f"{name} {{\n{chr(10).join(lines)}\n}}\n" for name, lines in (("body", body), ("test", test)))
    lines = ["i = s32[] constant(0)", *(f"x{n} = {s} parameter({n})" for n, s in enumerate(shapes))]
    names = ", ".join(["i", *(f"x{n}" for n in range(len(shapes)))])
    lines += [f"t = {state} tuple({names})", f"w = {state} while(t), condition=test, body=body"]
    return _text(lines, others=others)
