"""Packs columns of a matrix into panels, in which the rows of a tile are contiguous."""

from __future__ import annotations

from collections.abc import Callable

from ....cost.host import HOST
from ....ir.types.element_type import ElementType
from ..turned import turned
from .arithmetic import Arithmetic
from .assembly import Assembly
from .narrow import REST, NarrowVectors
from .vectors import Vectors, fetch

Scale = Callable[[Assembly, Vectors, str], str]
AHEAD = 8  # rows to fetch before they are copied
WIDEST, LANES = 64, 16  # columns of a panel, and of a vector, on any processor


def panel_size(columns: int, inner: int) -> int:
    """Returns the largest number of scratch elements that the panels of a matrix take."""
    width = min(-(-columns // LANES) * LANES, WIDEST)
    return width * -(-min(inner, HOST.panel_rows) // LANES) * LANES


def rows_size(rows: int, inner: int) -> int:
    """Returns the largest number of scratch elements that a block of rows takes, with a vector more for each: rows at
    a distance of a power of two would share few places in the caches.
    """
    rows, inner = min(rows, HOST.copied_rows), min(inner, HOST.panel_rows)
    return -(-rows // LANES) * LANES * (-(-inner // LANES) + 1) * LANES


def packed(
    v: Vectors, name: str, narrow: ElementType | None = None, scale: Scale = lambda _f, _v, x: x
) -> str:  # fmt: skip
    """Copies k rows of some columns into a panel of rows of `%wide` bytes, widened from a narrow type and scaled. Lanes
    after the last column are 0, since sums of the numbers that were there might set flags of the processor.
    """
    arguments = "ptr %b, i64 %inner, i64 %column, i64 %k, i64 %columns, ptr %panel, i64 %wide"
    f, one = Assembly(f"define internal void @{name}({arguments}) noinline"), Vectors(v.arithmetic, 1)
    source, single = (x if narrow is None else NarrowVectors(x, narrow) for x in (v, one))
    apart = None
    if narrow is not None:
        f.line(f"{REST} = alloca [{4 * LANES} x i8], align 64")
        apart = f.integer("sdiv", "%inner", 2)
    near = f"%column, {source.size}", f"%inner, {source.near}"
    are_rows, are_columns = (f.value(f"icmp eq i64 {pair}") for pair in near)
    with f.when(are_rows), f.loop("%k") as p:
        row, target = f.step("%b", p, "%inner"), f.step("%panel", p, "%wide")
        later = f.step(row, str(AHEAD), "%inner")
        with f.loop("%columns", by=v.lanes) as j:
            place = f.step(later, j, str(source.size))
            fetch(f, place)
            if v.arithmetic is Arithmetic.PAIRS:
                fetch(f, f.at(place, apart or 0))
            limit = source.first(f, f.integer("sub", "%columns", j))
            loaded = source.load(f, f.step(row, j, str(source.size)), limit, apart)
            v.store(f, scale(f, v, loaded), f.step(target, j, str(v.size)))
    are_columns = f.both(f.nor(are_rows), are_columns)
    with f.when(are_columns), f.loop("%columns", by=v.lanes) as j, f.loop("%k", by=v.lanes) as p:
        limit = source.first(f, f.integer("sub", "%k", p))
        rows: list[str] = []
        for t in range(v.lanes):
            at = f.integer("add", j, t)
            there = f.choice(f.value(f"icmp slt i64 {at}, %columns"), limit, source.nothing, source.limit)
            rows.append(source.load(f, f.cell("%b", (at, "%column"), (p, str(source.near))), there))
        target = f.cell("%panel", (p, "%wide"), (j, str(v.size)))
        for t, row in enumerate(turned(f.value, v.kind, rows)):
            v.store(f, scale(f, v, row), f.step(target, str(t), "%wide"))
    with f.when(f.nor(are_rows, are_columns)), f.loop("%k") as p:
        v.store(f, "zeroinitializer", f.at(f.step("%panel", f.integer("add", p, 1), "%wide"), -v.lanes * v.size))
        with f.loop("%columns") as j:
            x = single.load(f, f.cell("%b", (p, "%inner"), (j, "%column")), None, apart)
            one.store(f, scale(f, one, x), f.cell("%panel", (p, "%wide"), (j, str(v.size))))
    return f.text()
