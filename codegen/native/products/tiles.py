"""The machine code of matrix products by register tiles.

A tile is some rows times some vectors of columns. Its sums run over a block of the inner index: each step loads the
vectors of a row of the right matrix once, and multiplies them by one element of each row of the left. The right matrix
is packed first, the columns of a tile at a time, so that they are contiguous; the left may have any strides. The next
rows of the left are prefetched while a tile is computed, which gains most where matrices come from memory (Goto, van de
Geijn 2008, "Anatomy of high-performance matrix multiplication"; the left matrix is packed only where it lies by columns
whose cache lines crowd each other out, because a processor reads single elements of six rows as fast).

Sums of a block start at zero and are then added to the result. So an element's bits depend neither on the tile nor on
the processor, only on the length of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....cost.host import HOST
from ....ir.types.element_type import ElementType
from .arithmetic import Arithmetic
from .assembly import Assembly
from .panels import LANES, packed
from .subnormal import DECLARED, Watch, scaled, shift
from .vectors import Vectors, fetch, least

STEP = 16  # of the inner index, between which rows ahead are fetched
WORDS = 11  # of a product
FEW = 24  # rows, for which it does not pay to copy the right matrix


@dataclass(frozen=True, slots=True)
class Tile:
    """The largest tile: rows, vectors of columns, and elements of f32 in a vector."""

    rows: int
    vectors: int
    lanes: int
    has_status: bool = True  # the register of x86-64 with the flags of subnormal numbers

    def columns(self, bits: int) -> int:
        """The columns of a tile of numbers with this many bits."""
        return self.vectors * self.lanes * 32 // bits

    def is_watched(self, arithmetic: Arithmetic) -> bool:
        """Whether the register tells of subnormal numbers in this arithmetic."""
        return arithmetic.is_float and self.has_status


WIDEST = Tile(6, 4, 16)


def tile_of(features: str) -> Tile:
    """Returns the tile for a processor with these features, whose registers hold the sums, a row of vectors and an
    element.
    """
    names = features.split(",")
    if "+avx512f" in names and "-avx512f" not in names:
        return WIDEST
    return Tile(6, 4, 4, has_status=False) if "+neon" in names else Tile(6, 2, 8)


def tiles_text(
    shape: Tile, arithmetic: Arithmetic, name: str, arguments: str, narrow: ElementType | None = None
) -> str:  # fmt: skip
    """Returns the text of the function `name`, which multiplies matrices, of which the right one may be `narrow`.

    Words: m, n, k, the strides of left by row and inner, of right by inner and column, of out by row, where in scratch
    the panel and rows of the left matrix lie, and whether these are copied; all strides and offsets in bytes.
    """
    v = Vectors(arithmetic, shape.lanes * 32 // arithmetic.bits)
    is_watched = shape.is_watched(arithmetic)
    parts = [v.declarations(), DECLARED, packed(v, "packed"), packed(v, "scaled", None, *[scaled] * is_watched)]
    if narrow is not None:
        parts += [packed(v, "widened", narrow), packed(v, "wide_scaled", narrow, *[scaled] * is_watched)]
    for vectors in range(1, shape.vectors + 1):
        parts += [_tile(v, rows, vectors, is_watched) for rows in heights(shape)]
        parts.append(_panel(v, shape, vectors))
    return "\n".join([*parts, _blocks(v, shape, name, arguments, narrow is not None)])


def heights(shape: Tile) -> list[int]:
    """Returns the heights of tiles: the largest one, then powers of two for the remaining rows."""
    found = [shape.rows]
    while found[-1] > 1:
        found.append(1 << ((found[-1] - 1).bit_length() - 1))
    return found


_MATRICES = "ptr %a, i64 %row, i64 %inner, ptr %b, i64 %step, ptr %c, i64 %out"


def _tile(v: Vectors, rows: int, vectors: int, is_watched: bool) -> str:
    """Writes one tile. `last` are the lanes of its last vector; `ahead`, `apart` and `lines` are prefetches per step.
    """
    rest = f"i64 %k, i1 %add, {v.mask} %last, ptr %state, i32 %scaling, i64 %ahead, i64 %apart, i64 %lines"
    f = Assembly(f"define internal void @tile_{rows}_{vectors}({_MATRICES}, {rest}) noinline")
    cells = [(i, j) for i in range(rows) for j in range(vectors)]
    sums = {cell: f.value(f"alloca {v.kind}") for cell in cells}
    outs = [f.step("%c", str(i), "%out") for i in range(rows)]
    places = {(i, j): f.at(outs[i], j * v.lanes * v.size) for i, j in cells}
    for cell in cells:
        f.line(f"store {v.kind} zeroinitializer, ptr {sums[cell]}")
    for place in places.values():
        fetch(f, place, is_written=True)
    with f.loop("%k", by=STEP) as start:
        from_here = f.at(f.step("%a", start, "%inner"), "%ahead")
        with f.loop("%lines") as line:
            fetch(f, f.step(from_here, line, "%apart"))
        end = least(f, f.value(f"add i64 {start}, {STEP}"), "%k")
        with f.loop(end, start) as p:
            left, right = f.step("%a", p, "%inner"), f.step("%b", p, "%step")
            loaded = [v.load(f, f.at(right, j * v.lanes * v.size)) for j in range(vectors)]
            for i in range(rows):
                x = v.everywhere(f, f.step(left, str(i), "%row"))
                for j in range(vectors):
                    old = f.value(f"load {v.kind}, ptr {sums[i, j]}")
                    f.line(f"store {v.kind} {v.product_and(f, x, loaded[j], old)}, ptr {sums[i, j]}")
    watch = Watch(f, "%state")
    if is_watched:
        watch.read()
        with f.when(watch.now()[1]):
            for place in sums.values():
                x = f.value(f"load {v.kind}, ptr {place}")
                f.line(f"store {v.kind} {f.value(f'fmul {v.kind} {x}, {v.power(-2 * shift(v))}')}, ptr {place}")
    masks = [None] * (vectors - 1) + ["%last"]
    with f.when(f.nor(watch.has("%scaling"))):
        with f.when("%add"):
            for i, j in cells:
                one, other = v.load(f, places[i, j], masks[j]), f.value(f"load {v.kind}, ptr {sums[i, j]}")
                f.line(f"store {v.kind} {v.sum(f, one, other)}, ptr {sums[i, j]}")
        for i, j in cells:
            v.store(f, f.value(f"load {v.kind}, ptr {sums[i, j]}"), places[i, j], masks[j])
    return f.text()


def _panel(v: Vectors, shape: Tile, vectors: int) -> str:
    """Writes a column of tiles, for some vectors of columns, from the first row that is not done to a refused tile."""
    f = Assembly(f"define internal void @panel_{vectors}({_MATRICES}, i64 %m, i64 %k, i1 %add, i64 %tail, ptr %state)")
    watch, going = Watch(f, "%state"), f.value("alloca i1")
    at, undone = f.value("alloca i64"), f.value("alloca i64")  # the next row, and the rows of a refused tile
    rows, *rest = heights(shape)
    length = HOST.panel_rows + LANES  # of a row that is scaled
    copy = f.value(f"alloca [{-(-rows // v.lanes) * v.lanes * length} x {v.real}], align 64")
    mask, (scaling, is_scaled) = v.first(f, "%tail"), watch.now()
    row, inner = f.choice(is_scaled, str(length * v.size), "%row"), f.choice(is_scaled, str(v.size), "%inner")
    is_near = f.value(f"icmp eq i64 %inner, {v.size}")
    ahead = f.choice(is_near, f.integer("mul", "%row", rows), f.integer("mul", "%inner", STEP))
    apart = f.choice(is_near, "%row", "%inner")
    lines = f.choice(is_scaled, "0", f.choice(is_near, str(rows), str(STEP)))

    def fits(height: int) -> str:
        end = f.integer("add", f.value(f"load i64, ptr {at}"), height)
        is_well = f.value(f"icmp eq i64 {f.value(f'load i64, ptr {undone}')}, 0")
        return f.both(is_well, f.value(f"icmp sle i64 {end}, %m"))

    def run(height: int, fetch: str) -> None:
        start = f.value(f"load i64, ptr {at}")
        a, c = f.step("%a", start, "%row"), f.step("%c", start, "%out")
        with f.when(is_scaled):
            source = f"ptr {a}, i64 %row, i64 %inner, i64 {height}, i64 %k"
            f.line(f"call void @scaled({source}, ptr {copy}, i64 {length * v.size})")
        left = f"ptr {f.choice(is_scaled, copy, a, 'ptr')}, i64 {row}, i64 {inner}"
        sizes = f"i64 %k, i1 %add, {v.mask} {mask}, ptr %state, i32 {scaling}, {fetch}"
        f.line(f"call void @tile_{height}_{vectors}({left}, ptr %b, i64 %step, ptr {c}, i64 %out, {sizes})")
        f.line(f"store i64 {f.integer('add', start, height)}, ptr {at}")  # what comes next need not wait for flags
        f.line(f"store i64 {f.choice(watch.has(scaling), str(height), '0')}, ptr {undone}")

    f.line(f"store i64 {f.value(f'load i64, ptr {watch.done}')}, ptr {at}")
    f.line(f"store i64 0, ptr {undone}")
    f.line(f"store i1 {fits(rows)}, ptr {going}")
    with f.while_true(going):
        run(rows, f"i64 {ahead}, i64 {apart}, i64 {lines}")
        f.line(f"store i1 {fits(rows)}, ptr {going}")
    for height in rest:
        with f.when(fits(height)):
            run(height, "i64 0, i64 0, i64 0")
    done = f.integer("sub", f.value(f"load i64, ptr {at}"), f.value(f"load i64, ptr {undone}"))
    f.line(f"store i64 {done}, ptr {watch.done}")
    return f.text()


def _blocks(v: Vectors, shape: Tile, name: str, arguments: str, is_narrow: bool) -> str:
    """Writes the loops over blocks of rows and of the inner index, and over the panels of columns in them."""
    f = Assembly(f"define internal void @{name}({arguments})")
    watch, going = Watch(f, "%state"), f.value("alloca i1")
    m, n, k, a_row, a_inner, b_inner, b_column, out, offset, rows, turns = (f.word("%words", i) for i in range(WORDS))
    columns = shape.columns(v.arithmetic.bits)
    are_rows, is_low = f.value(f"icmp eq i64 {b_column}, {v.size}"), f.value(f"icmp slt i64 {m}, {FEW}")
    may_stay = "false" if is_narrow else f.both(are_rows, is_low)
    copying, scaling = ("widened", "wide_scaled") if is_narrow else ("packed", "scaled")
    panel, rows = f.at("%scratch", offset), f.at("%scratch", rows)
    is_copied = f.value(f"icmp ne i64 {turns}, 0")
    most = f.choice(is_copied, str(HOST.copied_rows), str(HOST.left_rows))
    with f.loop(m, by=most) as i, f.loop(k, by=HOST.panel_rows) as p:
        height = least(f, f.integer("sub", m, i), most)
        length = least(f, f.integer("sub", k, p), str(HOST.panel_rows))
        left, right = f.cell("%a", (i, a_row), (p, a_inner)), f.step("%b", p, b_inner)
        long = f.integer("mul", f.integer("and", f.integer("add", length, 2 * LANES - 1), -LANES), v.size)
        with f.when(is_copied):
            copied = f"ptr {left}, i64 {a_row}, i64 {a_inner}, i64 {height}, i64 {length}"
            f.line(f"call void @packed({copied}, ptr {rows}, i64 {long})")
        left, row = f.choice(is_copied, rows, left, "ptr"), f.choice(is_copied, long, a_row)
        inner = f.choice(is_copied, str(v.size), a_inner)
        add = f.value(f"or i1 %add, {f.value(f'icmp sgt i64 {p}, 0')}")
        with f.loop(n, by=columns) as j:
            width = least(f, f.integer("sub", n, j), str(columns))
            last = f.integer("sdiv", f.integer("sub", width, 1), v.lanes)
            tail = f.integer("sub", width, f.integer("mul", last, v.lanes))
            wide = f.integer("mul", f.integer("add", last, 1), v.lanes * v.size)
            stays = f.both(may_stay, f.value(f"icmp eq i64 {tail}, {v.lanes}"))
            source = f.step(right, j, b_column)
            copied = f"ptr {source}, i64 {b_inner}, i64 {b_column}, i64 {length}, i64 {width}, ptr {panel}, i64 {wide}"
            c = f.cell("%c", (i, out), (j, str(v.size)))
            f.line(f"store i64 0, ptr {watch.done}")
            f.line(f"store i1 true, ptr {going}")
            with f.while_true(going):
                _, is_scaled = watch.now()
                with f.when(is_scaled):
                    f.line(f"call void @{scaling}({copied})")
                with f.when(f.nor(stays, is_scaled)):
                    f.line(f"call void @{copying}({copied})")
                stays = f.both(stays, f.nor(is_scaled))
                b, step = f.choice(stays, source, panel, "ptr"), f.choice(stays, b_inner, wide)
                matrices = f"ptr {left}, i64 {row}, i64 {inner}, ptr {b}, i64 {step}, ptr {c}, i64 {out}"
                sizes = f"i64 {height}, i64 {length}, i1 {add}, i64 {tail}, ptr %state"
                for vectors in range(1, shape.vectors + 1):
                    with f.when(f.value(f"icmp eq i64 {last}, {vectors - 1}")):
                        f.line(f"call void @panel_{vectors}({matrices}, {sizes})")
                is_left = f.value(f"icmp slt i64 {f.value(f'load i64, ptr {watch.done}')}, {height}")
                with f.when(is_left):
                    watch.advance()
                f.line(f"store i1 {is_left}, ptr {going}")
    return f.text()
