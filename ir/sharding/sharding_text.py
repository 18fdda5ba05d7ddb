"""Printing shardings in four syntaxes: HLO V1 and V2 device lists, named axes, Shardy's `#sdy.sharding`.

`from_tiles`, which turns a device list into axes, serves the readers in the frontends too. The rules are XLA's: the
tile dimensions are the data dimensions followed by one dimension per subgroup kind; device lists of iota form are
shortened; groups are ordered maximal, manual, unreduced, replicated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .digit import Digit, Digits, complement, iota_digits, iota_form, merge, product
from .mesh import AxisRef, IotaOrder, Mesh
from .sharding import REPLICATED, DimSharding, Sharding, ShardingKind, Spelling

SUBGROUPS = ("maximal", "manual", "unreduced", "replicated")


def from_tiles(
    tile_dims: Sequence[int],
    subgroups: Sequence[str],
    order: IotaOrder | tuple[int, ...],
) -> Sharding:
    """Returns the sharding of `devices=[tile_dims]ids`, whose last dimensions belong to `subgroups` (of SUBGROUPS).

    Subgroups of one kind are joined and ordered, so that lists that print alike are equal. The anonymous mesh has one
    axis per digit of the device list, named `axis_0`, `axis_1`, .. in the order of the device number; where devices are
    listed one by one, or in an irregular order, it has one axis per dimension.
    """
    rank = len(tile_dims) - len(subgroups)
    if math.prod(tile_dims) == 1:
        return _among_one_device(rank, subgroups)
    parts = [[i] for i in range(rank)]
    parts += [[rank + i for i, kind in enumerate(subgroups) if kind == wanted] for wanted in SUBGROUPS]
    mesh = _mesh_of_parts(Mesh(tuple((f"t{i}", size) for i, size in enumerate(tile_dims)), order, named=False), parts)
    spelling = Spelling.V2 if isinstance(mesh.order, IotaOrder) else Spelling.V1
    if mesh.order_key is None and spelling is Spelling.V2:
        mesh, axes = _by_digits(mesh)
    else:
        axes = [(AxisRef(name),) if size > 1 else () for name, size in mesh.axes]
    marked = {kind: refs for kind, refs in zip(SUBGROUPS, axes[rank:], strict=True) if refs}
    if not any(axes[:rank]) and len(marked) == 1 and "maximal" not in marked:
        return Sharding(ShardingKind(next(iter(marked))))
    return Sharding(ShardingKind.TILED, mesh, tuple(map(DimSharding, axes[:rank])), manual=marked.get("manual", ()),
                    unreduced=marked.get("unreduced", ()), maximal=marked.get("maximal", ()), spelling=spelling)


def _mesh_of_parts(whole: Mesh, parts: Sequence[Sequence[int]]) -> Mesh:
    """Returns a mesh with one axis per group of axes. The last group is replication, in which the order of devices does
    not matter; lists sort them, as XLA does.
    """
    tile_dims = [size for _, size in whole.axes]
    axes = tuple((f"t{n}", math.prod(tile_dims[i] for i in part)) for n, part in enumerate(parts))
    sequence, copies = [i for part in parts for i in part if tile_dims[i] > 1], axes[-1][1]
    digits: Sequence[Digit] | None = None
    if isinstance(whole.order, IotaOrder) and sequence == sorted(sequence):
        digits = iota_digits(whole.order.dims, whole.order.perm)
    elif isinstance(whole.order, IotaOrder) and whole.order_key is None:
        digits = [d for i in sequence for d in whole.digits(AxisRef(f"t{i}"))]
    mesh = Mesh(axes, IotaOrder(*iota_form(digits)), named=False) if digits is not None else None
    if mesh is not None and mesh.order_key is None:
        return mesh
    if mesh is not None:
        ids = np.array(mesh.order_key)
    else:
        grid = np.array(whole.device_ids()).reshape([size for size in tile_dims if size > 1])
        ids = grid.transpose(np.argsort(np.argsort(sequence)))
    rows = ids.reshape(-1, copies)
    ordered = np.sort(rows, axis=1)
    if mesh is not None and np.array_equal(rows, ordered):
        return mesh
    return Mesh(axes, tuple(ordered.reshape(-1).tolist()), named=False)


def _by_digits(mesh: Mesh) -> tuple[Mesh, list[tuple[AxisRef, ...]]]:
    """Returns the mesh with one axis per digit of this mesh, and each axis of this mesh as axes of that."""
    parts = [mesh.digits(AxisRef(name)) for name, _ in mesh.axes]
    parts[-1] = merge(sorted(parts[-1], key=lambda d: -d.stride))  # replicas are unordered
    digits = sorted((d for part in parts for d in part), key=lambda d: -d.stride)
    names = {digit: f"axis_{i}" for i, digit in enumerate(digits)}
    axes = [tuple(AxisRef(names[d]) for d in part) for part in parts]
    return Mesh(tuple((name, digit.size) for digit, name in names.items()), None, named=False), axes


def _among_one_device(rank: int, subgroups: Sequence[str]) -> Sharding:
    """Returns a sharding of one tile, or of one kind if all subgroups have that kind.

    XLA prints `devices=[]<=[1]` for a scalar, which XLA itself cannot read.
    """
    kinds = set(subgroups)
    if len(kinds) == 1 and "maximal" not in kinds:
        return Sharding(ShardingKind(subgroups[0]))
    return Sharding(ShardingKind.TILED, dims=(DimSharding(),) * rank) if rank else REPLICATED


def sharding_text(sharding: Sharding) -> str:
    """Returns the text of one sharding, braces included, in its own syntax."""
    tail = ""
    if sharding.metadata is not None:
        tail = f" metadata={{{sharding.metadata}}}"
    if sharding.group:
        tail = f" {sharding.group.kind} {sharding.group.number}{tail}"
    if sharding.kind is ShardingKind.MAXIMAL:
        if sharding.spelling is Spelling.NAMED:
            return f"{{maximal_mesh[device_id={sharding.device}]}}"
        return f"{{maximal device={sharding.device}{tail}}}"
    if sharding.kind is not ShardingKind.TILED:
        return f"{{{sharding.kind.value}{tail}}}"
    if sharding.spelling is Spelling.NAMED:
        return named_text(sharding)
    return f"{{{_device_list(sharding)}{tail}}}"


def named_text(sharding: Sharding) -> str:
    """Returns `{mesh['x'=2,'y'=4], [{'x'}, {}], unreduced={'y'}}`. The sharding must have a mesh."""
    assert sharding.mesh is not None
    parts = [str(sharding.mesh)]
    sets: dict[str, tuple[AxisRef, ...]] = {"replicated": sharding.replicated, "unreduced": sharding.unreduced,
                                            "manual": sharding.manual}  # fmt: skip
    every = {AxisRef(name) for name, _ in sharding.mesh.axes}
    if sharding.dims:
        parts.append("[" + ", ".join(_dim_text(d, "'") for d in sharding.dims) + "]")
    elif every and (whole := next((w for w in ("unreduced", "manual") if set(sets[w]) == every), None)):
        parts.append(whole)
        sets = {}
    else:
        parts.append("[]" if any(sets.values()) else "replicated")
    parts += [f"{word}={{{','.join(map(str, refs))}}}" for word, refs in sets.items() if refs]
    if sharding.metadata is not None:
        parts.append(f"metadata={{{sharding.metadata}}}")
    return "{" + ", ".join(parts) + "}"


def shardy_text(sharding: Sharding, rank: int) -> str:
    """Returns `#sdy.sharding<@mesh, [{"x"}, {}]>`. The sharding must have a mesh."""
    return f"#sdy.sharding{shardy_body(sharding, rank)}"


def shardy_body(sharding: Sharding, rank: int) -> str:
    """Returns the part in angle brackets, as in `#sdy.sharding_per_value<[<@mesh, ..>, ..]>`."""
    assert sharding.mesh is not None
    dims = (*sharding.dims, *(DimSharding(),) * (rank - len(sharding.dims)))
    text = f"<@{sharding.mesh.symbol}, [{', '.join(_dim_text(d, chr(34)) for d in dims)}]"
    for word in ("replicated", "unreduced"):
        refs: tuple[AxisRef, ...] = getattr(sharding, word)
        if refs:
            text += f", {word}={{{', '.join(r.text(chr(34)) for r in refs)}}}"
    return text + ">"


def _dim_text(dim: DimSharding, quote: str) -> str:
    separator = "," if quote == "'" else ", "
    parts = [ref.text(quote) for ref in dim.axes] + (["?"] if dim.is_open else [])
    # HLO's own named syntax has no priorities.
    priority = f"p{dim.priority}" if dim.priority is not None and quote == '"' else ""
    return "{" + separator.join(parts) + "}" + priority


def _device_list(sharding: Sharding) -> str:
    mesh = sharding.mesh
    if mesh is None:
        return f"devices=[{','.join('1' for _ in sharding.dims)}]<=[1]" if sharding.dims else "replicated"

    def digits(refs: tuple[AxisRef, ...]) -> Digits:
        return merge(d for ref in refs for d in mesh.digits(ref))

    dims = [digits(d.axes) for d in sharding.dims]
    marked = {kind: digits(getattr(sharding, kind)) for kind in SUBGROUPS[:-1]}
    used = [d for part in (*dims, *marked.values()) for d in part]
    rest = complement(mesh.size, used)
    assert rest is not None, "axes overlap"
    marked["replicated"] = rest
    subgroups = [k for k in SUBGROUPS if marked[k]]
    tile_dims = [product(d) for d in dims] + [product(marked[k]) for k in subgroups]
    sequence: Digits = tuple(d for part in (*dims, *(marked[k] for k in subgroups)) for d in part)
    if not any(dims) and len(subgroups) <= 1 and not sharding.maximal and not sharding.group:
        return subgroups[0] if subgroups else "replicated"
    in_mesh_order = iota_form(sequence) == ((mesh.size,), (0,))
    if isinstance(mesh.order, IotaOrder) and mesh.order_key is not None and in_mesh_order:
        # An iota whose dimensions do not follow the tiles: its axes count places, but the list itself is short.
        ids = f"<={str(mesh.order)[1:-1]}"
    elif sharding.spelling is Spelling.V1 or mesh.order_key is not None:
        ids = ",".join(map(str, _explicit_ids(mesh, sequence, product(rest))))
    else:
        reshape, perm = iota_form(sequence)
        ids = f"<=[{','.join(map(str, reshape))}]"
        if len(reshape) > 1:
            ids += f"T({','.join(map(str, perm))})"
    text = f"devices=[{','.join(map(str, tile_dims))}]{ids}"
    if subgroups == ["replicated"]:
        return text + " last_tile_dim_replicate"
    return text + (f" last_tile_dims={{{', '.join(subgroups)}}}" if subgroups else "")


def _explicit_ids(mesh: Mesh, sequence: Digits, copies: int) -> list[int]:
    """Lists the devices in tile order; the `copies` devices that hold the same tile are in ascending order."""
    places = np.zeros((), dtype=np.int64)
    for digit in sequence:
        places = places[..., None] + np.arange(digit.size) * digit.stride
    flat = places.reshape(-1)
    ids = flat if mesh.order_key is None else np.asarray(mesh.order_key)[flat]
    return np.sort(ids.reshape(-1, copies), axis=1).reshape(-1).tolist()

